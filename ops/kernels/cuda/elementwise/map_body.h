// Bodies that compute each element of an output from the elements at its place in the operands.
// What they compute is a functor; functors that need something of the device first have
//
//   template <class Gpu> auto Bind(Gpu& gpu) const;   // the functor to use, once per thread
//
// A packet is the neighbours that a thread reads and writes at once, 16 bytes of the widest type.
// `packets` is 0 where addresses or rows do not allow them; elements after them go one by one.
#ifndef WEFT_OPS_KERNELS_CUDA_ELEMENTWISE_MAP_BODY_H_
#define WEFT_OPS_KERNELS_CUDA_ELEMENTWISE_MAP_BODY_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "ops/kernels/cuda/blocks/broadcast.h"
#include "ops/kernels/cuda/blocks/fault.h"
#include "ops/kernels/cuda/language/gpu.h"
#include "ops/kernels/cuda/language/scalar.h"

namespace weft::cuda {

template <class Gpu, typename Op>
WEFT_GPU auto Bound(Gpu& gpu, const Op& op) {
  if constexpr (requires { op.Bind(gpu); }) {
    return op.Bind(gpu);
  } else {
    return op;
  }
}

// Elements of a packet of these types.
template <typename... Ts>
inline constexpr int kPacketWidth = 16 / static_cast<int>(std::max({sizeof(Ts)...}));

// A functor of which nvcc's time is worth more than a GPU's: its elements go one by one.
template <typename Op>
concept RareFunctor = requires {
  Op::kIsRare;
};

// Elements of a packet of a functor. A packet's elements are computed in code of their own, which
// nvcc takes long to make. Elements of eight bytes go alone: a warp reads 256 bytes at once then.
template <typename Op, typename... Ts>
inline constexpr int kMapWidth = RareFunctor<Op> || std::max({sizeof(Ts)...}) == 8
                                     ? 1
                                     : kPacketWidth<Ts...>;

// Elements i to i + kWidth of an operand, or kWidth times element i.
template <int kWidth, typename T, class Gpu, typename Memory>
WEFT_GPU Packet<T, kWidth> LoadOrRepeat(Gpu& gpu, const Memory& memory, int64_t i, bool repeat) {
  if (!repeat) return gpu.template Load<kWidth>(memory, i);
  const T value = memory[i];
  Packet<T, kWidth> packet;
  WEFT_UNROLL
  for (int v = 0; v < kWidth; ++v) packet.values[v] = value;
  return packet;
}

// y[i] = op(x[i]): `op` takes the compute type of T and returns that of R. y may be x.
template <typename Op, typename T, typename R>
struct UnaryBody {
  static constexpr int kWidth = kMapWidth<Op, T, R>;
  // Loads that a thread has under way: one packet is too little to hide the memory's latency.
  static constexpr int kAtOnce = 2;

  const T* x;
  R* y;
  int64_t count;
  int64_t packets;
  Op op;

  template <class Gpu>
  WEFT_GPU void operator()(Gpu& gpu) const {
    const auto from = gpu.Global(x);
    const auto to = gpu.Global(y);
    const auto fn = Bound(gpu, op);
    const int64_t step = gpu.stride();
    if constexpr (kWidth > 1) {
      for (int64_t p = gpu.index(); p < packets; p += kAtOnce * step) {
        Packet<T, kWidth> in[kAtOnce] = {};
        WEFT_UNROLL
        for (int u = 0; u < kAtOnce; ++u) {
          if (p + u * step < packets) {
            in[u] = gpu.template Load<kWidth>(from, (p + u * step) * kWidth);
          }
        }
        WEFT_UNROLL
        for (int u = 0; u < kAtOnce; ++u) {
          if (p + u * step >= packets) break;
          Packet<R, kWidth> out;
          WEFT_UNROLL
          for (int v = 0; v < kWidth; ++v) {
            out.values[v] = Narrow<R>(fn(Widen<T>(in[u].values[v])));
          }
          gpu.Store(to, (p + u * step) * kWidth, out);
        }
      }
    }
    for (int64_t i = packets * kWidth + gpu.index(); i < count; i += step) {
      to[i] = Narrow<R>(fn(Widen<T>(from[i])));
    }
  }
};

// y[i] = op(a at i, b at i): `op` takes compute types and returns that of R. y may be an operand of
// its shape. Functors with kReports get (gpu, a, b, place of b) and report what they cannot
// compute.
template <typename Op, typename A, typename B, typename R>
struct BinaryBody {
  static constexpr int kWidth = kMapWidth<Op, A, B, R>;
  static constexpr int kAtOnce = 2;  // elements without packets

