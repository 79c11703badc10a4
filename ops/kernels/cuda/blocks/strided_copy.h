// StridedCopy: moves elements between tensors of different strides, on a GPU. For factories.
#ifndef WEFT_OPS_KERNELS_CUDA_BLOCKS_STRIDED_COPY_H_
#define WEFT_OPS_KERNELS_CUDA_BLOCKS_STRIDED_COPY_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "ops/copy_axis.h"
#include "ops/kernel.h"
#include "ops/kernels/cuda/blocks/strided_copy_launch.h"
#include "tensor/dtype.h"

namespace weft::cuda {

// Bytes of an element. Unimplemented for those smaller than a byte and for strings.
absl::StatusOr<int> ElementBytes(const PrepareContext& context, DType dtype);

// The way of a copy, with units as large as strides, offsets and `largest_unit` allow.
// Unimplemented where more than kMaxBroadcastAxes axes are left after merging.
absl::StatusOr<CopyPlan> PlanCopy(std::vector<CopyAxis> axes, int element_bytes,
                                  int64_t from_offset, int64_t to_offset, int largest_unit);

// Immutable; thread-safe.
class StridedCopy {
 public:
  StridedCopy() = default;  // copies nothing
  // Axes in any order; offsets of the first element, in elements. Unimplemented, with the node, as
  // PlanCopy.
  static absl::StatusOr<StridedCopy> Make(const PrepareContext& context, std::vector<CopyAxis> axes,
                                          int element_bytes, int64_t from_offset = 0,
                                          int64_t to_offset = 0);

  // Addresses are aligned to an element. CUDA's error number. Source and target may not overlap.
  int Run(LaunchQueue queue, const void* from, void* to) const;
  int64_t bytes() const { return bytes_; }  // that are written

 private:
  CopyPlan wide_;
  CopyPlan narrow_;  // for addresses that are not aligned more than an element
  int64_t bytes_ = 0;
};

}  // namespace weft::cuda

#endif  // WEFT_OPS_KERNELS_CUDA_BLOCKS_STRIDED_COPY_H_
