// The line through timed copies or messages of several sizes.
#ifndef WEFT_TENSOR_TIMING_COPY_LINE_H_
#define WEFT_TENSOR_TIMING_COPY_LINE_H_

#include <vector>

namespace weft {

// One copy or message of so many bytes took so long.
struct TimedCopy {
  double bytes = 0;
  double seconds = 0;
};

// seconds = `seconds` + `seconds_per_byte` bytes. Either may be negative where times fall as sizes
// grow.
struct FittedLine {
  double seconds = 0;
  double seconds_per_byte = 0;
};

// The line whose relative errors have the least sum of squares: w = 1 / seconds^2 in the normal
// equations of seconds = a + b bytes. Of one size alone b is 0 and `a` the weighted mean. REQUIRES:
// one copy at least, positive seconds.
FittedLine FitLine(const std::vector<TimedCopy>& copies);

// The same through the origin, a = 0. REQUIRES: as FitLine, and positive bytes.
FittedLine FitLineThroughOrigin(const std::vector<TimedCopy>& copies);

}  // namespace weft

#endif  // WEFT_TENSOR_TIMING_COPY_LINE_H_