  const A* a;
  const B* b;
  R* y;
  int32_t count;
  int32_t packets;
  BroadcastMap<2> map;
  Op op;

  template <class Gpu, typename Fn>
  WEFT_GPU static R Of(Gpu& gpu, const Fn& fn, A left, B right, int64_t place) {
    if constexpr (requires { Op::kReports; }) {
      return Narrow<R>(fn(gpu, Widen<A>(left), Widen<B>(right), place));
    } else {
      return Narrow<R>(fn(Widen<A>(left), Widen<B>(right)));
    }
  }

  template <class Gpu>
  WEFT_GPU void operator()(Gpu& gpu) const {
    const auto left = gpu.Global(a);
    const auto right = gpu.Global(b);
    const auto to = gpu.Global(y);
    const auto fn = Bound(gpu, op);
    const int64_t step = gpu.stride();
    const bool repeat_a = map.strides[0][0] == 0;
    const bool repeat_b = map.strides[0][1] == 0;
    if constexpr (kWidth > 1) {
      for (int64_t p = gpu.index(); p < packets; p += step) {
        const auto at = map.At(static_cast<int32_t>(p * kWidth));
        const auto as = LoadOrRepeat<kWidth, A>(gpu, left, at.of[0], repeat_a);
        const auto bs = LoadOrRepeat<kWidth, B>(gpu, right, at.of[1], repeat_b);
        Packet<R, kWidth> out;
        WEFT_UNROLL
        for (int v = 0; v < kWidth; ++v) {
          out.values[v] = Of(gpu, fn, as.values[v], bs.values[v], at.of[1] + (repeat_b ? 0 : v));
        }
        gpu.Store(to, p * kWidth, out);
      }
    }
    const int64_t first = static_cast<int64_t>(packets) * kWidth + gpu.index();
    for (int64_t i = first; i < count; i += kAtOnce * step) {
      A as[kAtOnce] = {};
      B bs[kAtOnce] = {};
      int32_t places[kAtOnce] = {};
      WEFT_UNROLL
      for (int u = 0; u < kAtOnce; ++u) {
        if (i + u * step >= count) break;
        const auto at = map.At(static_cast<int32_t>(i + u * step));
        as[u] = left[at.of[0]];
        bs[u] = right[at.of[1]];
        places[u] = at.of[1];
      }
      WEFT_UNROLL
      for (int u = 0; u < kAtOnce; ++u) {
        if (i + u * step >= count) break;
        to[i + u * step] = Of(gpu, fn, as[u], bs[u], places[u]);
      }
    }
  }
};

// y[i] = condition at i ? a at i : b at i, of any type of this size.
template <typename T>
struct WhereBody {
  static constexpr int kWidth = kPacketWidth<T>;

  const uint8_t* condition;
  const T* a;
  const T* b;
  T* y;
  int32_t count;
  int32_t packets;
  BroadcastMap<3> map;

