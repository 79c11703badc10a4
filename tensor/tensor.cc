#include "tensor/tensor.h"

#include <algorithm>
#include <complex>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "platform/status_macros.h"
#include "tensor/device.h"

namespace weft {
namespace {

// Ends the process over a broken REQUIRES.
[[noreturn]] void Fail(const std::string& message) {
  std::fprintf(stderr, "weft: broken invariant: %s\n", message.c_str());
  std::abort();
}

std::string NameOf(DType dtype) { return std::string(DTypeName(dtype)); }

absl::StatusOr<size_t> CheckedBytes(DType dtype, const Shape& shape) {
  if (DTypeBits(dtype) == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("a tensor of dtype ", NameOf(dtype), " has no elements of a fixed size"));
  }
  WEFT_RETURN_IF_ERROR(Shape::Create(shape.dims()).status());
  const int64_t bytes = DTypeBytes(dtype, shape.num_elements());
  if (bytes == std::numeric_limits<int64_t>::max()) {
    return absl::InvalidArgumentError(absl::StrCat("a tensor ", NameOf(dtype), shape.ToString(),
                                                   " takes more than 2^63-1 bytes"));
  }
  return static_cast<size_t>(bytes);
}

// The first `count` elements of a host tensor as text, separated by ", ".
std::string ElementsToString(const Tensor& tensor, int64_t count) {
  const DType dtype = tensor.dtype();
  std::string text;
  const auto append = [&text](const auto&... pieces) {
    absl::StrAppend(&text, text.empty() ? "" : ", ", pieces...);
  };
  if (dtype == DType::kString) {
    for (int64_t i = 0; i < count; ++i) append("\"", absl::CHexEscape(tensor.strings()[i]), "\"");
    return text;
  }
  const Tensor head(dtype, Shape{count}, tensor.buffer(), tensor.offset());
  if (dtype == DType::kComplex64 || dtype == DType::kComplex128) {
    const DType part = dtype == DType::kComplex64 ? DType::kFloat32 : DType::kFloat64;
    const Tensor parts(part, Shape{2 * count}, tensor.buffer(), tensor.offset());
    const std::vector<double> values = ToDoubles(parts).value();
    for (int64_t i = 0; i < count; ++i) append("(", values[2 * i], ", ", values[2 * i + 1], ")");
  } else if (IsFloatingPoint(dtype)) {
    const std::vector<double> values = ToDoubles(head).value();
    for (const double value : values) append(value);
  } else {
    const std::vector<int64_t> values = ToInt64s(head).value();
    for (const int64_t value : values) {
      if (dtype == DType::kUint64) {
        append(static_cast<uint64_t>(value));
      } else if (dtype == DType::kBool) {
        append(value != 0 ? "true" : "false");
      } else {
        append(value);
      }
    }
  }
  return text;
}

}  // namespace

Tensor::Tensor(DType dtype, Shape shape, std::shared_ptr<Buffer> buffer, size_t offset)
    : dtype_(dtype), shape_(std::move(shape)), buffer_(std::move(buffer)), offset_(offset) {
  if (buffer_ == nullptr || DTypeBits(dtype_) == 0) {
    Fail(absl::StrCat("a tensor of dtype ", NameOf(dtype_),
                      buffer_ == nullptr ? " without a buffer" : " cannot view a buffer"));
  }
  const size_t size = buffer_->size();
  if (offset_ > size || bytes() > size - offset_) {
    Fail(absl::StrCat("a tensor ", NameOf(dtype_), shape_.ToString(), " at offset ", offset_,
                      " does not fit into a buffer of ", size, " bytes"));
  }
}

absl::StatusOr<Tensor> Tensor::Allocate(DType dtype, Shape shape) {
  WEFT_ASSIGN_OR_RETURN(const size_t bytes, CheckedBytes(dtype, shape));
  WEFT_ASSIGN_OR_RETURN(std::shared_ptr<Buffer> buffer, CpuDevice().Allocate(bytes));
  return Tensor(dtype, std::move(shape), std::move(buffer));
}

Tensor Tensor::CopyOf(DType dtype, Shape shape, const void* values, size_t count) {
  if (static_cast<int64_t>(count) != shape.num_elements()) {
    Fail(absl::StrCat(count, " values for a tensor ", NameOf(dtype), shape.ToString()));
  }
  absl::StatusOr<Tensor> tensor = Allocate(dtype, std::move(shape));
  if (!tensor.ok()) Fail(tensor.status().ToString());
  if (count > 0) std::memcpy(tensor->raw_data(), values, tensor->bytes());
  return *std::move(tensor);
}

