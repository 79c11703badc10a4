// The middle one of measured numbers.
#ifndef WEFT_TRAINING_CALIBRATION_MEDIAN_H_
#define WEFT_TRAINING_CALIBRATION_MEDIAN_H_

#include <algorithm>
#include <cstddef>
#include <vector>

namespace weft {

// The upper one of two in the middle; 0 of none.
inline double Median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace weft

#endif  // WEFT_TRAINING_CALIBRATION_MEDIAN_H_
