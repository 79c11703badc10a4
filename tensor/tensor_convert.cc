// Conversions between element types: ToDoubles, ToInt64s and CastTensor of tensor.h.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "absl/strings/str_cat.h"
#include "platform/status_macros.h"
#include "tensor/packed.h"
#include "tensor/tensor.h"

namespace weft {
namespace {

// Elements staged at a time; a multiple of 8, so that packed elements start at a byte.
constexpr int64_t kChunk = 4096;

// Towards zero, NaN to 0, saturating.
template <typename Integer, typename Float>
Integer Truncate(Float value) {
  using Limits = std::numeric_limits<Integer>;
  // 2^digits and the minimum are exact in every floating type; the maximum may not be.
  constexpr Float kBeyond = static_cast<Float>(uint64_t{1} << (Limits::digits - 1)) * 2;
  constexpr Float kLowest = static_cast<Float>(Limits::min());
  if (value >= kBeyond) return Limits::max();
  if (value <= kLowest) return Limits::min();
  return value == value ? static_cast<Integer>(value) : Integer{0};
}

// The nearest double for up to 53 significant bits; beyond, rounded to odd: rounding that again to
// fewer bits is the same as rounding the integer once.
template <typename Integer>
double ToDoubleForRounding(Integer value) {
  if constexpr (sizeof(Integer) < 8) {
    return static_cast<double>(value);
  } else {
    const bool negative = value < 0;
    uint64_t magnitude = static_cast<uint64_t>(value);
    if (negative) magnitude = 0 - magnitude;
    if (magnitude >> 53 != 0) {
      const uint64_t sticky = (magnitude & 0x7FF) != 0 ? 0x800 : 0;
      magnitude = (magnitude & ~uint64_t{0x7FF}) | sticky;
    }
    const double absolute = static_cast<double>(magnitude);
    return negative ? -absolute : absolute;
  }
}

template <typename Half, typename From>
Half ToHalf(From value) {
  constexpr bool kIsFloat16 = std::is_same_v<Half, Float16>;
  if constexpr (std::is_same_v<From, float>) {
    if constexpr (kIsFloat16) return ToFloat16(value);
    if constexpr (!kIsFloat16) return ToBfloat16(value);
  } else {
    double wide;
    if constexpr (std::is_integral_v<From>) {
      wide = ToDoubleForRounding(value);
    } else {
      wide = value;
    }
    return Half{static_cast<uint16_t>(EncodeSmallFloat(DTypeOf<Half>::value, wide))};
  }
}

template <typename To, typename From>
To Convert(From value) {
  if constexpr (std::is_same_v<To, From>) {
    return value;
  } else if constexpr (std::is_same_v<From, Float16> || std::is_same_v<From, Bfloat16>) {
    return Convert<To>(ToFloat(value));
  } else if constexpr (std::is_same_v<To, Float16> || std::is_same_v<To, Bfloat16>) {
    return ToHalf<To>(value);
  } else if constexpr (std::is_same_v<To, bool>) {
    return value != 0;
  } else if constexpr (std::is_floating_point_v<From> && std::is_integral_v<To>) {
    if constexpr (sizeof(To) >= 4) return Truncate<To>(value);
    if constexpr (sizeof(To) < 4) return static_cast<To>(Truncate<int32_t>(value));
  } else {
    return static_cast<To>(value);
  }
}

// Reads through memcpy: adopted memory need not be aligned, and a bool from a file need not be 0
// or 1.
template <typename T>
T LoadElement(const uint8_t* bytes, int64_t index) {
  if constexpr (std::is_same_v<T, bool>) {
    return bytes[index] != 0;
  } else {
    T value;
    std::memcpy(&value, bytes + index * static_cast<int64_t>(sizeof(T)), sizeof(T));
    return value;
  }
}

// What each code of a dtype of at most 8 bits stands for.
std::array<float, 256> CodeTable(DType dtype) {
  std::array<float, 256> table{};
  const int bits = DTypeBits(dtype);
  const int codes = 1 << bits;
  const bool is_signed = dtype == DType::kInt4 || dtype == DType::kInt2;
  for (int code = 0; code < codes; ++code) {
    if (IsSmallFloat(dtype)) {
      table[code] = static_cast<float>(DecodeSmallFloat(dtype, static_cast<uint32_t>(code)));
    } else {
      table[code] = static_cast<float>(is_signed && code >= codes / 2 ? code - codes : code);
    }
  }
  return table;
}

// Converts the elements [begin, begin + count) of a host tensor. REQUIRES: IsReal(tensor.dtype()).
template <typename To>
void ReadElements(const Tensor& tensor, int64_t begin, int64_t count, To* out) {
  const auto* const bytes = static_cast<const uint8_t*>(tensor.raw_data());
  const bool done = DispatchDType(tensor.dtype(), [&](auto zero) {
    using From = decltype(zero);
    for (int64_t i = 0; i < count; ++i) {
      out[i] = Convert<To>(LoadElement<From>(bytes, begin + i));
    }
  });
  if (done) return;
  const int bits = DTypeBits(tensor.dtype());
  const std::array<float, 256> table = CodeTable(tensor.dtype());
  for (int64_t i = 0; i < count; ++i) {
    out[i] = Convert<To>(table[PackedElement(bytes, bits, begin + i)]);
  }
}

// A dtype of at most 8 bits that no C++ type stands for: packed integers and floats of 8 bits and
// less.
bool IsCoded(DType dtype) {
  switch (dtype) {
    case DType::kInt4:
    case DType::kUint4:
    case DType::kInt2:
    case DType::kUint2:
      return true;
    default:
      return IsSmallFloat(dtype) && DTypeBits(dtype) <= 8;
  }
}

bool IsReal(DType dtype) {
  return IsCoded(dtype) || DispatchDType(dtype, [](auto) {});
}

absl::Status CheckReadable(const Tensor& tensor) {
  if (!IsReal(tensor.dtype())) {
    return absl::InvalidArgumentError(
        absl::StrCat("the elements of ", tensor.ToString(), " are not real numbers"));
  }
  if (!tensor.is_on_host()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the elements of ", tensor.ToString(),
                     " cannot be read from the host; copy the tensor to the host first"));
  }
  return absl::OkStatus();
}

