#include "ops/kernels/cuda/blocks/fold_launch.h"
#include "ops/kernels/cuda/loss/squared_error_body.h"
#include "ops/kernels/cuda/loss/squared_error_launch.h"

namespace weft::cuda {

template <typename T>
int LaunchSquaredError(LaunchQueue queue, const FoldLaunch& fold, double divisor, const T* a,
                       const T* b, T* y, void* workspace) {
  return LaunchFold(queue, fold, SquaredErrorSource<T>{divisor, a, b, y}, workspace);
}

template <typename T>
int LaunchSquaredErrorGrad(LaunchQueue queue, int64_t elements, bool packed, const T* dy,
                           const T* a, const T* b, T* da) {
  constexpr int kThreads = 256;
  constexpr int kWidth = kWidest<T>;
  const int64_t packets = packed ? elements / kWidth : elements;
  const LaunchGrid grid = {.blocks = Blocks(packets, kThreads), .threads = kThreads};
  if (packed) {
    return Launch<kThreads>(queue, grid, SquaredErrorGradBody<T, kWidth>{packets, dy, a, b, da});
  }
  return Launch<kThreads>(queue, grid, SquaredErrorGradBody<T, 1>{packets, dy, a, b, da});
}

#define WEFT_SQUARED_ERROR(T)                                                                     \
  template int LaunchSquaredError(LaunchQueue, const FoldLaunch&, double, const T*, const T*, T*, \
                                  void*);                                                         \
  template int LaunchSquaredErrorGrad(LaunchQueue, int64_t, bool, const T*, const T*, const T*, T*)
WEFT_SQUARED_ERROR(float);
WEFT_SQUARED_ERROR(double);
WEFT_SQUARED_ERROR(Float16);
WEFT_SQUARED_ERROR(Bfloat16);
#undef WEFT_SQUARED_ERROR

}  // namespace weft::cuda
