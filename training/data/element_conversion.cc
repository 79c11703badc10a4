#include "training/data/element_conversion.h"

#include <cstddef>
#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>

namespace weft {
namespace {

template <typename T>
constexpr bool kIsSmallFloat = std::is_same_v<T, Float16> || std::is_same_v<T, Bfloat16>;

template <typename T>
T LoadElement(const void* values, int64_t i) {
  T value;
  std::memcpy(&value, static_cast<const std::byte*>(values) + i * static_cast<int64_t>(sizeof(T)),
              sizeof(T));
  return value;
}

template <typename To, typename From>
To ConvertOne(From value, bool scale) {
  if constexpr (kIsSmallFloat<From>) {
    return ConvertOne<To>(ToFloat(value), scale);
  } else if constexpr (std::is_same_v<To, Float16>) {
    return ToFloat16(ConvertOne<float>(value, scale));
  } else if constexpr (std::is_same_v<To, Bfloat16>) {
    return ToBfloat16(ConvertOne<float>(value, scale));
  } else {
    const To converted = static_cast<To>(value);
    if constexpr (std::is_floating_point_v<To>) return scale ? converted / To{255} : converted;
    return converted;
  }
}

template <typename From, typename To>
void Convert(const void* from, void* to, int64_t count, bool scale) {
  auto* const target = static_cast<std::byte*>(to);
  const auto convert = [&](bool scaled) {
    for (int64_t i = 0; i < count; ++i) {
      const To value = ConvertOne<To>(LoadElement<From>(from, i), scaled);
      std::memcpy(target + i * static_cast<int64_t>(sizeof(To)), &value, sizeof(To));
    }
  };
  // The loops are simple ones then, which the compiler makes vectors of.
  if (scale) {
    convert(true);
  } else {
    convert(false);
  }
}

template <typename From, typename To>
int64_t OutOfRange(const void* values, int64_t count) {
  if constexpr (std::is_integral_v<From> && std::is_integral_v<To> && !std::is_same_v<From, bool> &&
                !std::is_same_v<To, bool>) {
    for (int64_t i = 0; i < count; ++i) {
      if (!std::in_range<To>(LoadElement<From>(values, i))) return i;
    }
  }
  return -1;
}

template <typename From, typename To>
FindOutOfRange RangeCheck() {
  if constexpr (std::is_integral_v<From> && std::is_integral_v<To> && !std::is_same_v<From, bool> &&
                !std::is_same_v<To, bool>) {
    const bool all_fit = std::in_range<To>(std::numeric_limits<From>::lowest()) &&
                         std::in_range<To>(std::numeric_limits<From>::max());
    if (!all_fit) return OutOfRange<From, To>;
  }
  return nullptr;
}

}  // namespace

ConvertElements FindConversion(DType from, DType to) {
  if (!IsFloatingPoint(to) && IsFloatingPoint(from)) return nullptr;
  ConvertElements found = nullptr;
  DispatchDType(from, [&](auto source) {
    DispatchDType(to, [&](auto target) {
      using From = decltype(source);
      using To = decltype(target);
      constexpr bool kToNumber = std::is_integral_v<To> && !std::is_integral_v<From>;
      if constexpr (!kToNumber) found = Convert<From, To>;
    });
  });
  return found;
}

FindOutOfRange FindRangeCheck(DType from, DType to) {
  FindOutOfRange found = nullptr;
  DispatchDType(from, [&](auto source) {
    DispatchDType(to,
                  [&](auto target) { found = RangeCheck<decltype(source), decltype(target)>(); });
  });
  return found;
}

}  // namespace weft