void WriteCodes(std::span<const uint32_t> codes, int bits, uint8_t* out) {
  uint32_t pending = 0;  // bits that do not fill a byte yet
  int count = 0;
  for (const uint32_t code : codes) {
    pending |= code << count;
    count += bits;
    if (count < 8) continue;
    *out++ = static_cast<uint8_t>(pending);
    pending >>= 8;
    count -= 8;
  }
  if (count > 0) *out = static_cast<uint8_t>(pending);
}

void CastToCodes(const Tensor& tensor, const CastOptions& options, Tensor& result) {
  const DType dtype = result.dtype();
  const int bits = DTypeBits(dtype);
  const uint32_t mask = (1u << bits) - 1;
  const int64_t elements = tensor.num_elements();
  auto* const out = static_cast<uint8_t*>(result.raw_data());
  std::vector<uint32_t> codes;
  std::vector<double> values;
  for (int64_t begin = 0; begin < elements; begin += kChunk) {
    const int64_t count = std::min(kChunk, elements - begin);
    codes.resize(static_cast<size_t>(count));
    if (IsSmallFloat(dtype)) {
      values.resize(codes.size());
      ReadElements(tensor, begin, count, values.data());
      std::transform(values.begin(), values.end(), codes.begin(),
                     [&](double value) { return EncodeSmallFloat(dtype, value, options); });
    } else {
      // The low bits of the int8 result are those of the narrower one.
      std::array<uint8_t, kChunk> bytes;
      ReadElements(tensor, begin, count, bytes.data());
      std::transform(bytes.begin(), bytes.begin() + count, codes.begin(),
                     [mask](uint8_t byte) { return byte & mask; });
    }
    WriteCodes(codes, bits, out + DTypeBytes(dtype, begin));
  }
}

template <typename To>
absl::StatusOr<std::vector<To>> ToVector(const Tensor& tensor) {
  WEFT_RETURN_IF_ERROR(CheckReadable(tensor));
  std::vector<To> values(static_cast<size_t>(tensor.num_elements()));
  ReadElements(tensor, 0, tensor.num_elements(), values.data());
  return values;
}

}  // namespace

absl::StatusOr<std::vector<double>> ToDoubles(const Tensor& tensor) {
  return ToVector<double>(tensor);
}

absl::StatusOr<std::vector<int64_t>> ToInt64s(const Tensor& tensor) {
  return ToVector<int64_t>(tensor);
}

absl::StatusOr<Tensor> CastTensor(const Tensor& tensor, DType dtype, const CastOptions& options) {
  WEFT_RETURN_IF_ERROR(CheckReadable(tensor));
  if (!IsReal(dtype)) {
    return absl::InvalidArgumentError(absl::StrCat("cannot cast ", tensor.ToString(), " to ",
                                                   std::string(DTypeName(dtype)),
                                                   ": it is not a type of real numbers"));
  }
  if (dtype == tensor.dtype()) return tensor.Clone();
  WEFT_ASSIGN_OR_RETURN(Tensor result, Tensor::Allocate(dtype, tensor.shape()));
  if (IsCoded(dtype)) {
    CastToCodes(tensor, options, result);
    return result;
  }
  DispatchDType(dtype, [&](auto zero) {
    using To = decltype(zero);
    ReadElements(tensor, 0, tensor.num_elements(), static_cast<To*>(result.raw_data()));
  });
  return result;
}

}  // namespace weft
