// Bodies that fill, cut out or mirror: a thread for each element of the output.
#ifndef WEFT_OPS_KERNELS_CUDA_MOVEMENT_MOVEMENT_BODY_H_
#define WEFT_OPS_KERNELS_CUDA_MOVEMENT_MOVEMENT_BODY_H_

#include <cstdint>
#include <type_traits>

#include "ops/kernels/cuda/blocks/any_number.h"
#include "ops/kernels/cuda/blocks/divisor.h"
#include "ops/kernels/cuda/blocks/fault.h"
#include "ops/kernels/cuda/language/gpu.h"
#include "ops/kernels/cuda/language/scalar.h"
#include "ops/kernels/cuda/movement/movement_launch.h"

namespace weft::cuda {

struct IntsBody {
  IntsCall call;

  template <class Gpu>
  WEFT_GPU void operator()(Gpu& gpu) const {
    const auto to = gpu.Global(call.to);
    for (int i = gpu.thread(); i < call.count; i += gpu.threads()) to[i] = call.values[i];
  }
};

// Whole numbers wrap around.
template <typename T>
struct RangeBody {
  const T* start;
  const T* delta;
  T* y;
  int64_t count;

  template <class Gpu>
  WEFT_GPU void operator()(Gpu& gpu) const {
    const T first = gpu.Global(start)[0];
    const T step = gpu.Global(delta)[0];
    const auto to = gpu.Global(y);
    for (int64_t i = gpu.index(); i < count; i += gpu.stride()) {
      if constexpr (std::is_integral_v<T>) {
        to[i] = static_cast<T>(static_cast<uint64_t>(first) +
                               static_cast<uint64_t>(i) * static_cast<uint64_t>(step));
      } else {
        to[i] = Narrow<T>(Widen(first) + static_cast<Compute<T>>(i) * Widen(step));
      }
    }
  }
};

template <typename T, typename Index>
struct TriluBody {
  const T* x;
  T* y;
  const int64_t* k;
  Index count;
  FastDivisor<Index> rows;
  FastDivisor<Index> columns;
  bool upper;

  template <class Gpu>
  WEFT_GPU void operator()(Gpu& gpu) const {
    // Any diagonal beyond the corners is like the one just outside of them.
    int64_t diagonal = 0;
    if (k != nullptr) diagonal = gpu.Global(k)[0];
    const int64_t lowest = -int64_t{rows.divisor()} - 1;
    const int64_t highest = int64_t{columns.divisor()} + 1;
    diagonal = diagonal < lowest ? lowest : diagonal > highest ? highest : diagonal;
    const auto from = gpu.Global(x);
    const auto to = gpu.Global(y);
    for (int64_t at = gpu.index(); at < count; at += gpu.stride()) {
      const Index i = static_cast<Index>(at);
      const Division<Index> by_column = columns.Divide(i);
      const int64_t row = rows.Divide(by_column.quotient).rest;
      const int64_t distance = by_column.rest - row;
      const bool kept = upper ? distance >= diagonal : distance <= diagonal;
      T value = {};
      if (kept) value = from[i];
      to[i] = value;
    }
  }
};

// T is of an element's size, and `one` has the bits of 1.
template <typename T, typename Index>
struct EyeBody {
  T* y;
  T one;
  Index count;
  FastDivisor<Index> columns;
  int64_t k;

  template <class Gpu>
  WEFT_GPU void operator()(Gpu& gpu) const {
    const auto to = gpu.Global(y);
    for (int64_t i = gpu.index(); i < count; i += gpu.stride()) {
      const Division<Index> place = columns.Divide(static_cast<Index>(i));
      const bool is_one = int64_t{place.rest} - place.quotient == k;
      to[i] = is_one ? one : T{0};
    }
  }
};

// Indices are of any number type.
template <typename T, typename Index>
struct OneHotBody {
  const void* indices;
  DType index_dtype;
  const T* values;
  T* y;
  Index count;
  FastDivisor<Index> depth;
  FastDivisor<Index> inner;

  template <class Gpu>
  WEFT_GPU void operator()(Gpu& gpu) const {
    const auto both = gpu.Global(values);
    const auto to = gpu.Global(y);
    const T off = both[0];
    const T on = both[1];
    const double size = static_cast<double>(depth.divisor());
    for (int64_t i = gpu.index(); i < count; i += gpu.stride()) {
      const Division<Index> by_inner = inner.Divide(static_cast<Index>(i));
      const Division<Index> by_depth = depth.Divide(by_inner.quotient);
      const int64_t place = int64_t{by_depth.quotient} * inner.divisor() + by_inner.rest;
      const double given = ToDouble(ReadAny(gpu, indices, index_dtype, place));
      bool is_on = false;
      if (given > -size - 1 && given < size) {
        const int64_t whole = static_cast<int64_t>(given);
        is_on = (whole < 0 ? whole + depth.divisor() : whole) == by_depth.rest;
      }
      to[i] = is_on ? on : off;
    }
  }
};

// PadAxis with numbers that suit a GPU.
template <typename Index>
struct PadLine {
  FastDivisor<Index> size;
  Index before;
  Index first;
  Index kept;
  int64_t stride;

