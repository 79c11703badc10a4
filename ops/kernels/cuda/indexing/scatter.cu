#include <algorithm>

#include "ops/kernels/cuda/blocks/launch_types.h"
#include "ops/kernels/cuda/indexing/scatter_body.h"
#include "ops/kernels/cuda/language/launch.h"

namespace weft::cuda {
namespace {

constexpr int kScatterThreads = 256;
constexpr int64_t kScatterBlocks = int64_t{132} * 8 * 8;

LaunchGrid ScatterGrid(int64_t threads) {
  return {.blocks = Blocks(threads, kScatterThreads, kScatterBlocks), .threads = kScatterThreads};
}

template <Arrival kArrival, typename T, typename Index>
int ScatterElements(LaunchQueue queue, const ScatterElementsCall& call) {
  ScatterElementsBody<kArrival, T, Index> body{};
  body.data = static_cast<const T*>(call.data);
  body.indices = call.indices;
  body.updates = static_cast<const T*>(call.updates);
  body.y = static_cast<T*>(call.y);
  body.count = static_cast<Index>(call.count);
  body.size = call.size;
  body.length = call.length;
  body.stride = call.stride;
  body.axes = call.axes;
  body.axis = call.axis;
  for (int d = 0; d < call.axes; ++d) {
    body.along[d] = {FastDivisor<Index>(static_cast<Index>(call.sizes[d])), call.limits[d],
                     call.strides[d]};
  }
  body.report = call.report;
  return Launch<kScatterThreads>(queue, ScatterGrid(call.count), body);
}

template <Arrival kArrival, typename T>
int ScatterElementsBySize(LaunchQueue queue, const ScatterElementsCall& call) {
  return call.count < (int64_t{1} << 31) ? ScatterElements<kArrival, T, int32_t>(queue, call)
                                         : ScatterElements<kArrival, T, int64_t>(queue, call);
}

template <Arrival kArrival, typename T>
int ScatterRows(LaunchQueue queue, const ScatterRowsCall& call) {
  return Launch<kScatterThreads>(
      queue, ScatterGrid(call.count * call.row),
      ScatterRowsBody<kArrival, T>{call.keys, call.order, static_cast<const T*>(call.updates),
                                   static_cast<T*>(call.y), call.count, call.rows, call.row});
}

}  // namespace

int LaunchScatterElements(LaunchQueue queue, DType dtype, int bytes, Arrival arrival,
                          const ScatterElementsCall& call) {
  if (call.count == 0) return 0;
  if (arrival == Arrival::kReplaces) {
    return LaunchByWidth(bytes, [&](auto zero) {
      return ScatterElementsBySize<Arrival::kReplaces, decltype(zero)>(queue, call);
    });
  }
  return LaunchByType(dtype, RealLaunches(), [&](auto zero) {
    using T = decltype(zero);
    switch (arrival) {
      case Arrival::kAdds:
        return ScatterElementsBySize<Arrival::kAdds, T>(queue, call);
      case Arrival::kMultiplies:
        return ScatterElementsBySize<Arrival::kMultiplies, T>(queue, call);
      case Arrival::kMax:
        return ScatterElementsBySize<Arrival::kMax, T>(queue, call);
      case Arrival::kMin:
        return ScatterElementsBySize<Arrival::kMin, T>(queue, call);
      case Arrival::kReplaces:
        break;
    }
    return kNoSuchBody;
  });
}

int LaunchGatherTuples(LaunchQueue queue, int unit, const GatherTuplesCall& call) {
  const int64_t units = call.tuples.count * call.row;
  if (units == 0) return 0;
  return LaunchByWidth(unit, [&](auto zero) {
    using Unit = decltype(zero);
    return Launch<kScatterThreads>(
        queue, ScatterGrid(units),
        GatherTuplesBody<Unit>{call.tuples, static_cast<const Unit*>(call.x),
                               static_cast<Unit*>(call.y), call.row});
  });
}

int LaunchTupleKeys(LaunchQueue queue, const TupleRows& tuples, int64_t rows, uint32_t* keys) {
  if (tuples.count == 0) return 0;
  return Launch<kScatterThreads>(queue, ScatterGrid(tuples.count),
                                 TupleKeysBody{tuples, rows, keys});
}

int LaunchScatterRows(LaunchQueue queue, DType dtype, int bytes, Arrival arrival,
                      const ScatterRowsCall& call) {
  if (call.count * call.row == 0) return 0;
  if (arrival == Arrival::kReplaces) {
    return LaunchByWidth(bytes, [&](auto zero) {
      return ScatterRows<Arrival::kReplaces, decltype(zero)>(queue, call);
    });
  }
  return LaunchByType(dtype, RealLaunches(), [&](auto zero) {
    using T = decltype(zero);
    switch (arrival) {
      case Arrival::kAdds:
        return ScatterRows<Arrival::kAdds, T>(queue, call);
      case Arrival::kMultiplies:
        return ScatterRows<Arrival::kMultiplies, T>(queue, call);
      case Arrival::kMax:
        return ScatterRows<Arrival::kMax, T>(queue, call);
      case Arrival::kMin:
        return ScatterRows<Arrival::kMin, T>(queue, call);
      case Arrival::kReplaces:
        break;
    }
    return kNoSuchBody;
  });
}

int LaunchCache(LaunchQueue queue, int bytes, const CacheCall& call) {
  if (call.count == 0) return 0;
  return LaunchByWidth(bytes, [&](auto zero) {
    return Launch<kScatterThreads>(queue, ScatterGrid(call.count), CacheBody<decltype(zero)>{call});
  });
}

}  // namespace weft::cuda
