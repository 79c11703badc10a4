// Bodies of scatters. No two threads write one element: the order of what arrives is fixed.
#ifndef WEFT_OPS_KERNELS_CUDA_INDEXING_SCATTER_BODY_H_
#define WEFT_OPS_KERNELS_CUDA_INDEXING_SCATTER_BODY_H_

#include <cstdint>
#include <type_traits>

#include "ops/kernels/cuda/blocks/divisor.h"
#include "ops/kernels/cuda/blocks/fault.h"
#include "ops/kernels/cuda/blocks/real_operand.h"
#include "ops/kernels/cuda/indexing/scatter_launch.h"
#include "ops/kernels/cuda/language/gpu.h"
#include "ops/kernels/cuda/language/scalar.h"

namespace weft::cuda {

// The element after an update has arrived. T may be bytes without meaning for kReplaces.
template <Arrival kArrival, typename T>
WEFT_GPU Compute<T> Arrived(Compute<T> old, Compute<T> update) {
  using C = Compute<T>;
  if constexpr (kArrival == Arrival::kReplaces) {
    return update;
  } else if constexpr (kArrival == Arrival::kMax) {
    return old != old || old > update ? old : update;
  } else if constexpr (kArrival == Arrival::kMin) {
    return old != old || old < update ? old : update;
  } else if constexpr (std::is_same_v<T, bool>) {
    return kArrival == Arrival::kAdds ? old || update : old && update;
  } else if constexpr (std::is_integral_v<T>) {
    const uint64_t a = static_cast<uint64_t>(old);
    const uint64_t b = static_cast<uint64_t>(update);
    return static_cast<C>(kArrival == Arrival::kAdds ? a + b : a * b);
  } else {
    return kArrival == Arrival::kAdds ? old + update : old * update;
  }
}

template <typename Index>
struct ScatterAxis {
  FastDivisor<Index> size;
  int64_t limit;
  int64_t stride;
};

template <Arrival kArrival, typename T, typename Index>
struct ScatterElementsBody {
  const T* data;
  IndexInput indices;
  const T* updates;
  T* y;
  Index count;
  int64_t size;
  int64_t length;
  int64_t stride;
  int axes;
  int axis;
  ScatterAxis<Index> along[kMaxScatterAxes];
  FaultReport report;

  template <class Gpu>
  WEFT_GPU void operator()(Gpu& gpu) const {
    for (int64_t o = gpu.index(); o < count; o += gpu.stride()) {
      Index rest = static_cast<Index>(o);
      int64_t base = 0;  // of the line of indices
      int64_t own = 0;   // on it
      bool has_line = true;
      WEFT_UNROLL
      for (int d = 0; d < kMaxScatterAxes; ++d) {
        if (d >= axes) break;
        const Division<Index> division = along[d].size.Divide(rest);
        rest = division.quotient;
        has_line = has_line && division.rest < along[d].limit;
        base += division.rest * along[d].stride;
        if (d == axis) own = division.rest;
      }
      Compute<T> value = {};
      if (data != nullptr) {
        const T element = gpu.Global(data)[o];
        value = Widen(element);
      }
      for (int64_t j = 0; has_line && j < length; ++j) {
        const int64_t place = base + j * stride;
        const int64_t given = ReadIndex(gpu, indices, place);
        if (!InRange(gpu, report, given, place)) continue;
        if ((given < 0 ? given + size : given) != own) continue;
        const T update = gpu.Global(updates)[place];
        value = Arrived<kArrival, T>(value, Widen(update));
      }
      gpu.Global(y)[o] = Narrow<T>(value);
    }
  }
};

// The row that tuple i names; -1, after a report, for none.
template <class Gpu>
WEFT_GPU int64_t RowOfTuple(Gpu& gpu, const TupleRows& tuples, int64_t i) {
  int64_t row = i / tuples.per_batch * tuples.batch_rows;
  bool is_right = true;
  for (int k = 0; k < tuples.depth; ++k) {
    const int64_t place = i * tuples.depth + k;
    const int64_t given = gpu.Global(tuples.indices)[place];
    const int64_t size = tuples.sizes[k];
    is_right = InRange(gpu, FaultReport{tuples.fault, tuples.source, -size, size}, given, place) &&
               is_right;
    row += (given < 0 ? given + size : given) * tuples.strides[k];
  }
  return is_right ? row : -1;
}

template <typename Unit>
struct GatherTuplesBody {
  TupleRows tuples;
  const Unit* x;
  Unit* y;
  int64_t row;

