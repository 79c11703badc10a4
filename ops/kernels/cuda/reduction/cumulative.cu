#include "ops/kernels/cuda/language/launch.h"
#include "ops/kernels/cuda/reduction/cumulative_body.h"
#include "ops/kernels/cuda/reduction/cumulative_launch.h"

namespace weft::cuda {
namespace {

constexpr int kCumulativeThreads = 256;

// A warp for each line that there may be; which axis has them is not known before the launch.
LaunchGrid CumulativeGrid(const CumulativePlan& plan) {
  const int64_t lines = plan.elements == 0 ? 0 : plan.elements / plan.smallest_size;
  return {.blocks = Blocks(lines, kCumulativeThreads / kWarp, int64_t{1} << 14),
          .threads = kCumulativeThreads};
}

}  // namespace

template <typename T>
int LaunchCumulative(LaunchQueue queue, const CumulativePlan& plan, bool product, const T* x,
                     T* y) {
  const LaunchGrid grid = CumulativeGrid(plan);
  if (product) {
    return Launch<kCumulativeThreads>(queue, grid, CumulativeBody<T, true>{plan, x, y});
  }
  return Launch<kCumulativeThreads>(queue, grid, CumulativeBody<T, false>{plan, x, y});
}

template <typename T>
int LaunchCumulativeGrad(LaunchQueue queue, const CumulativePlan& plan, const T* dy, const T* x,
                         T* dx, double* sums) {
  return Launch<kCumulativeThreads>(queue, CumulativeGrid(plan),
                                    CumulativeGradBody<T>{plan, dy, x, dx, sums});
}

#define WEFT_CUMULATIVE(T) \
  template int LaunchCumulative(LaunchQueue, const CumulativePlan&, bool, const T*, T*)
#define WEFT_CUMULATIVE_GRAD(T)                                                                 \
  template int LaunchCumulativeGrad(LaunchQueue, const CumulativePlan&, const T*, const T*, T*, \
                                    double*)
WEFT_CUMULATIVE(float);
WEFT_CUMULATIVE(double);
WEFT_CUMULATIVE(Float16);
WEFT_CUMULATIVE(Bfloat16);
WEFT_CUMULATIVE(int8_t);
WEFT_CUMULATIVE(int16_t);
WEFT_CUMULATIVE(int32_t);
WEFT_CUMULATIVE(int64_t);
WEFT_CUMULATIVE(uint8_t);
WEFT_CUMULATIVE(uint16_t);
WEFT_CUMULATIVE(uint32_t);
WEFT_CUMULATIVE(uint64_t);
WEFT_CUMULATIVE_GRAD(float);
WEFT_CUMULATIVE_GRAD(double);
WEFT_CUMULATIVE_GRAD(Float16);
WEFT_CUMULATIVE_GRAD(Bfloat16);
#undef WEFT_CUMULATIVE
#undef WEFT_CUMULATIVE_GRAD

}  // namespace weft::cuda
