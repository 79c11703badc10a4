#include "ops/kernels/cuda/fusion/standard_headers.h"

namespace weft::cuda {
namespace {

// One text for all names: what is not used costs nothing.
constexpr char kStandardLibrary[] = R"text(
#ifndef WEFT_STANDARD_LIBRARY
#define WEFT_STANDARD_LIBRARY

#define WEFT_BOTH __host__ __device__ __forceinline__

typedef signed char int8_t;
typedef short int16_t;
typedef int int32_t;
typedef long int64_t;
typedef unsigned char uint8_t;
typedef unsigned short uint16_t;
typedef unsigned int uint32_t;
typedef unsigned long uint64_t;
typedef unsigned long uintptr_t;

namespace std {

using ::int8_t;
using ::int16_t;
using ::int32_t;
using ::int64_t;
using ::uint8_t;
using ::uint16_t;
using ::uint32_t;
using ::uint64_t;
using ::uintptr_t;
using ::size_t;
class string_view;
template <typename T>
class optional;

// ---- Types.

template <bool kValue>
struct bool_constant {
  static constexpr bool value = kValue;
};
template <typename A, typename B>
inline constexpr bool is_same_v = false;
template <typename A>
inline constexpr bool is_same_v<A, A> = true;
template <typename T>
struct remove_cv {
  using type = T;
};
template <typename T>
struct remove_cv<const T> {
  using type = T;
};
template <typename T>
struct remove_cv<volatile T> {
  using type = T;
};
template <typename T>
using remove_cv_t = typename remove_cv<T>::type;
template <bool kFirst, typename A, typename B>
struct conditional {
  using type = A;
};
template <typename A, typename B>
struct conditional<false, A, B> {
  using type = B;
};
template <bool kFirst, typename A, typename B>
using conditional_t = typename conditional<kFirst, A, B>::type;
template <typename T>
inline constexpr bool is_floating_point_v = is_same_v<T, float> || is_same_v<T, double>;
template <typename T, typename... Ts>
inline constexpr bool is_any_of_v = (is_same_v<T, Ts> || ...);
template <typename T>
inline constexpr bool is_integral_v =
    is_any_of_v<T, bool, char, signed char, short, int, long, long long, unsigned char,
                unsigned short, unsigned, unsigned long, unsigned long long>;
template <typename T>
inline constexpr bool is_signed_v =
    is_floating_point_v<T> || is_any_of_v<T, char, signed char, short, int, long, long long>;
template <typename T>
inline constexpr bool is_unsigned_v = is_integral_v<T> && !is_signed_v<T>;
template <typename T>
inline constexpr bool is_empty_v = __is_empty(T);
template <typename T>
inline constexpr bool is_trivially_copyable_v = __is_trivially_copyable(T);

// ---- Numbers.

template <typename T>
struct numeric_limits {
  static constexpr bool has_infinity = false;
  static constexpr bool is_signed = is_signed_v<T>;
  static constexpr int kBits = 8 * sizeof(T);
  WEFT_BOTH static constexpr T max() {
    return static_cast<T>(~uint64_t{0} >> (64 - kBits + (is_signed ? 1 : 0)));
  }
  WEFT_BOTH static constexpr T min() { return is_signed ? static_cast<T>(-max() - 1) : T(0); }
  WEFT_BOTH static constexpr T lowest() { return min(); }
};
template <>
struct numeric_limits<float> {
  static constexpr bool has_infinity = true;
  WEFT_BOTH static constexpr float max() { return 0x1.fffffep127f; }
  WEFT_BOTH static constexpr float min() { return 0x1p-126f; }
  WEFT_BOTH static constexpr float lowest() { return -max(); }
  WEFT_BOTH static constexpr float infinity() { return __builtin_bit_cast(float, 0x7f800000u); }
  WEFT_BOTH static constexpr float quiet_NaN() { return __builtin_bit_cast(float, 0x7fc00000u); }
};
template <>
struct numeric_limits<double> {
  static constexpr bool has_infinity = true;
  WEFT_BOTH static constexpr double max() { return 0x1.fffffffffffffp1023; }
  WEFT_BOTH static constexpr double min() { return 0x1p-1022; }
  WEFT_BOTH static constexpr double lowest() { return -max(); }
  WEFT_BOTH static constexpr double infinity() {
    return __builtin_bit_cast(double, 0x7ff0000000000000ul);
  }
  WEFT_BOTH static constexpr double quiet_NaN() {
    return __builtin_bit_cast(double, 0x7ff8000000000000ul);
  }
};

template <typename T>
WEFT_BOTH constexpr T min(T a, T b) {
  return b < a ? b : a;
}
template <typename T>
WEFT_BOTH constexpr T max(T a, T b) {
  return a < b ? b : a;
}
template <typename T>
WEFT_BOTH constexpr T max(initializer_list<T> values) {
  T largest = *values.begin();
  for (const T value : values) largest = largest < value ? value : largest;
  return largest;
}

// ---- Functions of real numbers: CUDA's own.

#define WEFT_OF_ONE(name)                                       \
  WEFT_BOTH float name(float x) { return ::name##f(x); }        \
  WEFT_BOTH double name(double x) { return ::name(x); }
#define WEFT_OF_TWO(name)                                              \
  WEFT_BOTH float name(float x, float y) { return ::name##f(x, y); }   \
  WEFT_BOTH double name(double x, double y) { return ::name(x, y); }
WEFT_OF_ONE(exp)
WEFT_OF_ONE(expm1)
WEFT_OF_ONE(log)
WEFT_OF_ONE(log1p)
WEFT_OF_ONE(sqrt)
WEFT_OF_ONE(erf)
WEFT_OF_ONE(sin)
WEFT_OF_ONE(cos)
WEFT_OF_ONE(tan)
WEFT_OF_ONE(asin)
WEFT_OF_ONE(acos)
WEFT_OF_ONE(atan)
WEFT_OF_ONE(sinh)
WEFT_OF_ONE(cosh)
WEFT_OF_ONE(tanh)
WEFT_OF_ONE(asinh)
WEFT_OF_ONE(acosh)
WEFT_OF_ONE(atanh)
WEFT_OF_ONE(ceil)
WEFT_OF_ONE(floor)
WEFT_OF_ONE(nearbyint)
WEFT_OF_TWO(pow)
WEFT_OF_TWO(fmod)
WEFT_OF_TWO(copysign)
WEFT_BOTH float abs(float x) { return ::fabsf(x); }
WEFT_BOTH double abs(double x) { return ::fabs(x); }
template <typename T>
WEFT_BOTH bool isinf(T x) {
  return x == numeric_limits<T>::infinity() || x == -numeric_limits<T>::infinity();
}
#undef WEFT_OF_TWO
#undef WEFT_OF_ONE

}  // namespace std

#endif
)text";

// Conversions by the instructions that the toolkit's headers of half floats use. ISA: "PTX ISA",
// cvt.
constexpr char kSmallFloats[] = R"text(
#ifndef WEFT_SMALL_FLOATS
#define WEFT_SMALL_FLOATS

struct __half_raw {
  unsigned short x;
};
struct __half {
  __half_raw raw;
  __device__ explicit __half(__half_raw bits) : raw(bits) {}
  __device__ operator __half_raw() const { return raw; }
};
__device__ __forceinline__ float __half2float(__half value) {
  float result;
  asm("cvt.f32.f16 %0, %1;" : "=f"(result) : "h"(value.raw.x));
  return result;
}
__device__ __forceinline__ __half __float2half_rn(float value) {
  __half_raw result;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(result.x) : "f"(value));
  return __half(result);
}

struct __nv_bfloat16_raw {
  unsigned short x;
};
struct __nv_bfloat16 {
  __nv_bfloat16_raw raw;
  __device__ explicit __nv_bfloat16(__nv_bfloat16_raw bits) : raw(bits) {}
  __device__ operator __nv_bfloat16_raw() const { return raw; }
};
__device__ __forceinline__ float __bfloat162float(__nv_bfloat16 value) {
  return __uint_as_float(static_cast<unsigned>(value.raw.x) << 16);
}
__device__ __forceinline__ __nv_bfloat16 __float2bfloat16_rn(float value) {
  __nv_bfloat16_raw result;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(result.x) : "f"(value));
  return __nv_bfloat16(result);
}

#endif
)text";

}  // namespace

std::vector<TextHeader> StandardHeaders() {
  std::vector<TextHeader> headers;
  for (const char* const name : {"algorithm", "cmath", "cstddef", "cstdint", "cstring", "limits",
                                 "optional", "string_view", "type_traits"}) {
    headers.push_back({name, kStandardLibrary});
  }
  for (const char* const name : {"cuda_bf16.h", "cuda_fp16.h"}) {
    headers.push_back({name, kSmallFloats});
  }
  return headers;
}

}  // namespace weft::cuda
