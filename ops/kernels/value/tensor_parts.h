// Parts of host tensors of any dtype along an axis, and tensors put together of parts.
#ifndef WEFT_OPS_KERNELS_VALUE_TENSOR_PARTS_H_
#define WEFT_OPS_KERNELS_VALUE_TENSOR_PARTS_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "tensor/tensor.h"

namespace weft::cpu {

// Indices [begin, end) of `axis`. REQUIRES: 0 <= begin <= end <= the axis' size.
absl::StatusOr<Tensor> TakeRange(const Tensor& tensor, int axis, int64_t begin, int64_t end);
// Index `index` of `axis`, without that axis. REQUIRES: the index is in range.
absl::StatusOr<Tensor> TakeAt(const Tensor& tensor, int axis, int64_t index);
// The elements at these indices of `axis`, in their order. REQUIRES: they are in range.
absl::StatusOr<Tensor> TakeIndices(const Tensor& tensor, int axis,
                                   const std::vector<int64_t>& indices);
// One after the other along `axis` of the parts. InvalidArgument naming the first part whose dtype,
// rank or other sizes differ from the first's. REQUIRES: there is a part; the axis is one of its.
absl::StatusOr<Tensor> Join(const std::vector<Tensor>& parts, int axis);
// The same along a new axis `axis` of the result.
absl::StatusOr<Tensor> Stack(const std::vector<Tensor>& parts, int axis);
// The shape with `size` put in as dimension `axis`.
Shape WithAxis(const Shape& shape, int axis, int64_t size);
// A tensor of strings too.
absl::StatusOr<Tensor> EmptyTensor(DType dtype, const Shape& shape);

}  // namespace weft::cpu

#endif  // WEFT_OPS_KERNELS_VALUE_TENSOR_PARTS_H_
