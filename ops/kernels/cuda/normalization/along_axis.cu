#include "ops/kernels/cuda/blocks/line_launch.h"
#include "ops/kernels/cuda/normalization/along_axis_body.h"
#include "ops/kernels/cuda/normalization/along_axis_launch.h"

namespace weft::cuda {

template <typename T>
int LaunchLpNormalization(LaunchQueue queue, const LineLaunch& line, bool squares, const T* x,
                          T* y) {
  return LaunchLines(queue, line, LpSource<T>{x, y, squares ? 1 : 0});
}

template <typename T>
int LaunchLrn(LaunchQueue queue, const LrnPlan& plan, const T* x, T* y) {
  constexpr int kThreads = 256;
  return Launch<kThreads>(queue, {.blocks = Blocks(plan.elements, kThreads), .threads = kThreads},
                          LrnBody<T>{plan, x, y});
}

#define WEFT_ALONG_AXIS(T)                                                                \
  template int LaunchLpNormalization(LaunchQueue, const LineLaunch&, bool, const T*, T*); \
  template int LaunchLrn(LaunchQueue, const LrnPlan&, const T*, T*)
WEFT_ALONG_AXIS(float);
WEFT_ALONG_AXIS(double);
WEFT_ALONG_AXIS(Float16);
WEFT_ALONG_AXIS(Bfloat16);
#undef WEFT_ALONG_AXIS

}  // namespace weft::cuda
