#include "ops/element_codes.h"

#include <algorithm>
#include <cstring>
#include <span>

#include "absl/strings/str_cat.h"
#include "platform/status_macros.h"
#include "tensor/packed.h"

namespace weft {
namespace {

bool IsNumbered(DType dtype) {
  return dtype == DType::kString || dtype == DType::kComplex64 || dtype == DType::kComplex128;
}

bool IsPacked(DType dtype) { return DTypeBits(dtype) > 0 && DTypeBits(dtype) < 8; }

// The elements as strings: themselves, or the bytes of numbers.
std::vector<std::string> ElementsOf(const Tensor& tensor) {
  if (tensor.dtype() == DType::kString) return {tensor.strings().begin(), tensor.strings().end()};
  const size_t size = static_cast<size_t>(DTypeBits(tensor.dtype()) / 8);
  const char* bytes = static_cast<const char*>(tensor.raw_data());
  std::vector<std::string> elements;
  elements.reserve(static_cast<size_t>(tensor.num_elements()));
  for (int64_t i = 0; i < tensor.num_elements(); ++i) elements.emplace_back(bytes + i * size, size);
  return elements;
}

absl::StatusOr<Tensor> Unpack(const Tensor& tensor) {
  const int bits = DTypeBits(tensor.dtype());
  WEFT_ASSIGN_OR_RETURN(Tensor codes, Tensor::Allocate(DType::kUint8, tensor.shape()));
  const std::span<uint8_t> unpacked = codes.mutable_data<uint8_t>();
  for (size_t i = 0; i < unpacked.size(); ++i) {
    unpacked[i] =
        static_cast<uint8_t>(PackedElement(tensor.raw_data(), bits, static_cast<int64_t>(i)));
  }
  return codes;
}

absl::StatusOr<Tensor> Pack(const Tensor& codes, DType dtype) {
  const int bits = DTypeBits(dtype);
  WEFT_ASSIGN_OR_RETURN(Tensor tensor, Tensor::Zeros(dtype, codes.shape()));
  const std::span<const uint8_t> unpacked = codes.data<uint8_t>();
  for (size_t i = 0; i < unpacked.size(); ++i) {
    SetPackedElement(tensor.raw_data(), bits, static_cast<int64_t>(i), unpacked[i]);
  }
  return tensor;
}

}  // namespace

DType ElementCodes::CodeType(DType dtype) {
  if (IsNumbered(dtype)) return DType::kInt64;
  if (DTypeBits(dtype) == 0) return DType::kInvalid;
  if (DTypeBits(dtype) <= 8) return DType::kUint8;
  if (DTypeBits(dtype) == 16) return DType::kUint16;
  return DType::kInvalid;
}

ElementCodes::ElementCodes(DType dtype, const std::vector<Tensor>& tensors) : dtype_(dtype) {
  if (!IsNumbered(dtype)) return;
  elements_.emplace_back(dtype == DType::kString ? 0 : DTypeBits(dtype) / 8, '\0');
  for (const Tensor& tensor : tensors) {
    std::vector<std::string> more = ElementsOf(tensor);
    std::move(more.begin(), more.end(), std::back_inserter(elements_));
  }
  std::sort(elements_.begin(), elements_.end());
  elements_.erase(std::unique(elements_.begin(), elements_.end()), elements_.end());
}

absl::StatusOr<Tensor> ElementCodes::Encode(const Tensor& tensor) const {
  if (IsPacked(dtype_)) return Unpack(tensor);
  if (!IsNumbered(dtype_)) {
    return Tensor(CodeType(dtype_), tensor.shape(), tensor.buffer(), tensor.offset());
  }
  WEFT_ASSIGN_OR_RETURN(Tensor codes, Tensor::Allocate(DType::kInt64, tensor.shape()));
  const std::span<int64_t> into = codes.mutable_data<int64_t>();
  size_t i = 0;
  for (const std::string& element : ElementsOf(tensor)) {
    into[i++] = std::lower_bound(elements_.begin(), elements_.end(), element) - elements_.begin();
  }
  return codes;
}

absl::StatusOr<Tensor> ElementCodes::Decode(const Tensor& codes) const {
  if (IsPacked(dtype_)) return Pack(codes, dtype_);
  if (!IsNumbered(dtype_)) return Tensor(dtype_, codes.shape(), codes.buffer(), codes.offset());
  std::vector<std::string> elements;
  elements.reserve(static_cast<size_t>(codes.num_elements()));
  for (const int64_t code : codes.data<int64_t>()) {
    if (code < 0 || code >= static_cast<int64_t>(elements_.size())) {
      return absl::InternalError(absl::StrCat("code ", code, " stands for no element"));
    }
    elements.push_back(elements_[static_cast<size_t>(code)]);
  }
  if (dtype_ == DType::kString) return Tensor::OfStrings(codes.shape(), std::move(elements));
  WEFT_ASSIGN_OR_RETURN(Tensor tensor, Tensor::Allocate(dtype_, codes.shape()));
  char* bytes = static_cast<char*>(tensor.raw_data());
  for (const std::string& element : elements) {
    std::memcpy(bytes, element.data(), element.size());
    bytes += element.size();
  }
  return tensor;
}

}  // namespace weft
