// FoldBody: many elements become one, for each element of an output. The engine of reductions and
// of sums inside other kernels. A Source says what is read, how it is added up and what is done
// with a total; ops/kernels/cuda/blocks/fold_plan.h lays out the threads.
//
//   struct Source {
//     using Total = double;                    plain values without padding
//     static constexpr int kWidth = 4;         elements of a packet; 1: there are none
//     static constexpr bool kRagged = true;    may be left out: takes ragged rows (FoldLayout), for
//                                              Add does not ask for the unit
//     template <int V> struct State;           per output: what Add needs beside the elements
//     static Total Initial();
//     static Total Combine(Total a, Total b);  commutative
//     template <int V> State<V> Open(gpu, output, base, columns) const;
//     template <int V, int K> void Add(gpu, state, at, unit, step, totals) const;
//     void Finish(gpu, output, total) const;   by one thread for each output
//   };
//
// Add adds K packets of V elements, those at offsets at[k], which are units unit + k * step of
// their outputs. Element v of a packet goes to totals[v].
#ifndef WEFT_OPS_KERNELS_CUDA_BLOCKS_FOLD_BODY_H_
#define WEFT_OPS_KERNELS_CUDA_BLOCKS_FOLD_BODY_H_

#include <cstdint>

#include "ops/kernels/cuda/blocks/fold_layout.h"
#include "ops/kernels/cuda/language/gpu.h"

namespace weft::cuda {

// A State of nothing.
struct Stateless {};

// The totals of threads `distance`, 2 * `distance`, ... apart, for the first of them: part 0 of
// `parts`. With `all`, each of the V totals; else the first. Uses shared memory kId.
template <int kId, int V, class Source, class Gpu, typename Total>
WEFT_GPU void FoldParts(Gpu& gpu, Total (&totals)[V], int part, int parts, int distance, bool all) {
  const auto shared = gpu.template Shared<kId, Total, V * kFoldThreads>();
  const int thread = gpu.thread();
  for (int half = parts / 2; half > 0; half /= 2) {
    if (part < 2 * half) {
      WEFT_UNROLL
      for (int v = 0; v < V; ++v) {
        if (v == 0 || all) shared[v * kFoldThreads + thread] = totals[v];
      }
    }
    gpu.Barrier();
    // Who reads here wrote above, and what is read is not written again.
    if (part < half) {
      WEFT_UNROLL
      for (int v = 0; v < V; ++v) {
        if (v > 0 && !all) continue;
        const Total other = shared[v * kFoldThreads + thread + half * distance];
        totals[v] = Source::Combine(totals[v], other);
      }
    }
  }
}

template <class Source>
concept AddsRaggedRows = requires {
  requires Source::kRagged;
};

// V: elements of a packet. Blocks along y are the chunks of each output.
template <int V, class Source>
struct FoldBody {
  using Total = typename Source::Total;

  FoldLayout layout;
  Source source;
  Total* partials = nullptr;  // [chunks, outputs]; null: totals are finished here

  template <class Gpu>
  WEFT_GPU void operator()(Gpu& gpu) const {
    const int thread = gpu.thread();
    const bool columns = layout.columns != 0;
    const int part = columns ? thread >> layout.log_lanes : thread & (layout.parts() - 1);
    const int lane = columns ? thread & (layout.lanes() - 1) : thread >> layout.log_parts;
    const int64_t group = gpu.block() * layout.lanes() + lane;
    Total totals[V];
    WEFT_UNROLL
    for (int v = 0; v < V; ++v) totals[v] = Source::Initial();
    if (group < layout.groups) AddChunk(gpu, group, part, columns, totals);
    if (!columns) {
      WEFT_UNROLL
      for (int v = 1; v < V; ++v) totals[0] = Source::Combine(totals[0], totals[v]);
    }
    FoldParts<0, V, Source>(gpu, totals, part, layout.parts(), columns ? layout.lanes() : 1,
                            columns);
    if (part != 0 || group >= layout.groups) return;
    WEFT_UNROLL
    for (int v = 0; v < V; ++v) {
      if (v > 0 && !columns) continue;
      const int64_t output = columns ? group * V + v : group;
      if (partials == nullptr) {
        source.Finish(gpu, output, totals[v]);
      } else {
        const int64_t outputs = columns ? layout.groups * V : layout.groups;
        gpu.Global(partials)[gpu.block_y() * outputs + output] = totals[v];
      }
    }
  }

