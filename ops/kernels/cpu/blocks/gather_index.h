// The indices of Gather and its gradient: read and checked before anything is addressed with them.
#ifndef WEFT_OPS_KERNELS_CPU_BLOCKS_GATHER_INDEX_H_
#define WEFT_OPS_KERNELS_CPU_BLOCKS_GATHER_INDEX_H_

#include <cstdint>

#include "absl/status/status.h"
#include "tensor/dtype.h"
#include "tensor/shape.h"

namespace weft::cpu {

// `count` indices of int32 or int64 along an axis of `axis_size`; negative ones count from the end.
class GatherIndices {
 public:
  GatherIndices(DType dtype, Shape shape, int axis, int64_t axis_size)
      : is_int64_(dtype == DType::kInt64),
        count_(shape.num_elements()),
        shape_(std::move(shape)),
        axis_(axis),
        axis_size_(axis_size) {}

  int64_t count() const { return count_; }

  // InvalidArgument naming the first index that is outside, and where it stands.
  absl::Status Check(const void* indices) const;

  // The i-th index, in [0, axis_size). REQUIRES: Check(indices).ok().
  int64_t At(const void* indices, int64_t i) const {
    const int64_t index = is_int64_ ? static_cast<const int64_t*>(indices)[i]
                                    : static_cast<const int32_t*>(indices)[i];
    return index < 0 ? index + axis_size_ : index;
  }

 private:
  bool is_int64_;
  int64_t count_;
  Shape shape_;
  int axis_;
  int64_t axis_size_;
};

}  // namespace weft::cpu

#endif  // WEFT_OPS_KERNELS_CPU_BLOCKS_GATHER_INDEX_H_
