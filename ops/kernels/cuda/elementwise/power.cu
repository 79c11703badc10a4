// Pow.
#include "ops/kernels/cuda/elementwise/map_grid.h"
#include "ops/kernels/cuda/elementwise/power_ops.h"

namespace weft::cuda {
namespace {

template <typename T, typename Bits, DType kExponents>
int LaunchMixedPow(const BinaryCall& call) {
  return LaunchMapOfTwo<MixedPowOp<T>, T, Bits, T>(call, MixedPowOp<T>{kExponents});
}

template <int kBytes>
struct BitsOfBytes;
template <>
struct BitsOfBytes<1> {
  using Type = uint8_t;
};
template <>
struct BitsOfBytes<2> {
  using Type = uint16_t;
};
template <>
struct BitsOfBytes<4> {
  using Type = uint32_t;
};
template <>
struct BitsOfBytes<8> {
  using Type = uint64_t;
};

template <typename T>
BinaryLaunch FindPowerOf(DType exponent) {
  return ByType<BinaryLaunch>(exponent, Numbers(), [](auto type) -> BinaryLaunch {
    using E = decltype(type);
    if constexpr (std::is_same_v<T, E> && !std::is_integral_v<T>) {
      return BinaryOf<PowOp, T>();
    } else {
      using Bits = typename BitsOfBytes<sizeof(E)>::Type;
      return {LaunchMixedPow<T, Bits, DTypeOf<E>::value>, kMapWidth<MixedPowOp<T>, T, Bits>};
    }
  });
}

}  // namespace

BinaryLaunch FindPower(DType base, DType exponent) {
  using Bases = Types<float, double, Float16, Bfloat16, int32_t, int64_t>;
  return ByType<BinaryLaunch>(
      base, Bases(), [exponent](auto type) { return FindPowerOf<decltype(type)>(exponent); });
}

}  // namespace weft::cuda
