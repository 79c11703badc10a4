// How far predicted step times were off, and what people are told of a prediction that rests on no
// measurement of its cluster.
#ifndef WEFT_PLACEMENT_COST_PREDICTION_ERROR_H_
#define WEFT_PLACEMENT_COST_PREDICTION_ERROR_H_

#include <string>

namespace weft {

// Measured / predicted time of a step, of some runs.
struct PredictionError {
  double min = 1;
  double median = 1;
  double max = 1;
  int runs = 0;
};

// docs/measurements.md, "Predictions against runs". Uncalibrated: twelve set-ups of four models on
// a busy machine, and the one step that an idle one has on record (0.107 ms predicted, 4.27
// measured). Calibrated: the first runs of the same twelve set-ups on an idle machine.
inline constexpr PredictionError kUncalibratedError = {0.83, 2.11, 4.27 / 0.107, 13};
inline constexpr PredictionError kCalibratedError = {0.578 / 0.631, 1.03, 2.884 / 2.519, 12};

// "uncalibrated: the predicted times rest on published specs ...": one line, without its end.
std::string UncalibratedText();
// "uncalibrated: ..." in a few words, for a prediction within a sentence.
std::string UncalibratedWords();

}  // namespace weft

#endif  // WEFT_PLACEMENT_COST_PREDICTION_ERROR_H_