  template <class Gpu>
  WEFT_GPU void operator()(Gpu& gpu) const {
    for (int64_t t = gpu.index(); t < tuples.count * row; t += gpu.stride()) {
      const int64_t tuple = t / row;
      const int64_t place = RowOfTuple(gpu, tuples, tuple);
      Packet<Unit, 1> value = {};
      if (place >= 0) value = gpu.template Load<1>(gpu.Global(x), place * row + (t - tuple * row));
      gpu.template Store<1>(gpu.Global(y), t, value);
    }
  }
};

struct TupleKeysBody {
  TupleRows tuples;
  int64_t rows;
  uint32_t* keys;

  template <class Gpu>
  WEFT_GPU void operator()(Gpu& gpu) const {
    for (int64_t i = gpu.index(); i < tuples.count; i += gpu.stride()) {
      const int64_t row = RowOfTuple(gpu, tuples, i);
      gpu.Global(keys)[i] = static_cast<uint32_t>(row < 0 ? rows : row);
    }
  }
};

// A thread for each column of each tuple, in sorted order; the first one of a row takes them all.
template <Arrival kArrival, typename T>
struct ScatterRowsBody {
  const uint32_t* keys;
  const uint32_t* order;
  const T* updates;
  T* y;
  int64_t count;
  int64_t rows;
  int64_t row;

  template <class Gpu>
  WEFT_GPU void operator()(Gpu& gpu) const {
    const auto all = gpu.Global(keys);
    for (int64_t t = gpu.index(); t < count * row; t += gpu.stride()) {
      const int64_t first = t / row;
      const int64_t column = t - first * row;
      const uint32_t key = all[first];
      if (key >= rows) continue;  // a wrong index
      if (first > 0) {
        const uint32_t before = all[first - 1];
        if (before == key) continue;
      }
      const auto target = gpu.Global(y) + int64_t{key} * row + column;
      const T element = target[0];
      Compute<T> value = Widen(element);
      for (int64_t e = first; e < count; ++e) {
        const uint32_t other = all[e];
        if (other != key) break;
        const uint32_t source = gpu.Global(order)[e];
        const T update = gpu.Global(updates)[int64_t{source} * row + column];
        value = Arrived<kArrival, T>(value, Widen(update));
      }
      target[0] = Narrow<T>(value);
    }
  }
};

template <typename T>
struct CacheBody {
  CacheCall call;

  template <class Gpu>
  WEFT_GPU void operator()(Gpu& gpu) const {
    const auto from = gpu.Global(static_cast<const T*>(call.updates));
    const auto to = gpu.Global(static_cast<T*>(call.cache));
    for (int64_t t = gpu.index(); t < call.count; t += gpu.stride()) {
      const int64_t run = t / call.inner;
      const int64_t line = run / call.updated;  // sample and prefix
      const int64_t step = run - line * call.updated;
      const int64_t sample = line / call.prefix;
      int64_t start = 0;
      if (call.starts != nullptr) start = gpu.Global(call.starts)[sample];
      if (!InRange(gpu, call.report, start, sample)) continue;
      // Written over by a later one.
      if (step + call.positions < call.updated) continue;
      const int64_t position = (start % call.positions + step) % call.positions;
      const int64_t place = (line * call.positions + position) * call.inner;
      to[place + (t - run * call.inner)] = static_cast<T>(from[t]);
    }
  }
};

}  // namespace weft::cuda

#endif  // WEFT_OPS_KERNELS_CUDA_INDEXING_SCATTER_BODY_H_
