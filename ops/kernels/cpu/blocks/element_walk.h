// The walk of GatherElements, ScatterElements and their gradients: one index per element, along one
// axis.
#ifndef WEFT_OPS_KERNELS_CPU_BLOCKS_ELEMENT_WALK_H_
#define WEFT_OPS_KERNELS_CPU_BLOCKS_ELEMENT_WALK_H_

#include <algorithm>
#include <array>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "ops/kernel.h"
#include "platform/status_macros.h"

namespace weft::cpu {

// Walks the indices in order and finds the element of the data that each names. Negative indices
// count from the end.
class ElementWalk {
 public:
  // Of a node with the attribute `axis` (0), whose input 1 are the indices into `data`.
  static absl::StatusOr<ElementWalk> Make(const PrepareContext& context, const Shape& data) {
    ElementWalk walk;
    WEFT_ASSIGN_OR_RETURN(walk.axis_,
                          NormalizeAxis(context.attributes().Int("axis", 0), data.rank()));
    walk.indices_ = context.InputShape(1);
    walk.size_ = data.dim(walk.axis_);
    const auto strides = data.Strides();
    std::copy(strides.begin(), strides.end(), walk.strides_.begin());
    return walk;
  }

  // fn(position among the indices, offset in the data). InvalidArgument for an index outside of the
  // axis, with its position.
  template <typename L, typename Fn>
  absl::Status ForEach(const L* indices, Fn fn) const {
    std::array<int64_t, kMaxRank> at = {};
    const int64_t count = indices_.num_elements();
    int64_t base = 0;  // of the coordinates, without the axis
    for (int64_t i = 0; i < count; ++i) {
      const int64_t given = static_cast<int64_t>(indices[i]);
      const int64_t index = given < 0 ? given + size_ : given;
      if (index < 0 || index >= size_) return OutOfRange(given, i);
      fn(i, base + index * strides_[axis_]);
      for (int d = indices_.rank() - 1; d >= 0; --d) {
        const int64_t stride = d == axis_ ? 0 : strides_[d];
        base += stride;
        if (++at[d] < indices_.dim(d)) break;
        base -= at[d] * stride;
        at[d] = 0;
      }
    }
    return absl::OkStatus();
  }

 private:
  absl::Status OutOfRange(int64_t index, int64_t position) const {
    return absl::InvalidArgumentError(absl::StrCat("index ", index, " at element ", position,
                                                   " of the indices is outside [", -size_, ", ",
                                                   size_, ") of axis ", axis_));
  }

  Shape indices_;
  int axis_ = 0;
  int64_t size_ = 0;
  std::array<int64_t, kMaxRank> strides_ = {};
};

}  // namespace weft::cpu

#endif  // WEFT_OPS_KERNELS_CPU_BLOCKS_ELEMENT_WALK_H_
