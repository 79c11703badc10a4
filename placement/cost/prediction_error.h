// How far predicted step times were off, and what people are told of a prediction that rests on no
// measurement of its cluster.
#ifndef WEFT_PLACEMENT_COST_PREDICTION_ERROR_H_
#define WEFT_PLACEMENT_COST_PREDICTION_ERROR_H_

#include <string>

namespace weft {

// Measured / predicted time of a step: the least and the most of some runs.
struct PredictionError {
  double min = 1;
  double max = 1;
  int runs = 0;
};

// docs/measurements.md, "Predictions against runs". Uncalibrated: the one step of a small model
// that is on record, predicted to take 0.107 ms. Calibrated: the first run of each of twelve
// set-ups.
inline constexpr PredictionError kUncalibratedError = {4.27 / 0.107, 4.27 / 0.107, 1};
inline constexpr PredictionError kCalibratedError = {0.578 / 0.631, 2.884 / 2.519, 12};

// "uncalibrated: the predicted times rest on published specs ...": one line, without its end.
std::string UncalibratedText();
// "uncalibrated: ..." in a few words, for a prediction within a sentence.
std::string UncalibratedWords();

}  // namespace weft

#endif  // WEFT_PLACEMENT_COST_PREDICTION_ERROR_H_