 private:
  static constexpr int kAhead = 4;  // packets that are on their way at a time

  template <class Gpu>
  WEFT_GPU void AddChunk(Gpu& gpu, int64_t group, int part, bool columns,
                         Total (&totals)[V]) const {
    const int64_t first = gpu.block_y() * layout.chunk;
    const int64_t end = first + layout.chunk < layout.units ? first + layout.chunk : layout.units;
    if (first >= end) return;
    const int64_t base = layout.kept.Offset(group);
    const auto state = source.template Open<V>(gpu, columns ? group * V : group, base, columns);
    const int step = layout.parts();
    if constexpr (V > 1 && AddsRaggedRows<Source>) {
      if (layout.ragged != 0) {
        AddRagged(gpu, group, base, first, end, part, totals);
        return;
      }
    }
    int64_t unit = first + part;
    for (; unit + (kAhead - 1) * step < end; unit += kAhead * step) {
      int64_t at[kAhead];
      WEFT_UNROLL
      for (int k = 0; k < kAhead; ++k) at[k] = base + layout.reduced.Offset(unit + k * step);
      source.template Add<V, kAhead>(gpu, state, at, unit, step, totals);
    }
    for (; unit < end; unit += step) {
      const int64_t at[1] = {base + layout.reduced.Offset(unit)};
      source.template Add<V, 1>(gpu, state, at, unit, step, totals);
    }
  }

  // Elements first to end of a row that begins at `base`.
  template <class Gpu>
  WEFT_GPU void AddRagged(Gpu& gpu, int64_t group, int64_t base, int64_t first, int64_t end,
                          int part, Total (&totals)[V]) const {
    const int step = layout.parts();
    const int64_t whole = first + (V - (base + first) % V) % V;  // where packets begin
    const int64_t packets = whole < end ? (end - whole) / V : 0;
    const auto state = source.template Open<V>(gpu, group, base, false);
    int64_t p = part;
    for (; p + (kAhead - 1) * step < packets; p += kAhead * step) {
      int64_t at[kAhead];
      WEFT_UNROLL
      for (int k = 0; k < kAhead; ++k) at[k] = base + whole + (p + k * step) * V;
      source.template Add<V, kAhead>(gpu, state, at, p, step, totals);
    }
    for (; p < packets; p += step) {
      const int64_t at[1] = {base + whole + p * V};
      source.template Add<V, 1>(gpu, state, at, p, step, totals);
    }
    const auto single_state = source.template Open<1>(gpu, group, base, false);
    Total single[1] = {totals[0]};
    const int64_t singles = end - first - packets * V;
    for (int64_t s = part; s < singles; s += step) {
      const bool in_front = first + s < whole;
      const int64_t at[1] = {base + first + s + (in_front ? 0 : packets * V)};
      source.template Add<1, 1>(gpu, single_state, at, s, step, single);
    }
    totals[0] = single[0];
  }
};

// Folds the chunks' totals.
template <class Source>
struct FoldPartialsBody {
  using Total = typename Source::Total;

  Source source;
  const Total* partials = nullptr;  // [chunks, outputs]
  int64_t chunks = 0;
  int64_t outputs = 0;
  int32_t log_lanes = 0;  // outputs of a block

  template <class Gpu>
  WEFT_GPU void operator()(Gpu& gpu) const {
    const int lanes = 1 << log_lanes;
    const int lane = gpu.thread() & (lanes - 1);
    const int part = gpu.thread() >> log_lanes;
    const int parts = kFoldThreads >> log_lanes;
    const int64_t output = gpu.block() * lanes + lane;
    Total totals[1] = {Source::Initial()};
    if (output < outputs) {
      const auto from = gpu.Global(partials);
      for (int64_t chunk = part; chunk < chunks; chunk += parts) {
        const Total other = from[chunk * outputs + output];
        totals[0] = Source::Combine(totals[0], other);
      }
    }
    FoldParts<0, 1, Source>(gpu, totals, part, parts, lanes, true);
    if (part == 0 && output < outputs) source.Finish(gpu, output, totals[0]);
  }
};

}  // namespace weft::cuda

#endif  // WEFT_OPS_KERNELS_CUDA_BLOCKS_FOLD_BODY_H_
