// AxisLines: a tensor seen as lines along one axis, for kernels that handle a line at a time.
#ifndef WEFT_OPS_KERNELS_CPU_BLOCKS_AXIS_LINES_H_
#define WEFT_OPS_KERNELS_CPU_BLOCKS_AXIS_LINES_H_

#include <cstdint>

#include "tensor/shape.h"

namespace weft::cpu {

// `lines` lines of `size` elements `stride` apart.
struct AxisLines {
  int64_t lines = 1;
  int64_t size = 1;
  int64_t stride = 1;

  // REQUIRES: 0 <= axis < shape.rank(); a scalar is one line of one element.
  static AxisLines Make(const Shape& shape, int axis) {
    if (shape.rank() == 0) return {};
    const int64_t stride = shape.ProductOf(axis + 1, shape.rank());
    return {shape.ProductOf(0, axis) * stride, shape.dim(axis), stride};
  }

  // The offset of the first element of a line; lines are numbered in the order of the tensor.
  int64_t Start(int64_t line) const { return line / stride * stride * size + line % stride; }
};

}  // namespace weft::cpu

#endif  // WEFT_OPS_KERNELS_CPU_BLOCKS_AXIS_LINES_H_
