// FoldPlan: the host's side of ops/kernels/cuda/blocks/fold_body.h. For factories.
#ifndef WEFT_OPS_KERNELS_CUDA_BLOCKS_FOLD_PLAN_H_
#define WEFT_OPS_KERNELS_CUDA_BLOCKS_FOLD_PLAN_H_

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <vector>

#include "ops/kernels/cuda/blocks/fold_layout.h"
#include "tensor/shape.h"

namespace weft::cuda {

// Axes of a tensor, major first.
struct StridedAxis {
  int64_t size = 1;
  int64_t stride = 1;  // in elements
};

// REQUIRES: at most kMaxIndexAxes axes, none with size 0 unless nothing is indexed.
AxisIndex IndexOf(const std::vector<StridedAxis>& axes);

// The launch for any addresses, and that for addresses which are multiples of a packet. Both are
// the same where there is no packet. Chunks, and so the order of a sum, depend on the shape alone,
// never on the card: as many blocks as a card likes would give other bits on another card.
struct FoldPlan {
  FoldLaunch narrow;
  FoldLaunch wide;

  // Output o of a row-major tensor folds the elements that differ in reduced axes alone.
  // `width`: elements of the widest packet, 1 where there is none. `ragged`: whether long rows may
  // be ragged (FoldLayout), for a Source with kRagged.
  static FoldPlan Make(const Shape& shape, const std::vector<bool>& reduced, int width,
                       bool ragged = false);
  // [rows, columns] to one value per row, or to one per column. Of columns, unit i is row i.
  static FoldPlan OfRows(int64_t rows, int64_t columns, int width);
  static FoldPlan OfColumns(int64_t rows, int64_t columns, int width);

  // `bytes`: of a packet.
  const FoldLaunch& For(std::initializer_list<const void*> operands, size_t bytes = 16) const;
  // For `total_bytes` of a Total.
  size_t workspace_bytes(size_t total_bytes) const;
};

// Whether all are multiples of `bytes`. Null is.
bool AreAligned(std::initializer_list<const void*> operands, size_t bytes = 16);

}  // namespace weft::cuda

#endif  // WEFT_OPS_KERNELS_CUDA_BLOCKS_FOLD_PLAN_H_