  template <class Gpu>
  WEFT_GPU void operator()(Gpu& gpu) const {
    const auto chooses = gpu.Global(condition);
    const auto left = gpu.Global(a);
    const auto right = gpu.Global(b);
    const auto to = gpu.Global(y);
    const int64_t step = gpu.stride();
    if constexpr (kWidth > 1) {
      for (int64_t p = gpu.index(); p < packets; p += step) {
        const auto at = map.At(static_cast<int32_t>(p * kWidth));
        const auto cs =
            LoadOrRepeat<kWidth, uint8_t>(gpu, chooses, at.of[0], map.strides[0][0] == 0);
        const auto as = LoadOrRepeat<kWidth, T>(gpu, left, at.of[1], map.strides[0][1] == 0);
        const auto bs = LoadOrRepeat<kWidth, T>(gpu, right, at.of[2], map.strides[0][2] == 0);
        Packet<T, kWidth> out;
        WEFT_UNROLL
        for (int v = 0; v < kWidth; ++v) {
          out.values[v] = cs.values[v] != 0 ? as.values[v] : bs.values[v];
        }
        gpu.Store(to, p * kWidth, out);
      }
    }
    for (int64_t i = static_cast<int64_t>(packets) * kWidth + gpu.index(); i < count; i += step) {
      const auto at = map.At(static_cast<int32_t>(i));
      const uint8_t choice = chooses[at.of[0]];
      const T value =
          choice != 0 ? static_cast<T>(left[at.of[1]]) : static_cast<T>(right[at.of[2]]);
      to[i] = value;
    }
  }
};

// The operands that one launch folds; their pointers and strides are parameters of it, which have 4
// KiB.
inline constexpr int kMaxFolded = 64;

// Elements of a packet of a fold. Their totals and an operand's are in registers: eight at most.
template <typename T>
inline constexpr int kVariadicWidth = sizeof(T) < 4    ? 8
                                      : sizeof(T) == 4 ? 4
                                                       : 1;

// y[i] = op.Last(op(op(x0, x1), x2) ...) of the elements at i of `operands` operands.
template <typename Op, typename T>
struct VariadicBody {
  static constexpr int kWidth = kVariadicWidth<T>;

  const T* x[kMaxFolded];
  T* y;
  int32_t operands;
  int32_t count;
  int32_t packets;
  BroadcastMap<kMaxFolded> map;
  Op op;

  template <class Gpu>
  WEFT_GPU void operator()(Gpu& gpu) const {
    const auto to = gpu.Global(y);
    const int64_t step = gpu.stride();
    if constexpr (kWidth > 1) {
      for (int64_t p = gpu.index(); p < packets; p += step) {
        const auto coordinates = map.CoordinatesOf(static_cast<int32_t>(p * kWidth));
        Compute<T> totals[kWidth] = {};
        for (int k = 0; k < operands; ++k) {
          const auto xs = LoadOrRepeat<kWidth, T>(gpu, gpu.Global(x[k]), map.Offset(coordinates, k),
                                                  map.strides[0][k] == 0);
          WEFT_UNROLL
          for (int v = 0; v < kWidth; ++v) {
            const Compute<T> value = Widen<T>(xs.values[v]);
            totals[v] = k == 0 ? value : op(totals[v], value);
          }
        }
        Packet<T, kWidth> out;
        WEFT_UNROLL
        for (int v = 0; v < kWidth; ++v) out.values[v] = Narrow<T>(op.Last(totals[v]));
        gpu.Store(to, p * kWidth, out);
      }
    }
    for (int64_t i = static_cast<int64_t>(packets) * kWidth + gpu.index(); i < count; i += step) {
      const auto coordinates = map.CoordinatesOf(static_cast<int32_t>(i));
      Compute<T> total = {};
      for (int k = 0; k < operands; ++k) {
        const Compute<T> value = Widen<T>(gpu.Global(x[k])[map.Offset(coordinates, k)]);
        total = k == 0 ? value : op(total, value);
      }
      to[i] = Narrow<T>(op.Last(total));
    }
  }
};

}  // namespace weft::cuda

#endif  // WEFT_OPS_KERNELS_CUDA_ELEMENTWISE_MAP_BODY_H_
