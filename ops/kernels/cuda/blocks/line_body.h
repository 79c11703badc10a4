// LineBody and RowBody: kernels that first add something up over a line of a tensor (a maximum, a
// mean), maybe several times, and then write each element of the line. A Source says what. RowBody
// keeps a row in registers between the passes; LineBody reads it again, and takes any stride.
//
//   struct Source {
//     static constexpr int kPasses = 2;
//     static constexpr int kWidth = 4;          elements of a packet; 1: there are none
//     static constexpr bool kRagged = true;     may be left out: takes ragged rows (LineLayout),
//                                               for it reads packets at multiples of `at` alone
//     template <int kPass> using Fold = SumFold<float>;   how a pass adds up
//     (ops/kernels/cuda/blocks/line_fold.h) template <int V> struct Item;             V neighbours
//     of a line, as numbers struct State;                             of a line: what passes found
//     State Open(gpu, line) const;
//     template <int V> Item<V> Load(gpu, state, at, position) const;
//     template <int kPass, int V> void Add(state, item, position, total) const;
//     template <int kPass> void Close(state, total) const;
//     template <int V> void Write(gpu, state, item, at, position) const;
//     void Leave(gpu, state, line) const;       by one thread of each line
//   };
//
// `at`: offset of an item's first element in the tensor; `position`: in its line. Add may change
// the item: Write of RowBody gets it so, that of LineBody as it was read.
#ifndef WEFT_OPS_KERNELS_CUDA_BLOCKS_LINE_BODY_H_
#define WEFT_OPS_KERNELS_CUDA_BLOCKS_LINE_BODY_H_

#include <cstdint>

#include "ops/kernels/cuda/blocks/line_fold.h"
#include "ops/kernels/cuda/blocks/line_layout.h"
#include "ops/kernels/cuda/language/gpu.h"

namespace weft::cuda {

template <class Source>
concept TakesRaggedRows = requires {
  requires Source::kRagged;
};

// V: elements of a packet; 1 where the stride is not 1.
template <int V, class Source>
struct LineBody {
  LineLayout layout;
  Source source;

  template <class Gpu>
  WEFT_GPU void operator()(Gpu& gpu) const {
    const int thread = gpu.thread();
    const int lanes = 1 << layout.log_lanes;
    const int parts = 1 << layout.log_parts;
    const bool rows = layout.stride == 1;
    Place place;
    place.part = rows ? thread & (parts - 1) : thread >> layout.log_lanes;
    place.lane = rows ? thread >> layout.log_parts : thread & (lanes - 1);
    place.distance = rows ? 1 : lanes;
    const int64_t line = gpu.block() * lanes + place.lane;
    place.exists = line < layout.lines;
    typename Source::State state = {};
    if (place.exists) {
      place.start = rows
                        ? line * layout.size
                        : line / layout.stride * layout.stride * layout.size + line % layout.stride;
      state = source.Open(gpu, line);
      place.packets = layout.size / V;
      if constexpr (kMayBeRagged) {
        if (layout.ragged != 0) {
          place.head = static_cast<int>((V - place.start % V) % V);
          place.packets = (layout.size - place.head) / V;
        }
      }
    }
    Pass<0>(gpu, place, state);
    if constexpr (Source::kPasses > 1) Pass<1>(gpu, place, state);
    if (!place.exists) return;
    int64_t i = place.part;
    for (; i + (kAhead - 1) * parts < place.packets; i += kAhead * parts) {
      WriteItems<kAhead>(gpu, place, state, i, parts);
    }
    for (; i < place.packets; i += parts) WriteItems<1>(gpu, place, state, i, parts);
    if constexpr (kMayBeRagged) {
      const int64_t singles = layout.size - place.packets * V;
      for (int64_t s = place.part; s < singles; s += parts) {
        const int64_t position = SinglePosition(place, s);
        const auto item = source.template Load<1>(gpu, state, place.start + position, position);
        source.template Write<1>(gpu, state, item, place.start + position, position);
      }
    }
    if (place.part == 0) source.Leave(gpu, state, line);
  }

 private:
  struct Place {
    int64_t start = 0;
    int64_t packets = 0;
    int head = 0;  // elements in front of the packets
    int part = 0;
    int lane = 0;
    int distance = 1;  // of the threads of a line
    bool exists = false;
  };

  static constexpr int kAhead = 4;  // items that are on their way at a time
  static constexpr bool kMayBeRagged = V > 1 && TakesRaggedRows<Source>;

  WEFT_GPU static int64_t Position(const Place& place, int64_t i) { return place.head + i * V; }
  WEFT_GPU int64_t At(const Place& place, int64_t i) const {
    return place.start + Position(place, i) * layout.stride;
  }
  // Of the elements that are in no packet, in front and behind.
  WEFT_GPU static int64_t SinglePosition(const Place& place, int64_t s) {
    return s < place.head ? s : place.packets * V + s;
  }

  // Items i, i + step, ... of the line.
  template <int K, class Gpu>
  WEFT_GPU void WriteItems(Gpu& gpu, const Place& place, const typename Source::State& state,
                           int64_t i, int step) const {
    typename Source::template Item<V> items[K];
    WEFT_UNROLL
    for (int k = 0; k < K; ++k) {
      const int64_t j = i + k * step;
      items[k] = source.template Load<V>(gpu, state, At(place, j), Position(place, j));
    }
    WEFT_UNROLL
    for (int k = 0; k < K; ++k) {
      const int64_t j = i + k * step;
      source.template Write<V>(gpu, state, items[k], At(place, j), Position(place, j));
    }
  }
  template <int kPass, int K, class Gpu, typename Total>
  WEFT_GPU void AddItems(Gpu& gpu, const Place& place, const typename Source::State& state,
                         int64_t i, int step, Total& total) const {
    typename Source::template Item<V> items[K];
    WEFT_UNROLL
    for (int k = 0; k < K; ++k) {
      const int64_t j = i + k * step;
      items[k] = source.template Load<V>(gpu, state, At(place, j), Position(place, j));
    }
    WEFT_UNROLL
    for (int k = 0; k < K; ++k) {
      source.template Add<kPass, V>(state, items[k], Position(place, i + k * step), total);
    }
  }

