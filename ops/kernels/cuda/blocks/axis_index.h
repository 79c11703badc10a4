// AxisIndex: the offset of number i of the elements that some axes of a tensor span.
#ifndef WEFT_OPS_KERNELS_CUDA_BLOCKS_AXIS_INDEX_H_
#define WEFT_OPS_KERNELS_CUDA_BLOCKS_AXIS_INDEX_H_

#include <cstdint>

#include "ops/kernels/cuda/blocks/divisor.h"
#include "ops/kernels/cuda/language/gpu.h"

namespace weft::cuda {

// Axes of a tensor of rank 16 after merging neighbours: at most 8 are reduced, at most 8 kept.
inline constexpr int kMaxIndexAxes = 8;

// Axes are minor first. Plain values, to be a member of a body.
struct AxisIndex {
  int32_t axes = 1;
  int32_t wide = 0;  // the axes have 2^31 elements or more
  FastDivisor<int32_t> divisors[kMaxIndexAxes];
  int64_t sizes[kMaxIndexAxes] = {};
  int64_t strides[kMaxIndexAxes] = {};  // in elements

  // REQUIRES: 0 <= i < the product of the sizes.
  WEFT_GPU int64_t Offset(int64_t i) const {
    if (axes == 1) return i * strides[0];
    int64_t offset = 0;
    if (wide == 0) {
      int32_t rest = static_cast<int32_t>(i);
      for (int d = 0; d + 1 < axes; ++d) {
        const Division<int32_t> division = divisors[d].Divide(rest);
        offset += division.rest * strides[d];
        rest = division.quotient;
      }
      return offset + rest * strides[axes - 1];
    }
    for (int d = 0; d + 1 < axes; ++d) {
      offset += i % sizes[d] * strides[d];
      i /= sizes[d];
    }
    return offset + i * strides[axes - 1];
  }
};

}  // namespace weft::cuda

#endif  // WEFT_OPS_KERNELS_CUDA_BLOCKS_AXIS_INDEX_H_
