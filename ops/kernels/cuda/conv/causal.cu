// CausalConvWithState.
#include <algorithm>

#include "ops/kernels/cuda/blocks/launch_types.h"
#include "ops/kernels/cuda/conv/causal_body.h"
#include "ops/kernels/cuda/language/launch.h"

namespace weft::cuda {

int LaunchCausalConv(DType dtype, const CausalConvCall& call) {
  constexpr int kThreads = 256;
  const int64_t count = call.rows * std::max(call.length, call.taps - 1);
  return LaunchByType(dtype, FloatLaunches(), [&](auto zero) {
    return Launch<kThreads>(
        call.queue, {.blocks = Blocks(count, kThreads, int64_t{8} * 160 * 4), .threads = kThreads},
        CausalConvBody<decltype(zero)>{call});
  });
}

}  // namespace weft::cuda
