#include "ops/kernels/value/tensor_parts.h"

#include <cstring>
#include <numeric>
#include <string>

#include "absl/strings/str_cat.h"
#include "ops/element_codes.h"
#include "platform/status_macros.h"

namespace weft::cpu {
namespace {

bool IsPacked(DType dtype) { return DTypeBits(dtype) > 0 && DTypeBits(dtype) < 8; }

// Runs `fn` on byte-sized codes in place of packed elements.
template <typename Fn>
absl::StatusOr<Tensor> OnCodes(DType dtype, const std::vector<Tensor>& tensors, Fn fn) {
  const ElementCodes codes(dtype, tensors);
  std::vector<Tensor> coded;
  for (const Tensor& tensor : tensors) {
    WEFT_ASSIGN_OR_RETURN(coded.emplace_back(), codes.Encode(tensor));
  }
  WEFT_ASSIGN_OR_RETURN(const Tensor result, fn(coded));
  return codes.Decode(result);
}

// A tensor of `shape` filled by runs of `run` elements: run i of it comes from source(i), a tensor
// and the index of its first element.
struct Run {
  const Tensor* tensor;
  int64_t first;
};
template <typename Source>
absl::StatusOr<Tensor> Gather(DType dtype, const Shape& shape, int64_t run, const Source& source) {
  WEFT_RETURN_IF_ERROR(Shape::Create(shape.dims()).status());
  const int64_t elements = shape.num_elements();
  const int64_t runs = run == 0 ? 0 : elements / run;
  if (dtype == DType::kString) {
    std::vector<std::string> strings;
    strings.reserve(static_cast<size_t>(elements));
    for (int64_t i = 0; i < runs; ++i) {
      const Run from = source(i);
      const auto all = from.tensor->strings();
      const auto part = all.subspan(static_cast<size_t>(from.first), static_cast<size_t>(run));
      strings.insert(strings.end(), part.begin(), part.end());
    }
    return Tensor::OfStrings(shape, std::move(strings));
  }
  WEFT_ASSIGN_OR_RETURN(Tensor result, Tensor::Allocate(dtype, shape));
  const auto size = static_cast<size_t>(DTypeBits(dtype) / 8);
  char* to = static_cast<char*>(result.raw_data());
  for (int64_t i = 0; i < runs; ++i) {
    const Run from = source(i);
    const char* data = static_cast<const char*>(from.tensor->raw_data());
    std::memcpy(to, data + static_cast<size_t>(from.first) * size, static_cast<size_t>(run) * size);
    to += static_cast<size_t>(run) * size;
  }
  return result;
}

absl::Status CheckParts(const std::vector<Tensor>& parts, int axis) {
  const Tensor& first = parts.front();
  for (size_t i = 1; i < parts.size(); ++i) {
    Shape shape = parts[i].shape();
    bool fits = shape.rank() == first.shape().rank() && parts[i].dtype() == first.dtype();
    if (fits) {
      shape.set_dim(axis, first.shape().dim(axis));
      fits = shape == first.shape();
    }
    if (fits) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "part ", i, " is ", std::string(DTypeName(parts[i].dtype())), parts[i].shape().ToString(),
        ", which does not fit along axis ", axis, " to the first, ",
        std::string(DTypeName(first.dtype())), first.shape().ToString()));
  }
  return absl::OkStatus();
}

}  // namespace

Shape WithAxis(const Shape& shape, int axis, int64_t size) {
  Shape result;
  for (int i = 0; i < shape.rank(); ++i) {
    if (i == axis) result.AddDim(size);
    result.AddDim(shape.dim(i));
  }
  if (axis == shape.rank()) result.AddDim(size);
  return result;
}

absl::StatusOr<Tensor> EmptyTensor(DType dtype, const Shape& shape) {
  if (dtype != DType::kString) return Tensor::Zeros(dtype, shape);
  WEFT_RETURN_IF_ERROR(Shape::Create(shape.dims()).status());
  return Tensor::OfStrings(shape,
                           std::vector<std::string>(static_cast<size_t>(shape.num_elements())));
}

absl::StatusOr<Tensor> TakeRange(const Tensor& tensor, int axis, int64_t begin, int64_t end) {
  std::vector<int64_t> indices(static_cast<size_t>(end - begin));
  std::iota(indices.begin(), indices.end(), begin);
  return TakeIndices(tensor, axis, indices);
}

absl::StatusOr<Tensor> TakeAt(const Tensor& tensor, int axis, int64_t index) {
  WEFT_ASSIGN_OR_RETURN(const Tensor part, TakeIndices(tensor, axis, {index}));
  Shape shape;
  for (int i = 0; i < part.shape().rank(); ++i) {
    if (i != axis) shape.AddDim(part.shape().dim(i));
  }
  return part.Reshaped(shape);
}

absl::StatusOr<Tensor> TakeIndices(const Tensor& tensor, int axis,
                                   const std::vector<int64_t>& indices) {
  if (IsPacked(tensor.dtype())) {
    return OnCodes(tensor.dtype(), {tensor}, [&](const std::vector<Tensor>& coded) {
      return TakeIndices(coded[0], axis, indices);
    });
  }
  const Shape& whole = tensor.shape();
  Shape shape = whole;
  const auto count = static_cast<int64_t>(indices.size());
  shape.set_dim(axis, count);
  const int64_t inner = whole.ProductOf(axis + 1, whole.rank());
  return Gather(tensor.dtype(), shape, inner, [&](int64_t i) {
    const int64_t outer = i / count;
    return Run{&tensor,
               (outer * whole.dim(axis) + indices[static_cast<size_t>(i % count)]) * inner};
  });
}

absl::StatusOr<Tensor> Join(const std::vector<Tensor>& parts, int axis) {
  WEFT_RETURN_IF_ERROR(CheckParts(parts, axis));
  const DType dtype = parts.front().dtype();
  if (IsPacked(dtype)) {
    return OnCodes(dtype, parts,
                   [&](const std::vector<Tensor>& coded) { return Join(coded, axis); });
  }
  Shape shape = parts.front().shape();
  int64_t size = 0;
  std::vector<Run> slots;  // by index of the joined axis
  const int64_t inner = shape.ProductOf(axis + 1, shape.rank());
  for (const Tensor& part : parts) {
    for (int64_t i = 0; i < part.shape().dim(axis); ++i) slots.push_back({&part, i});
    size += part.shape().dim(axis);
  }
  shape.set_dim(axis, size);
  return Gather(dtype, shape, inner, [&](int64_t i) {
    const Run& slot = slots[static_cast<size_t>(i % size)];
    return Run{slot.tensor, ((i / size) * slot.tensor->shape().dim(axis) + slot.first) * inner};
  });
}

absl::StatusOr<Tensor> Stack(const std::vector<Tensor>& parts, int axis) {
  std::vector<Tensor> raised;
  for (const Tensor& part : parts) raised.push_back(part.Reshaped(WithAxis(part.shape(), axis, 1)));
  return Join(raised, axis);
}

}  // namespace weft::cpu
