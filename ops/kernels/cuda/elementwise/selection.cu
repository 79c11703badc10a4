// Where, and the folds of any number of operands.
#include <array>

#include "ops/kernels/cuda/elementwise/binary_ops.h"
#include "ops/kernels/cuda/elementwise/map_grid.h"

namespace weft::cuda {
namespace {

struct alignas(16) SixteenBytes {
  uint64_t words[2];
};

template <typename T>
int LaunchWhere(const WhereCall& call) {
  using Body = WhereBody<T>;
  constexpr int kWidth = Body::kWidth;
  const bool has_packets = kWidth > 1 && call.has_packets &&
                           (call.map.strides[0][0] == 0 || IsAligned(call.condition, kWidth)) &&
                           (call.map.strides[0][1] == 0 || IsAligned(call.a, sizeof(T) * kWidth)) &&
                           (call.map.strides[0][2] == 0 || IsAligned(call.b, sizeof(T) * kWidth)) &&
                           IsAligned(call.y, sizeof(T) * kWidth);
  const int32_t packets = has_packets ? call.count / kWidth : 0;
  return Launch<kMapThreads>(
      call.queue, MapGrid(packets > 0 ? packets : call.count),
      Body{static_cast<const uint8_t*>(call.condition), static_cast<const T*>(call.a),
           static_cast<const T*>(call.b), static_cast<T*>(call.y), call.count, packets, call.map});
}

template <typename T>
WhereLaunch WhereOf() {
  return {LaunchWhere<T>, kPacketWidth<T>};
}

template <typename Op, typename T>
int LaunchVariadic(const VariadicCall& call, const Op& op) {
  using Body = VariadicBody<Op, T>;
  constexpr int kWidth = Body::kWidth;
  Body body = {};
  bool has_packets = kWidth > 1 && call.has_packets && IsAligned(call.y, sizeof(T) * kWidth);
  for (int k = 0; k < call.operands; ++k) {
    body.x[k] = static_cast<const T*>(call.x[k]);
    has_packets =
        has_packets && (call.map.strides[0][k] == 0 || IsAligned(call.x[k], sizeof(T) * kWidth));
  }
  body.y = static_cast<T*>(call.y);
  body.operands = call.operands;
  body.count = call.count;
  body.packets = has_packets ? call.count / kWidth : 0;
  body.map = call.map;
  body.op = op;
  return Launch<kMapThreads>(call.queue, MapGrid(body.packets > 0 ? body.packets : call.count),
                             body);
}

template <bool kMean, typename T>
int LaunchSum(const VariadicCall& call) {
  return LaunchVariadic<SumOfOperands, T>(call, SumOfOperands{kMean ? 1.0 / call.operands : 1.0});
}
template <bool kMean>
VariadicLaunch SumByType(DType dtype) {
  return ByType<VariadicLaunch>(dtype, Floats(), [](auto type) -> VariadicLaunch {
    return {LaunchSum<kMean, decltype(type)>, kVariadicWidth<decltype(type)>};
  });
}

template <bool kSmallest, typename T>
int LaunchExtreme(const VariadicCall& call) {
  return LaunchVariadic<ExtremeFold, T>(call, ExtremeFold{kSmallest});
}
template <bool kSmallest>
VariadicLaunch ExtremeByType(DType dtype) {
  return ByType<VariadicLaunch>(dtype, Numbers(), [](auto type) -> VariadicLaunch {
    return {LaunchExtreme<kSmallest, decltype(type)>, kVariadicWidth<decltype(type)>};
  });
}

}  // namespace

WhereLaunch FindWhere(int bits) {
  switch (bits) {
    case 8:
      return WhereOf<uint8_t>();
    case 16:
      return WhereOf<uint16_t>();
    case 32:
      return WhereOf<uint32_t>();
    case 64:
      return WhereOf<uint64_t>();
    case 128:
      return WhereOf<SixteenBytes>();
    default:
      return {};
  }
}

VariadicLaunch FindVariadic(Folding folding, DType dtype) {
  switch (folding) {
    case Folding::kSum:
      return SumByType<false>(dtype);
    case Folding::kMean:
      return SumByType<true>(dtype);
    case Folding::kMax:
      return ExtremeByType<false>(dtype);
    case Folding::kMin:
      return ExtremeByType<true>(dtype);
  }
  return {};
}

}  // namespace weft::cuda
