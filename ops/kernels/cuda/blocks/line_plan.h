// LinePlan: the host's side of ops/kernels/cuda/blocks/line_body.h. For factories.
#ifndef WEFT_OPS_KERNELS_CUDA_BLOCKS_LINE_PLAN_H_
#define WEFT_OPS_KERNELS_CUDA_BLOCKS_LINE_PLAN_H_

#include <cstddef>
#include <cstdint>
#include <initializer_list>

#include "ops/kernels/cuda/blocks/line_layout.h"
#include "tensor/shape.h"

namespace weft::cuda {

// The launch for any addresses, and that for addresses which are multiples of 16 bytes.
struct LinePlan {
  LineLaunch narrow;
  LineLaunch wide;

  // Lines of `size` elements `stride` apart. `width`: elements of the widest packet, 1 where there
  // is none. `registers`: whether rows that fit may be kept in registers. `ragged`: whether long
  // rows may be ragged (LineLayout), for a Source with kRagged.
  static LinePlan Make(int64_t lines, int64_t size, int64_t stride, int width, bool registers,
                       bool ragged = false);
  // Along an axis of a row-major tensor. REQUIRES: 0 <= axis < rank; of a scalar, any axis.
  static LinePlan Along(const Shape& shape, int axis, int width, bool registers,
                        bool ragged = false);

  const LineLaunch& For(std::initializer_list<const void*> operands) const;
};

}  // namespace weft::cuda

#endif  // WEFT_OPS_KERNELS_CUDA_BLOCKS_LINE_PLAN_H_