Tensor Tensor::OfStrings(Shape shape, std::vector<std::string> values) {
  if (static_cast<int64_t>(values.size()) != shape.num_elements()) {
    Fail(absl::StrCat(values.size(), " values for a tensor string", shape.ToString()));
  }
  Tensor tensor;
  tensor.dtype_ = DType::kString;
  tensor.shape_ = std::move(shape);
  tensor.strings_ = std::make_shared<const std::vector<std::string>>(std::move(values));
  return tensor;
}

absl::StatusOr<Tensor> Tensor::Zeros(DType dtype, Shape shape) {
  WEFT_ASSIGN_OR_RETURN(Tensor tensor, Allocate(dtype, std::move(shape)));
  std::memset(tensor.raw_data(), 0, tensor.bytes());
  return tensor;
}

bool Tensor::is_on_host() const {
  return buffer_ == nullptr || buffer_->device().info().host_accessible;
}

void* Tensor::raw_data() const {
  return buffer_ == nullptr ? nullptr : static_cast<char*>(buffer_->data()) + offset_;
}

std::span<const std::string> Tensor::strings() const {
  if (strings_ == nullptr) FailDType(DType::kString);
  return *strings_;
}

void Tensor::FailDType(DType asked) const {
  Fail(absl::StrCat("elements of a tensor ", NameOf(dtype_), shape_.ToString(), " read as ",
                    NameOf(asked)));
}

Tensor Tensor::Reshaped(Shape shape) const {
  if (shape.num_elements() != num_elements()) {
    Fail(absl::StrCat("a tensor of shape ", shape_.ToString(), " reshaped to ", shape.ToString()));
  }
  Tensor reshaped = *this;
  reshaped.shape_ = std::move(shape);
  return reshaped;
}

Tensor Tensor::Rows(int64_t begin, int64_t end) const {
  const int bits = DTypeBits(dtype_);
  if (shape_.rank() < 1 || bits == 0 || bits % 8 != 0 || begin < 0 || end < begin ||
      end > shape_.dim(0)) {
    Fail(absl::StrCat("rows ", begin, " to ", end, " of a tensor ", NameOf(dtype_),
                      shape_.ToString()));
  }
  Tensor rows = *this;
  rows.shape_.set_dim(0, end - begin);
  const int64_t row_elements = shape_.ProductOf(1, shape_.rank());
  rows.offset_ += static_cast<size_t>(DTypeBytes(dtype_, begin * row_elements));
  return rows;
}

absl::StatusOr<Tensor> Tensor::Clone() const {
  if (dtype_ == DType::kString) return *this;  // its elements never change
  if (!is_on_host() || !valid()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "cannot clone ", ToString(), ": only a tensor on the host can be; copy it there first"));
  }
  WEFT_ASSIGN_OR_RETURN(Tensor clone, Allocate(dtype_, shape_));
  if (bytes() > 0) std::memcpy(clone.raw_data(), raw_data(), bytes());
  return clone;
}

std::string Tensor::ToString(int max_elements) const {
  if (!valid()) return "invalid tensor";
  const std::string type = absl::StrCat(NameOf(dtype_), shape_.ToString());
  if (!is_on_host()) return absl::StrCat(type, " on ", buffer_->device().info().name);
  const int64_t shown = std::min<int64_t>(num_elements(), std::max(max_elements, 0));
  const char* const rest = shown == num_elements() ? "" : shown == 0 ? "..." : ", ...";
  return absl::StrCat(type, "{", ElementsToString(*this, shown), rest, "}");
}

bool BitwiseEqual(const Tensor& a, const Tensor& b) {
  if (a.dtype() != b.dtype() || !(a.shape() == b.shape())) return false;
  if (!a.valid()) return true;
  if (a.dtype() == DType::kString) return std::ranges::equal(a.strings(), b.strings());
  const auto* const left = static_cast<const uint8_t*>(a.raw_data());
  const auto* const right = static_cast<const uint8_t*>(b.raw_data());
  const size_t bytes = a.bytes();
  const int tail_bits = static_cast<int>(a.num_elements() % 8) * DTypeBits(a.dtype()) % 8;
  if (tail_bits == 0) return bytes == 0 || std::memcmp(left, right, bytes) == 0;
  const int tail_mask = (1 << tail_bits) - 1;
  return std::memcmp(left, right, bytes - 1) == 0 &&
         ((left[bytes - 1] ^ right[bytes - 1]) & tail_mask) == 0;
}

}  // namespace weft
