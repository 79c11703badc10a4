#include "tensor/timing/copy_line.h"

namespace weft {
namespace {

// Of sizes that differ less, what is left of the determinant is rounding.
constexpr double kSameSizes = 1e-12;

// Sums over the copies of w, w x, w y, w x^2 and w x y, with x bytes and y seconds.
struct WeightedSums {
  double w = 0, x = 0, y = 0, xx = 0, xy = 0;
};

WeightedSums SumsOf(const std::vector<TimedCopy>& copies) {
  WeightedSums sums;
  for (const TimedCopy& copy : copies) {
    const double weight = 1 / (copy.seconds * copy.seconds);
    sums.w += weight;
    sums.x += weight * copy.bytes;
    sums.y += weight * copy.seconds;
    sums.xx += weight * copy.bytes * copy.bytes;
    sums.xy += weight * copy.bytes * copy.seconds;
  }
  return sums;
}

}  // namespace

FittedLine FitLine(const std::vector<TimedCopy>& copies) {
  const WeightedSums sums = SumsOf(copies);
  FittedLine line;
  const double determinant = sums.w * sums.xx - sums.x * sums.x;
  if (determinant > kSameSizes * sums.w * sums.xx) {
    line.seconds_per_byte = (sums.w * sums.xy - sums.x * sums.y) / determinant;
  }
  line.seconds = (sums.y - line.seconds_per_byte * sums.x) / sums.w;
  return line;
}

FittedLine FitLineThroughOrigin(const std::vector<TimedCopy>& copies) {
  const WeightedSums sums = SumsOf(copies);
  return {0, sums.xy / sums.xx};
}

}  // namespace weft
