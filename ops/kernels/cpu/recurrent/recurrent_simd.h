// Vector code for the activations of recurrent ops.
#ifndef WEFT_OPS_KERNELS_CPU_RECURRENT_RECURRENT_SIMD_H_
#define WEFT_OPS_KERNELS_CPU_RECURRENT_RECURRENT_SIMD_H_

#include <cstdint>

namespace weft::cpu {

// Each element replaced by its function.
void SigmoidInPlace(float* values, int64_t count);
void TanhInPlace(float* values, int64_t count);

}  // namespace weft::cpu

#endif  // WEFT_OPS_KERNELS_CPU_RECURRENT_RECURRENT_SIMD_H_
