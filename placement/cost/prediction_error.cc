#include "placement/cost/prediction_error.h"

#include "absl/strings/str_format.h"

namespace weft {

std::string UncalibratedText() {
  const PredictionError& without = kUncalibratedError;
  const PredictionError& with = kCalibratedError;
  return absl::StrFormat(
      "uncalibrated: the predicted times rest on published specs. %d uncalibrated steps took %.1f "
      "times as long as predicted in the median (%.2f to %.0f times), %d calibrated ones %.2f "
      "times "
      "(%.2f to %.2f); graph_runner calibrate measures this cluster",
      without.runs, without.median, without.min, without.max, with.runs, with.median, with.min,
      with.max);
}

std::string UncalibratedWords() {
  return absl::StrFormat("uncalibrated: steps took %.2f to %.0f times as long as predicted",
                         kUncalibratedError.min, kUncalibratedError.max);
}

}  // namespace weft
