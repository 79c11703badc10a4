#include "tensor/dtype.h"

#include <cstring>
#include <iterator>
#include <limits>

namespace weft {
namespace {

struct Row {
  std::string_view name;
  int bits;
};

// Indexed by the ONNX number.
constexpr Row kRows[] = {
    {"invalid", 0},        {"float32", 32},     {"uint8", 8},          {"int8", 8},
    {"uint16", 16},        {"int16", 16},       {"int32", 32},         {"int64", 64},
    {"string", 0},         {"bool", 8},         {"float16", 16},       {"float64", 64},
    {"uint32", 32},        {"uint64", 64},      {"complex64", 64},     {"complex128", 128},
    {"bfloat16", 16},      {"float8e4m3fn", 8}, {"float8e4m3fnuz", 8}, {"float8e5m2", 8},
    {"float8e5m2fnuz", 8}, {"uint4", 4},        {"int4", 4},           {"float4e2m1", 4},
    {"float8e8m0", 8},     {"uint2", 2},        {"int2", 2},           {"float6e2m3", 6},
    {"float6e3m2", 6},
};
static_assert(std::size(kRows) == kDTypeCount);

uint32_t BitsOf(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}

float FloatOf(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

// `value` without its low `count` bits (1..31), rounded to nearest even.
uint32_t ShiftRoundToEven(uint32_t value, int count) {
  const uint32_t odd = (value >> count) & 1;
  const uint32_t half_less_one = (1u << (count - 1)) - 1;
  return (value + half_less_one + odd) >> count;
}

}  // namespace

int DTypeBits(DType dtype) {
  const int index = static_cast<int>(dtype);
  return index < kDTypeCount ? kRows[index].bits : 0;
}

int64_t DTypeBytes(DType dtype, int64_t elements) {
  const int bits = DTypeBits(dtype);
  if (bits < 8) {
    return elements / 8 * bits + (elements % 8 * bits + 7) / 8;
  }
  int64_t bytes = 0;
  if (__builtin_mul_overflow(elements, int64_t{bits / 8}, &bytes)) {
    return std::numeric_limits<int64_t>::max();
  }
  return bytes;
}

std::string_view DTypeName(DType dtype) {
  const int index = static_cast<int>(dtype);
  return kRows[index < kDTypeCount ? index : 0].name;
}

std::optional<DType> ParseDType(std::string_view name) {
  for (int index = 1; index < kDTypeCount; ++index) {
    if (kRows[index].name == name) return static_cast<DType>(index);
  }
  return std::nullopt;
}

bool IsValidDType(int onnx_number) { return onnx_number >= 1 && onnx_number < kDTypeCount; }

bool IsFloatingPoint(DType dtype) {
  switch (dtype) {
    case DType::kFloat32:
    case DType::kFloat64:
    case DType::kFloat16:
    case DType::kBfloat16:
    case DType::kFloat8E4M3Fn:
    case DType::kFloat8E4M3Fnuz:
    case DType::kFloat8E5M2:
    case DType::kFloat8E5M2Fnuz:
    case DType::kFloat8E8M0:
    case DType::kFloat4E2M1:
    case DType::kFloat6E2M3:
    case DType::kFloat6E3M2:
      return true;
    default:
      return false;
  }
}

bool IsInteger(DType dtype) {
  switch (dtype) {
    case DType::kInt8:
    case DType::kInt16:
    case DType::kInt32:
    case DType::kInt64:
    case DType::kUint8:
    case DType::kUint16:
    case DType::kUint32:
    case DType::kUint64:
    case DType::kInt4:
    case DType::kUint4:
    case DType::kInt2:
    case DType::kUint2:
      return true;
    default:
      return false;
  }
}

float ToFloat(Float16 value) {
  const uint32_t sign = (value.bits & 0x8000u) << 16;
  const uint32_t magnitude = value.bits & 0x7FFFu;
  if (magnitude >= 0x7C00u) {  // infinity or NaN, payload kept
    return FloatOf(sign | 0x7F800000u | ((magnitude & 0x3FFu) << 13));
  }
  if (magnitude < 0x0400u) {  // zero or subnormal: a multiple of 2^-24, exact in float
    const float absolute = static_cast<float>(magnitude) * 0x1p-24f;
    return FloatOf(sign | BitsOf(absolute));
  }
  constexpr uint32_t kRebias = (127 - 15) << 23;
  return FloatOf(sign | ((magnitude << 13) + kRebias));
}

float ToFloat(Bfloat16 value) { return FloatOf(static_cast<uint32_t>(value.bits) << 16); }

Float16 ToFloat16(float value) {
  const uint32_t bits = BitsOf(value);
  const uint32_t sign = (bits >> 16) & 0x8000u;
  const uint32_t magnitude = bits & 0x7FFFFFFFu;
  uint32_t result = 0;
  if (magnitude > 0x7F800000u) {  // NaN: the top of its payload, made quiet
    result = 0x7E00u | ((magnitude >> 13) & 0x3FFu);
  } else if (magnitude >= 0x477FF000u) {  // 65520 and more round to infinity
    result = 0x7C00u;
  } else if (magnitude < 0x38800000u) {  // below 2^-14: a multiple of 2^-24, subnormal
    const int exponent = static_cast<int>(magnitude >> 23);
    const int shift = 126 - exponent;  // 14 for the largest subnormals
    const uint32_t mantissa = (magnitude & 0x7FFFFFu) | 0x800000u;
    result = shift > 25 ? 0 : ShiftRoundToEven(mantissa, shift);
  } else {
    constexpr uint32_t kRebias = (127 - 15) << 23;
    result = ShiftRoundToEven(magnitude - kRebias, 13);
  }
  return Float16{static_cast<uint16_t>(sign | result)};
}

Bfloat16 ToBfloat16(float value) {
  const uint32_t bits = BitsOf(value);
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u) {  // NaN: made quiet, so that rounding cannot end it
    return Bfloat16{static_cast<uint16_t>((bits >> 16) | 0x0040u)};
  }
  return Bfloat16{static_cast<uint16_t>(ShiftRoundToEven(bits, 16))};
}

}  // namespace weft
