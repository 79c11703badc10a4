// Det and DetGrad.
#include "ops/kernels/cuda/blocks/launch_types.h"
#include "ops/kernels/cuda/language/launch.h"
#include "ops/kernels/cuda/movement/determinant_body.h"

namespace weft::cuda {
namespace {

// A warp is enough for a small matrix.
LaunchGrid DeterminantGrid(int64_t matrices, int64_t n) {
  constexpr int64_t kSmall = 8;
  return {.blocks = std::min(matrices, kDeterminantBlocks),
          .threads = n <= kSmall ? kWarp : kDeterminantThreads};
}

}  // namespace

int LaunchDeterminant(DType dtype, const DeterminantCall& call) {
  return LaunchByType(dtype, FloatLaunches(), [&](auto zero) {
    using T = decltype(zero);
    return Launch<kDeterminantThreads>(
        call.queue, DeterminantGrid(call.matrices, call.n),
        DeterminantBody<T>{static_cast<const T*>(call.x), static_cast<T*>(call.y),
                           static_cast<double*>(call.workspace), call.matrices, call.n});
  });
}

int LaunchDeterminantGrad(DType dtype, const DeterminantCall& call) {
  return LaunchByType(dtype, FloatLaunches(), [&](auto zero) {
    using T = decltype(zero);
    return Launch<kDeterminantThreads>(
        call.queue, DeterminantGrid(call.matrices, call.n),
        DeterminantGradBody<T>{static_cast<const T*>(call.x), static_cast<const T*>(call.dy),
                               static_cast<T*>(call.y), static_cast<double*>(call.workspace),
                               call.matrices, call.n});
  });
}

}  // namespace weft::cuda
