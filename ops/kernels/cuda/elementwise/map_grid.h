// Launches of map_body.h, for the .cu files of this folder.
#ifndef WEFT_OPS_KERNELS_CUDA_ELEMENTWISE_MAP_GRID_H_
#define WEFT_OPS_KERNELS_CUDA_ELEMENTWISE_MAP_GRID_H_

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "ops/kernels/cuda/elementwise/elementwise_launch.h"
#include "ops/kernels/cuda/elementwise/map_body.h"
#include "ops/kernels/cuda/language/launch.h"
#include "tensor/dtype.h"

namespace weft::cuda {

inline constexpr int kMapThreads = 256;
// Eight blocks fill a multiprocessor, of which the largest cards have 132 to 160. A few rounds of
// them even out who ends last; longer tensors make the threads walk.
inline constexpr int64_t kMapBlocks = int64_t{8} * 160 * 4;

inline LaunchGrid MapGrid(int64_t threads) {
  return {.blocks = Blocks(threads, kMapThreads, kMapBlocks), .threads = kMapThreads};
}

inline bool IsAligned(const void* address, size_t bytes) {
  return reinterpret_cast<uintptr_t>(address) % bytes == 0;
}

// ---- Choice of a type.

template <typename... Ts>
struct Types {};
using Floats = Types<float, double, Float16, Bfloat16>;
using Wholes = Types<int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t>;
using Numbers = Types<float, double, Float16, Bfloat16, int8_t, int16_t, int32_t, int64_t, uint8_t,
                      uint16_t, uint32_t, uint64_t>;

// find(T{}) for the type of the list that `dtype` names; Result() for others.
template <typename Result, typename Find, typename... Ts>
Result ByType(DType dtype, Types<Ts...> /*types*/, Find find) {
  Result result{};
  static_cast<void>(((dtype == DTypeOf<Ts>::value ? (result = find(Ts{}), true) : false) || ...));
  return result;
}

// The unsigned type of T's size for whole numbers, else T: operators that do not know the sign have
// one kernel for both.
template <typename T, bool kIsWhole = std::is_integral_v<T>>
struct BitsType {
  using Type = T;
};
template <typename T>
struct BitsType<T, true> {
  using Type = std::make_unsigned_t<T>;
};
template <typename T>
using BitsOf = typename BitsType<T>::Type;

// A functor of a call's parameters.
template <typename Op, typename Parameters>
Op OpOf(const Parameters& parameters) {
  if constexpr (std::is_empty_v<Op>) {
    return Op{};
  } else {
    return Op{parameters};
  }
}

// ---- Launches.

template <typename Op, typename T, typename R>
int LaunchMap(LaunchQueue queue, const void* x, void* y, int64_t count, const Op& op) {
  using Body = UnaryBody<Op, T, R>;
  const bool has_packets = Body::kWidth > 1 && IsAligned(x, sizeof(T) * Body::kWidth) &&
                           IsAligned(y, sizeof(R) * Body::kWidth);
  const int64_t packets = has_packets ? count / Body::kWidth : 0;
  const int64_t threads = packets > 0 ? (packets + Body::kAtOnce - 1) / Body::kAtOnce : count;
  return Launch<kMapThreads>(
      queue, MapGrid(threads),
      Body{static_cast<const T*>(x), static_cast<R*>(y), count, packets, op});
}

// The launch of an operator with parameters of its call.
template <typename Op, typename T, typename R = T>
int LaunchUnary(const UnaryCall& call) {
  return LaunchMap<Op, T, R>(call.queue, call.x, call.y, call.count, OpOf<Op>(call.parameters));
}

template <typename Op, typename List>
UnaryLaunch UnaryByType(DType dtype, List list) {
  return ByType<UnaryLaunch>(
      dtype, list, [](auto type) -> UnaryLaunch { return LaunchUnary<Op, decltype(type)>; });
}

template <typename Op, typename A, typename B, typename R>
int LaunchMapOfTwo(const BinaryCall& call, const Op& op) {
  using Body = BinaryBody<Op, A, B, R>;
  constexpr int kWidth = Body::kWidth;
  // An operand that is repeated needs no aligned address: its elements are read alone.
  const bool has_packets = kWidth > 1 && call.has_packets &&
                           (call.map.strides[0][0] == 0 || IsAligned(call.a, sizeof(A) * kWidth)) &&
                           (call.map.strides[0][1] == 0 || IsAligned(call.b, sizeof(B) * kWidth)) &&
                           IsAligned(call.y, sizeof(R) * kWidth);
  const int32_t packets = has_packets ? call.count / kWidth : 0;
  const int64_t threads =
      packets > 0 ? packets : (call.count + int64_t{Body::kAtOnce} - 1) / Body::kAtOnce;
  return Launch<kMapThreads>(call.queue, MapGrid(threads),
                             Body{static_cast<const A*>(call.a), static_cast<const B*>(call.b),
                                  static_cast<R*>(call.y), call.count, packets, call.map, op});
}

template <typename Op, typename T, typename R = T>
int LaunchBinary(const BinaryCall& call) {
  return LaunchMapOfTwo<Op, T, T, R>(call, OpOf<Op>(call.parameters));
}

template <typename Op, typename T, typename R = T>
BinaryLaunch BinaryOf() {
  return {LaunchBinary<Op, T, R>, kMapWidth<Op, T, R>};
}

template <typename Op, typename List>
BinaryLaunch BinaryByType(DType dtype, List list) {
  return ByType<BinaryLaunch>(dtype, list,
                              [](auto type) { return BinaryOf<Op, decltype(type)>(); });
}

}  // namespace weft::cuda

#endif  // WEFT_OPS_KERNELS_CUDA_ELEMENTWISE_MAP_GRID_H_