  // Where output element i of the axis comes from; -1: from nowhere.
  WEFT_GPU Index Source(Index i, Beyond beyond) const {
    Index position = i - before;
    if (position >= 0 && position < kept) return first + position;
    switch (beyond) {
      case Beyond::kFill:
        return -1;
      case Beyond::kEdge:
        position = position < 0 ? 0 : kept - 1;
        break;
      case Beyond::kWrap:
        position = position % kept;
        if (position < 0) position += kept;
        break;
      case Beyond::kReflect: {
        const Index period = kept > 1 ? 2 * (kept - 1) : 1;
        position = position % period;
        if (position < 0) position += period;
        if (position >= kept) position = period - position;
        break;
      }
    }
    return first + position;
  }
};

template <typename T, typename Index>
struct PadBody {
  const T* x;
  const T* fill;
  T* y;
  Index count;
  int axes;
  PadLine<Index> lines[kMaxPadAxes];
  Beyond beyond;

  template <class Gpu>
  WEFT_GPU void operator()(Gpu& gpu) const {
    T outside = {};
    if (fill != nullptr) outside = gpu.Global(fill)[0];
    const auto from = gpu.Global(x);
    const auto to = gpu.Global(y);
    for (int64_t at = gpu.index(); at < count; at += gpu.stride()) {
      Index rest = static_cast<Index>(at);
      int64_t offset = 0;
      bool inside = true;
      WEFT_UNROLL
      for (int d = 0; d < kMaxPadAxes; ++d) {
        if (d >= axes) break;
        const Division<Index> division = lines[d].size.Divide(rest);
        const Index source = lines[d].Source(division.rest, beyond);
        inside = inside && source >= 0;
        offset += source * lines[d].stride;
        rest = division.quotient;
      }
      T value = outside;
      if (inside) value = from[offset];
      to[at] = value;
    }
  }
};

template <typename T, typename Index>
struct ReverseBody {
  const T* x;
  const int64_t* lengths;
  T* y;
  Index count;
  FastDivisor<Index> first;
  FastDivisor<Index> middle;
  FastDivisor<Index> second;
  FastDivisor<Index> inner;
  bool batch_is_first;
  FaultReport report;

  template <class Gpu>
  WEFT_GPU void operator()(Gpu& gpu) const {
    const auto from = gpu.Global(x);
    const auto to = gpu.Global(y);
    const auto sizes = gpu.Global(lengths);
    for (int64_t at = gpu.index(); at < count; at += gpu.stride()) {
      const Division<Index> by_inner = inner.Divide(static_cast<Index>(at));
      const Division<Index> by_second = second.Divide(by_inner.quotient);
      const Division<Index> by_middle = middle.Divide(by_second.quotient);
      const Index of_first = first.Divide(by_middle.quotient).rest;
      const Index batch = batch_is_first ? of_first : by_second.rest;
      const Index time = batch_is_first ? by_second.rest : of_first;
      const int64_t length = sizes[batch];
      const int64_t step = batch_is_first
                               ? int64_t{inner.divisor()}
                               : int64_t{middle.divisor()} * second.divisor() * inner.divisor();
      int64_t source = at;
      if (InRange(gpu, report, length, batch) && time < length) {
        source += (length - 1 - 2 * int64_t{time}) * step;
      }
      to[at] = static_cast<T>(from[source]);
    }
  }
};

template <typename T>
struct RunningTermBody {
  static constexpr int kWidth = kWidest<T>;

  const T* x;
  T* y;
  T* total;
  int64_t count;
  int64_t packets;
  Compute<T> weight;

  template <class Gpu>
  WEFT_GPU void operator()(Gpu& gpu) const {
    const auto from = gpu.Global(x);
    const auto to = gpu.Global(y);
    for (int64_t i = gpu.index(); i < packets; i += gpu.stride()) {
      Packet<T, kWidth> packet = gpu.template Load<kWidth>(from, i * kWidth);
      WEFT_UNROLL
      for (int k = 0; k < kWidth; ++k) {
        packet.values[k] = Narrow<T>(weight * Widen(packet.values[k]));
      }
      gpu.template Store<kWidth>(to, i * kWidth, packet);
    }
    for (int64_t i = packets * kWidth + gpu.index(); i < count; i += gpu.stride()) {
      const T value = from[i];
      to[i] = Narrow<T>(weight * Widen(value));
    }
    if (total != nullptr && gpu.index() == 0) gpu.Global(total)[0] = Narrow<T>(weight);
  }
};

}  // namespace weft::cuda

#endif  // WEFT_OPS_KERNELS_CUDA_MOVEMENT_MOVEMENT_BODY_H_
