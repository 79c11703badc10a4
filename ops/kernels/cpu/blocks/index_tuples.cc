#include "ops/kernels/cpu/blocks/index_tuples.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace weft::cpu {

IndexTuples::IndexTuples(const Shape& data, const Shape& indices, int batch_dims)
    : batch_dims_(batch_dims) {
  const int depth = static_cast<int>(indices.dim(indices.rank() - 1));
  const auto strides = data.Strides();
  for (int k = 0; k < depth; ++k) {
    sizes_.push_back(data.dim(batch_dims + k));
    strides_.push_back(strides[batch_dims + k]);
  }
  count_ = indices.ProductOf(0, indices.rank() - 1);
  per_batch_ = std::max<int64_t>(indices.ProductOf(batch_dims, indices.rank() - 1), 1);
  batch_stride_ = data.ProductOf(batch_dims, data.rank());
  row_ = data.ProductOf(batch_dims + depth, data.rank());
}

absl::Status IndexTuples::OutOfRange(int64_t index, int64_t tuple, int component) const {
  return absl::InvalidArgumentError(
      absl::StrCat("index ", index, " (component ", component, " of tuple ", tuple,
                   " of the indices) is outside [", -sizes_[component], ", ", sizes_[component],
                   ") of axis ", batch_dims_ + component, " of the data"));
}

}  // namespace weft::cpu