  template <int kPass, class Gpu>
  WEFT_GPU void Pass(Gpu& gpu, const Place& place, typename Source::State& state) const {
    using Fold = typename Source::template Fold<kPass>;
    using Total = typename Fold::Total;
    const int parts = 1 << layout.log_parts;
    Total total = Fold::Initial();
    if (place.exists) {
      int64_t i = place.part;
      for (; i + (kAhead - 1) * parts < place.packets; i += kAhead * parts) {
        AddItems<kPass, kAhead>(gpu, place, state, i, parts, total);
      }
      for (; i < place.packets; i += parts) AddItems<kPass, 1>(gpu, place, state, i, parts, total);
      if constexpr (kMayBeRagged) {
        const int64_t singles = layout.size - place.packets * V;
        for (int64_t s = place.part; s < singles; s += parts) {
          const int64_t position = SinglePosition(place, s);
          auto item = source.template Load<1>(gpu, state, place.start + position, position);
          source.template Add<kPass, 1>(state, item, position, total);
        }
      }
    }
    const auto shared = gpu.template Shared<kPass, Total, kLineThreads>();
    const int thread = gpu.thread();
    for (int half = parts / 2; half > 0; half /= 2) {
      if (place.part < 2 * half) shared[thread] = total;
      gpu.Barrier();
      if (place.part < half) {
        const Total other = shared[thread + half * place.distance];
        total = Fold::Combine(total, other);
      }
    }
    // Part 0 has the total. Nobody else reads its element before or writes it after.
    if (place.part == 0) shared[thread] = total;
    gpu.Barrier();
    const Total whole = shared[thread - place.part * place.distance];
    if (place.exists) source.template Close<kPass>(state, whole);
  }
};

// Rows of at most kMaxRowThreads * kRowPackets packets. A row's threads are 8 to 512, a power of
// two; a block has a multiple of them.
template <int V, class Source>
struct RowBody {
  LineLayout layout;
  Source source;

  template <class Gpu>
  WEFT_GPU void operator()(Gpu& gpu) const {
    const int threads = 1 << layout.log_threads;
    const int member = gpu.thread() & (threads - 1);
    const int64_t row =
        gpu.block() * (gpu.threads() >> layout.log_threads) + (gpu.thread() >> layout.log_threads);
    const bool exists = row < layout.lines;
    const int size = exists ? static_cast<int>(layout.size) : 0;
    const int64_t start = row * layout.size;
    typename Source::State state = {};
    if (exists) state = source.Open(gpu, row);
    typename Source::template Item<V> items[kRowPackets];
    WEFT_UNROLL
    for (int k = 0; k < kRowPackets; ++k) {
      const int position = (member + k * threads) * V;
      if (position < size) {
        items[k] = source.template Load<V>(gpu, state, start + position, position);
      }
    }
    Pass<0>(gpu, member, size, items, state);
    if constexpr (Source::kPasses > 1) Pass<1>(gpu, member, size, items, state);
    WEFT_UNROLL
    for (int k = 0; k < kRowPackets; ++k) {
      const int position = (member + k * threads) * V;
      if (position < size) {
        source.template Write<V>(gpu, state, items[k], start + position, position);
      }
    }
    if (exists && member == 0) source.Leave(gpu, state, row);
  }

 private:
  template <int kPass, class Gpu>
  WEFT_GPU void Pass(Gpu& gpu, int member, int size,
                     typename Source::template Item<V> (&items)[kRowPackets],
                     typename Source::State& state) const {
    using Fold = typename Source::template Fold<kPass>;
    const int threads = 1 << layout.log_threads;
    typename Fold::Total total = Fold::Initial();
    WEFT_UNROLL
    for (int k = 0; k < kRowPackets; ++k) {
      const int position = (member + k * threads) * V;
      if (position < size) source.template Add<kPass, V>(state, items[k], position, total);
    }
    total = OverRow<kPass, Fold>(gpu, threads, total);
    if (size > 0) source.template Close<kPass>(state, total);
  }

  // For each thread of the row.
  template <int kPass, class Fold, class Gpu>
  WEFT_GPU static typename Fold::Total OverRow(Gpu& gpu, int threads, typename Fold::Total total) {
    using Total = typename Fold::Total;
    for (int mask = (threads < kWarp ? threads : kWarp) / 2; mask > 0; mask /= 2) {
      total = Fold::Combine(total, Fold::Exchange(gpu, total, mask));
    }
    if (threads <= kWarp) return total;
    const auto shared = gpu.template Shared<kPass, Total, kMaxRowThreads / kWarp>();
    if (gpu.lane() == 0) shared[gpu.warp()] = total;
    gpu.Barrier();
    const int warps = threads / kWarp;
    const int first = gpu.warp() / warps * warps;
    total = Fold::Initial();
    if (gpu.lane() < warps) {
      const Total of_warp = shared[first + gpu.lane()];
      total = of_warp;
    }
    for (int mask = kWarp / 2; mask > 0; mask /= 2) {
      total = Fold::Combine(total, Fold::Exchange(gpu, total, mask));
    }
    return total;
  }
};

}  // namespace weft::cuda

#endif  // WEFT_OPS_KERNELS_CUDA_BLOCKS_LINE_BODY_H_
