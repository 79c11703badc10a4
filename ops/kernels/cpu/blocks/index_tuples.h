// Index tuples of GatherND, ScatterND and their gradients: the last axis of the indices holds
// coordinates of the leading axes of the data.
#ifndef WEFT_OPS_KERNELS_CPU_BLOCKS_INDEX_TUPLES_H_
#define WEFT_OPS_KERNELS_CPU_BLOCKS_INDEX_TUPLES_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "tensor/shape.h"

namespace weft::cpu {

// `count()` tuples, each of which names `row()` neighbouring elements of the data. The first
// `batch_dims` axes are common to data and indices. Negative coordinates count from the end.
class IndexTuples {
 public:
  // REQUIRES: shapes that inference has accepted.
  IndexTuples(const Shape& data, const Shape& indices, int batch_dims);

  int64_t count() const { return count_; }
  int64_t row() const { return row_; }  // elements

  // fn(number of the tuple, offset of its row in the data), in order. InvalidArgument for a
  // coordinate outside of its axis, with its position.
  template <typename Fn>
  absl::Status ForEach(const int64_t* indices, Fn fn) const {
    const int depth = static_cast<int>(sizes_.size());
    for (int64_t i = 0; i < count_; ++i) {
      int64_t offset = i / per_batch_ * batch_stride_;
      for (int k = 0; k < depth; ++k) {
        const int64_t given = indices[i * depth + k];
        const int64_t index = given < 0 ? given + sizes_[k] : given;
        if (index < 0 || index >= sizes_[k]) return OutOfRange(given, i, k);
        offset += index * strides_[k];
      }
      fn(i, offset);
    }
    return absl::OkStatus();
  }

 private:
  absl::Status OutOfRange(int64_t index, int64_t tuple, int component) const;

  std::vector<int64_t> sizes_;    // of the axes that a tuple indexes
  std::vector<int64_t> strides_;  // of these axes
  int batch_dims_;
  int64_t count_;
  int64_t per_batch_;
  int64_t batch_stride_;
  int64_t row_;
};

}  // namespace weft::cpu

#endif  // WEFT_OPS_KERNELS_CPU_BLOCKS_INDEX_TUPLES_H_
