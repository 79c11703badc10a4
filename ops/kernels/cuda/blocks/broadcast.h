// BroadcastMap: where the elements of an output lie in operands that broadcast to it, or that are
// walked with other strides. ops/kernels/cuda/blocks/broadcast_plan.h makes it on the host.
#ifndef WEFT_OPS_KERNELS_CUDA_BLOCKS_BROADCAST_H_
#define WEFT_OPS_KERNELS_CUDA_BLOCKS_BROADCAST_H_

#include <cstdint>

#include "ops/kernels/cuda/blocks/divisor.h"

namespace weft::cuda {

// After merging; more are not to be had from a map.
inline constexpr int kMaxBroadcastAxes = 8;

// Axes are minor first. Plain values, to be a member of a body. Index is int32_t, or int64_t where
// offsets or the number of elements may reach 2^31.
template <int kOperands, typename Index = int32_t>
struct BroadcastMap {
  struct Offsets {
    Index of[kOperands];  // in elements
  };
  struct Coordinates {
    Index at[kMaxBroadcastAxes];  // those of axes that the map has not are 0
  };

  int axes = 1;                                      // 1 <= axes <= kMaxBroadcastAxes
  FastDivisor<Index> sizes[kMaxBroadcastAxes];       // of the output
  Index strides[kMaxBroadcastAxes][kOperands] = {};  // in elements; 0 where it is broadcast

  // Where element `i` of the output, counted in row-major order, comes from. REQUIRES: i >= 0.
  WEFT_GPU Offsets At(Index i) const {
    Offsets offsets = {};
    // Unrolled, so that nothing but the parameters of the launch is indexed.
    WEFT_UNROLL
    for (int d = 0; d < kMaxBroadcastAxes; ++d) {
      if (d + 1 >= axes) {
        for (int k = 0; k < kOperands; ++k) offsets.of[k] += i * strides[d][k];
        return offsets;
      }
      const Division<Index> division = sizes[d].Divide(i);
      for (int k = 0; k < kOperands; ++k) offsets.of[k] += division.rest * strides[d][k];
      i = division.quotient;
    }
    return offsets;
  }

  // For bodies whose number of operands is known at run time: the coordinates of an element, then
  // the offset for each operand.
  WEFT_GPU Coordinates CoordinatesOf(Index i) const {
    Coordinates coordinates = {};
    WEFT_UNROLL
    for (int d = 0; d < kMaxBroadcastAxes; ++d) {
      if (d + 1 >= axes) {
        coordinates.at[d] = i;
        return coordinates;
      }
      const Division<Index> division = sizes[d].Divide(i);
      coordinates.at[d] = division.rest;
      i = division.quotient;
    }
    return coordinates;
  }
  // REQUIRES: 0 <= operand < kOperands.
  WEFT_GPU Index Offset(const Coordinates& coordinates, int operand) const {
    Index offset = 0;
    WEFT_UNROLL
    for (int d = 0; d < kMaxBroadcastAxes; ++d) {
      if (d >= axes) return offset;
      offset += coordinates.at[d] * strides[d][operand];
    }
    return offset;
  }
};

}  // namespace weft::cuda

#endif  // WEFT_OPS_KERNELS_CUDA_BLOCKS_BROADCAST_H_
