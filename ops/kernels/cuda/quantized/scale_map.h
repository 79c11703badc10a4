// Where the scale of an element lies: one for all, one per index of an axis, or one per block along
// it.
#ifndef WEFT_OPS_KERNELS_CUDA_QUANTIZED_SCALE_MAP_H_
#define WEFT_OPS_KERNELS_CUDA_QUANTIZED_SCALE_MAP_H_

#include <cstdint>

#include "ops/kernels/cuda/blocks/divisor.h"

namespace weft::cuda {

// Elements [outer, size, inner], of which `size` is the axis'; scales are [size], or with blocks
// [outer, blocks, inner]. Made by factories.
struct ScaleGrid {
  int64_t outer = 1;
  int64_t size = 1;
  int64_t inner = 1;
  int64_t block = 0;  // 0: no blocks
  int64_t blocks = 1;
  int64_t scales = 1;

  int64_t elements() const { return outer * size * inner; }
};

// A ScaleGrid for bodies. Index is int32_t where there are fewer than 2^31 elements.
template <typename Index>
struct ScaleMap {
  FastDivisor<Index> inner;
  FastDivisor<Index> size;
  FastDivisor<Index> block;
  Index blocks = 1;
  bool is_one = true;  // one scale for all
  bool is_blocked = false;

  // REQUIRES: the grid has elements.
  static ScaleMap Of(const ScaleGrid& grid) {
    ScaleMap map;
    map.is_one = grid.scales == 1;
    map.is_blocked = grid.block > 0;
    map.inner = FastDivisor<Index>(static_cast<Index>(grid.inner));
    map.size = FastDivisor<Index>(static_cast<Index>(grid.size));
    // A block may be longer than its axis.
    const int64_t block = grid.block > grid.size ? grid.size : grid.block;
    map.block = FastDivisor<Index>(static_cast<Index>(block > 0 ? block : 1));
    map.blocks = static_cast<Index>(grid.blocks);
    return map;
  }

  // The scale of element i, in row-major order.
  WEFT_GPU Index At(Index i) const {
    if (is_one) return 0;
    const Division<Index> row = inner.Divide(i);
    const Division<Index> axis = size.Divide(row.quotient);
    if (!is_blocked) return axis.rest;
    const Index own = axis.quotient * blocks + block.Divide(axis.rest).quotient;
    return own * inner.divisor() + row.rest;
  }
};

}  // namespace weft::cuda

#endif  // WEFT_OPS_KERNELS_CUDA_QUANTIZED_SCALE_MAP_H_
