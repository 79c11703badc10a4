// The launch of CausalConvWithState (ops/kernels/cuda/conv/causal.cu).
#ifndef WEFT_OPS_KERNELS_CUDA_CONV_CAUSAL_LAUNCH_H_
#define WEFT_OPS_KERNELS_CUDA_CONV_CAUSAL_LAUNCH_H_

#include <cstdint>

#include "ops/kernels/cuda/language/launch_grid.h"
#include "tensor/dtype.h"

namespace weft::cuda {

// y[r, t] = activation(bias[c] + the sum of w[c, k] e[r, t + k] over the taps), where row r is a
// sample and channel c, and e is past [taps - 1] followed by x [length] of the row. present is the
// end of e. Null: bias and past are 0; present is not wanted.
struct CausalConvCall {
  LaunchQueue queue;
  const void* x = nullptr;
  const void* w = nullptr;
  const void* bias = nullptr;
  const void* past = nullptr;
  void* y = nullptr;
  void* present = nullptr;
  int64_t rows = 0;
  int64_t channels = 1;
  int64_t length = 0;
  int64_t taps = 1;
  bool has_silu = false;  // z / (1 + exp(-z))
};
// float32, float64, float16 or bfloat16. 0, or CUDA's error number.
int LaunchCausalConv(DType dtype, const CausalConvCall& call);

}  // namespace weft::cuda

#endif  // WEFT_OPS_KERNELS_CUDA_CONV_CAUSAL_LAUNCH_H_
