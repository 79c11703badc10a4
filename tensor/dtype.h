// Element types of tensors: exactly ONNX's, with ONNX's numbers (TensorProto.DataType), so that no
// table translates between the two.
#ifndef WEFT_TENSOR_DTYPE_H_
#define WEFT_TENSOR_DTYPE_H_

#include <cstdint>
#include <optional>
#include <string_view>

namespace weft {

// The type of an element.
enum class DType : uint8_t {
  kInvalid = 0,
  kFloat32 = 1,
  kUint8 = 2,
  kInt8 = 3,
  kUint16 = 4,
  kInt16 = 5,
  kInt32 = 6,
  kInt64 = 7,
  kString = 8,
  kBool = 9,
  kFloat16 = 10,
  kFloat64 = 11,
  kUint32 = 12,
  kUint64 = 13,
  kComplex64 = 14,
  kComplex128 = 15,
  kBfloat16 = 16,
  kFloat8E4M3Fn = 17,
  kFloat8E4M3Fnuz = 18,
  kFloat8E5M2 = 19,
  kFloat8E5M2Fnuz = 20,
  kUint4 = 21,
  kInt4 = 22,
  kFloat4E2M1 = 23,
  kFloat8E8M0 = 24,
  kUint2 = 25,
  kInt2 = 26,
  kFloat6E2M3 = 27,
  kFloat6E3M2 = 28,
};

inline constexpr int kDTypeCount = 29;

// Bits one element takes in memory; sub-byte elements are packed, low bits first, as in ONNX
// (packed.h).
// 0 for kInvalid and kString (strings live outside the byte buffer).
int DTypeBits(DType dtype);

// Bytes that `elements` packed elements take (rounded up to whole bytes). `elements` >= 0.
int64_t DTypeBytes(DType dtype, int64_t elements);

// "float32", "int4", ... stable, used in messages and files.
std::string_view DTypeName(DType dtype);
std::optional<DType> ParseDType(std::string_view name);

// True for the numbers ONNX defines (1..28).
bool IsValidDType(int onnx_number);

// Any floating type, also 16-, 8-, 6- and 4-bit ones.
bool IsFloatingPoint(DType dtype);
// Any signed or unsigned integer, not bool.
bool IsInteger(DType dtype);

// The C++ type that stores one element of a byte-sized-or-larger dtype; Float16 and Bfloat16 are
// storage types with conversions to and from float.
struct Float16 {
  uint16_t bits;
};
// A bfloat16 as its bits; small_float.h converts it.
struct Bfloat16 {
  uint16_t bits;
};
float ToFloat(Float16 value);
float ToFloat(Bfloat16 value);
Float16 ToFloat16(float value);    // round to nearest even
Bfloat16 ToBfloat16(float value);  // round to nearest even

template <typename T>
struct DTypeOf;
template <>
struct DTypeOf<float> {
  static constexpr DType value = DType::kFloat32;
};
template <>
struct DTypeOf<double> {
  static constexpr DType value = DType::kFloat64;
};
template <>
struct DTypeOf<int8_t> {
  static constexpr DType value = DType::kInt8;
};
template <>
struct DTypeOf<int16_t> {
  static constexpr DType value = DType::kInt16;
};
template <>
struct DTypeOf<int32_t> {
  static constexpr DType value = DType::kInt32;
};
template <>
struct DTypeOf<int64_t> {
  static constexpr DType value = DType::kInt64;
};
template <>
struct DTypeOf<uint8_t> {
  static constexpr DType value = DType::kUint8;
};
template <>
struct DTypeOf<uint16_t> {
  static constexpr DType value = DType::kUint16;
};
template <>
struct DTypeOf<uint32_t> {
  static constexpr DType value = DType::kUint32;
};
template <>
struct DTypeOf<uint64_t> {
  static constexpr DType value = DType::kUint64;
};
template <>
struct DTypeOf<bool> {
  static constexpr DType value = DType::kBool;
};
template <>
struct DTypeOf<Float16> {
  static constexpr DType value = DType::kFloat16;
};
template <>
struct DTypeOf<Bfloat16> {
  static constexpr DType value = DType::kBfloat16;
};

// Calls `fn(T{})` with a zero of the C++ type of `dtype`, for the byte-sized-or-larger real types
// (all of DTypeOf). Returns false, without a call, for any other dtype.
template <typename Fn>
bool DispatchDType(DType dtype, Fn&& fn) {
  switch (dtype) {
    case DType::kFloat32:
      return fn(float{}), true;
    case DType::kFloat64:
      return fn(double{}), true;
    case DType::kInt8:
      return fn(int8_t{}), true;
    case DType::kInt16:
      return fn(int16_t{}), true;
    case DType::kInt32:
      return fn(int32_t{}), true;
    case DType::kInt64:
      return fn(int64_t{}), true;
    case DType::kUint8:
      return fn(uint8_t{}), true;
    case DType::kUint16:
      return fn(uint16_t{}), true;
    case DType::kUint32:
      return fn(uint32_t{}), true;
    case DType::kUint64:
      return fn(uint64_t{}), true;
    case DType::kBool:
      return fn(bool{}), true;
    case DType::kFloat16:
      return fn(Float16{}), true;
    case DType::kBfloat16:
      return fn(Bfloat16{}), true;
    default:
      return false;
  }
}

}  // namespace weft

#endif  // WEFT_TENSOR_DTYPE_H_
