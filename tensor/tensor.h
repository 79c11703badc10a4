// Tensor: a typed, shaped, contiguous row-major view on a Buffer.
#ifndef WEFT_TENSOR_TENSOR_H_
#define WEFT_TENSOR_TENSOR_H_

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "tensor/buffer.h"
#include "tensor/dtype.h"
#include "tensor/shape.h"
#include "tensor/small_float.h"

namespace weft {

// A cheap value: copies share the buffer. Always contiguous; slices along the leading axis and
// reshapes are views. Not synchronized: whoever shares a buffer between threads orders the
// accesses. Tensors of strings hold their elements beside the byte buffer (`strings`). A broken
// REQUIRES ends the process with a message: it is a bug of the caller, who checks what comes from
// files and peers before it makes a tensor of it.
class Tensor {
 public:
  Tensor() = default;  // kInvalid dtype, no buffer
  // REQUIRES: offset + DTypeBytes(dtype, shape) <= buffer->size().
  Tensor(DType dtype, Shape shape, std::shared_ptr<Buffer> buffer, size_t offset = 0);

  // Uninitialised host memory, 64-byte aligned. ResourceExhausted when there is none,
  // InvalidArgument when the shape is not one Shape::Create accepts, its bytes overflow, or dtype
  // is string.
  static absl::StatusOr<Tensor> Allocate(DType dtype, Shape shape);
  // Host tensor holding a copy of `values`. REQUIRES: values.size() == shape.num_elements().
  template <typename T>
  static Tensor Of(Shape shape, std::span<const T> values) {
    return CopyOf(DTypeOf<T>::value, std::move(shape), values.data(), values.size());
  }
  template <typename T>
  static Tensor Of(Shape shape, const std::vector<T>& values) {
    return Of<T>(std::move(shape), std::span<const T>(values));
  }
  template <typename T>
  static Tensor Scalar(T value) {
    return Of<T>(Shape{}, std::span<const T>(&value, 1));
  }
  static Tensor OfStrings(Shape shape, std::vector<std::string> values);
  static absl::StatusOr<Tensor> Zeros(DType dtype, Shape shape);

  bool valid() const { return dtype_ != DType::kInvalid; }
  DType dtype() const { return dtype_; }
  const Shape& shape() const { return shape_; }
  int64_t num_elements() const { return shape_.num_elements(); }
  size_t bytes() const { return static_cast<size_t>(DTypeBytes(dtype_, num_elements())); }
  const std::shared_ptr<Buffer>& buffer() const { return buffer_; }
  size_t offset() const { return offset_; }
  bool is_on_host() const;

  // The first byte, in the address space of the buffer's device.
  void* raw_data() const;
  // REQUIRES: dtype() == DTypeOf<T>::value and is_on_host().
  template <typename T>
  std::span<const T> data() const {
    RequireDType(DTypeOf<T>::value);
    return {static_cast<const T*>(raw_data()), static_cast<size_t>(num_elements())};
  }
  template <typename T>
  std::span<T> mutable_data() {
    RequireDType(DTypeOf<T>::value);
    return {static_cast<T*>(raw_data()), static_cast<size_t>(num_elements())};
  }
  std::span<const std::string> strings() const;

  // Same elements, other shape. REQUIRES: equal element counts.
  Tensor Reshaped(Shape shape) const;
  // Rows [begin, end) of axis 0; a view. REQUIRES: rank >= 1, byte-sized elements.
  Tensor Rows(int64_t begin, int64_t end) const;
  // A copy of its own on the host, aligned. The source must be on the host.
  absl::StatusOr<Tensor> Clone() const;

  std::string ToString(int max_elements = 8) const;  // "float32[2,3]{1, 2, ...}"

 private:
  static Tensor CopyOf(DType dtype, Shape shape, const void* values, size_t count);
  void RequireDType(DType dtype) const {
    if (dtype_ != dtype) FailDType(dtype);
  }
  [[noreturn]] void FailDType(DType asked) const;

  DType dtype_ = DType::kInvalid;
  Shape shape_;
  std::shared_ptr<Buffer> buffer_;
  std::shared_ptr<const std::vector<std::string>> strings_;
  size_t offset_ = 0;
};

// Bitwise equality of dtype, shape and contents (strings by value; the padding bits after packed
// elements do not count). Host tensors only.
bool BitwiseEqual(const Tensor& a, const Tensor& b);

// Elements as double / int64 whatever the dtype (real, byte-sized or packed), converted as by
// CastTensor. InvalidArgument for strings, complex numbers and tensors that are not on the host.
absl::StatusOr<std::vector<double>> ToDoubles(const Tensor& tensor);
absl::StatusOr<std::vector<int64_t>> ToInt64s(const Tensor& tensor);

// A new host tensor with the elements converted to `dtype`, by the rules of ONNX's Cast:
//  - to a floating type: rounded once, to nearest even; too large becomes infinity, or what
//  `options`
//    says for 8- and 4-bit types;
//  - integer to integer: the low bits are kept;
//  - floating to integer (which ONNX leaves open when out of range): towards zero, NaN to 0; 32-
//  and
//    64-bit types saturate, narrower ones keep the low bits of the int32 result;
//  - to bool: anything but zero is true.
// InvalidArgument for strings and complex numbers.
absl::StatusOr<Tensor> CastTensor(const Tensor& tensor, DType dtype,
                                  const CastOptions& options = {});

}  // namespace weft

#endif  // WEFT_TENSOR_TENSOR_H_
