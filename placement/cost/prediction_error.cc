#include "placement/cost/prediction_error.h"

#include "absl/strings/str_format.h"

namespace weft {

std::string UncalibratedText() {
  return absl::StrFormat(
      "uncalibrated: the predicted times rest on published specs. The one uncalibrated run on "
      "record took %.0f times as long as predicted, and %d calibrated runs took %.2f to %.2f times "
      "as long; graph_runner calibrate measures this cluster",
      kUncalibratedError.max, kCalibratedError.runs, kCalibratedError.min, kCalibratedError.max);
}

std::string UncalibratedWords() {
  return absl::StrFormat("uncalibrated: a step has taken %.0f times as long as predicted",
                         kUncalibratedError.max);
}

}  // namespace weft
