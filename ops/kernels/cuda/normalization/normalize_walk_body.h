// The gradients of layer and RMS normalization in one walk over the rows: dx, and the walkers'
// sums for the parameters, which a fold (ops/kernels/cuda/blocks/fold_body.h) adds up.
#ifndef WEFT_OPS_KERNELS_CUDA_NORMALIZATION_NORMALIZE_WALK_BODY_H_
#define WEFT_OPS_KERNELS_CUDA_NORMALIZATION_NORMALIZE_WALK_BODY_H_

#include <cstdint>

#include "ops/kernels/cuda/blocks/fold_body.h"
#include "ops/kernels/cuda/blocks/line_fold.h"
#include "ops/kernels/cuda/blocks/number_item.h"
#include "ops/kernels/cuda/normalization/normalize_body.h"
#include "ops/kernels/cuda/normalization/normalize_walk_launch.h"

namespace weft::cuda {

// A walker is 2^log_threads threads of a block. It takes rows w, w + walkers, ...; each of its
// threads has WalkPackets(V) packets of a row in registers, those of the next row on their way, and
// the sums of its columns. The scale is in shared memory. Formulas: NormalizeGradSource,
// NormalizeColumnsSource.
template <int V, typename T, bool kRms>
struct NormalizeWalkBody {
  using C = Compute<T>;
  static constexpr int kMinBlocks = 3;
  static constexpr int kPackets = WalkPackets(V);

  NormalizeWalk walk;
  NormalizeGradOperands<T> operands;
  C* scales;  // [walkers, columns]
  C* biases;  // null of RMS

  template <class Gpu>
  WEFT_GPU void operator()(Gpu& gpu) const {
    const int threads = 1 << walk.log_threads;
    const int member = gpu.thread() & (threads - 1);
    const int32_t walker = static_cast<int32_t>(gpu.block()) * (gpu.threads() >> walk.log_threads) +
                           (gpu.thread() >> walk.log_threads);
    const int size = walker < walk.walkers ? walk.columns : 0;
    const auto scale = gpu.template Shared<1, Packet<T, V>, kWalkThreads * kPackets>();
    for (int p = gpu.thread(); p < walk.columns / V; p += gpu.threads()) {
      scale[p] = gpu.template Load<V>(gpu.Global(operands.scale), int64_t{p} * V);
    }
    gpu.Barrier();
    Sums sums = {};
    Row row = Load(gpu, member, size, walker);
    // All threads of a block take as many turns, as they meet in each.
    int32_t at = walker;
    for (int32_t turn = 0; turn < walk.turns; ++turn) {
      const Row next = Load(gpu, member, size, at + walk.walkers);
      AddRow(gpu, member, at < walk.rows ? size : 0, at, turn & 1, scale, row, sums);
      row = next;
      at += walk.walkers;
    }
    WEFT_UNROLL
    for (int k = 0; k < kPackets; ++k) {
      const int position = (member + k * threads) * V;
      if (position >= size) continue;
      Store(gpu, scales, int64_t{walker} * walk.columns + position, sums.scale[k]);
      if constexpr (!kRms)
        Store(gpu, biases, int64_t{walker} * walk.columns + position, sums.bias[k]);
    }
  }

 private:
  // What a thread has of a row.
  struct Row {
    Packet<T, V> dy[kPackets];
    Packet<T, V> x[kPackets];
    C mean;
    C inverse;
  };
  struct Sums {
    C scale[kPackets][V];
    C bias[kPackets][V];
  };

  // Zeros behind the last row.
  template <class Gpu>
  WEFT_GPU Row Load(Gpu& gpu, int member, int size, int32_t at) const {
    Row row = {};
    if (at >= walk.rows || size == 0) return row;
    if constexpr (!kRms) {
      row.mean = gpu.Global(operands.mean)[at];
      row.inverse = gpu.Global(operands.inverse)[at];
    }
    const int64_t start = int64_t{at} * walk.columns;
    WEFT_UNROLL
    for (int k = 0; k < kPackets; ++k) {
      const int position = (member + (k << walk.log_threads)) * V;
      if (position >= size) continue;
      row.dy[k] = gpu.template Load<V>(gpu.Global(operands.dy), start + position);
      row.x[k] = gpu.template Load<V>(gpu.Global(operands.x), start + position);
    }
    return row;
  }

  template <class Gpu, typename Memory>
  WEFT_GPU void AddRow(Gpu& gpu, int member, int size, int32_t at, int turn, const Memory& scale,
                       const Row& row, Sums& sums) const {
    const int threads = 1 << walk.log_threads;
    Pair<C> total = PairFold<C>::Initial();
    WEFT_UNROLL
    for (int k = 0; k < kPackets; ++k) {
      const int position = (member + k * threads) * V;
      if (position >= size) continue;
      const Packet<T, V> factors = scale[member + k * threads];
      C first = 0;
      C second = 0;
      WEFT_UNROLL
      for (int v = 0; v < V; ++v) {
        const C g = Widen(row.dy[k].values[v]) * Widen(factors.values[v]);
        const C n =
            kRms ? Widen(row.x[k].values[v]) : (Widen(row.x[k].values[v]) - row.mean) * row.inverse;
        first += kRms ? n * n : g;
        second += g * n;
      }
      total.a += first;
      total.b += second;
    }
    total = OverWalker(gpu, threads, turn, total);
    if (size == 0) return;
    const C along = total.b / static_cast<C>(size);
    C inverse = row.inverse;
    C mean_g = 0;
    C mean_gn = along;
    if constexpr (kRms) {
      inverse = InverseDeviation<C>(total.a, size, operands.epsilon);
      mean_gn = inverse * along;
    } else {
      mean_g = total.a / static_cast<C>(size);
    }
    WEFT_UNROLL
    for (int k = 0; k < kPackets; ++k) {
      const int position = (member + k * threads) * V;
      if (position >= size) continue;
      const Packet<T, V> factors = scale[member + k * threads];
      NumberItem<T, V> result;
      WEFT_UNROLL
      for (int v = 0; v < V; ++v) {
        const C slope = Widen(row.dy[k].values[v]);
        const C n = (Widen(row.x[k].values[v]) - row.mean) * inverse;
        result.values[v] = inverse * (slope * Widen(factors.values[v]) - mean_g - n * mean_gn);
        sums.scale[k][v] += slope * n;
        if constexpr (!kRms) sums.bias[k][v] += slope;
      }
      if (operands.dx != nullptr) {
        StoreNumbers<V>(gpu, operands.dx, int64_t{at} * walk.columns + position, result);
      }
    }
  }

  // For each thread of the walker. Turns alternate between two halves of the shared memory: who
  // writes one half has met, in the turn between, all that read it.
  template <class Gpu>
  WEFT_GPU static Pair<C> OverWalker(Gpu& gpu, int threads, int turn, Pair<C> total) {
    using Fold = PairFold<C>;
    for (int mask = (threads < kWarp ? threads : kWarp) / 2; mask > 0; mask /= 2) {
      total = Fold::Combine(total, Fold::Exchange(gpu, total, mask));
    }
    if (threads <= kWarp) return total;
    constexpr int kWarps = kWalkThreads / kWarp;
    const auto shared = gpu.template Shared<0, Pair<C>, 2 * kWarps>();
    if (gpu.lane() == 0) shared[turn * kWarps + gpu.warp()] = total;
    gpu.Barrier();
    const int warps = threads / kWarp;
    const int first = turn * kWarps + gpu.warp() / warps * warps;
    total = Fold::Initial();
    if (gpu.lane() < warps) {
      const Pair<C> of_warp = shared[first + gpu.lane()];
      total = of_warp;
    }
    for (int mask = kWarps / 2; mask > 0; mask /= 2) {
      total = Fold::Combine(total, Fold::Exchange(gpu, total, mask));
    }
    // Lanes from kWarps on have nothing.
    return {gpu.Shuffle(total.a, 0), gpu.Shuffle(total.b, 0)};
  }

  template <class Gpu>
  static WEFT_GPU void Store(Gpu& gpu, C* to, int64_t at, const C (&values)[V]) {
    constexpr int kWidth = V < kWidest<C> ? V : kWidest<C>;
    WEFT_UNROLL
    for (int begin = 0; begin < V; begin += kWidth) {
      Packet<C, kWidth> packet;
      WEFT_UNROLL
      for (int v = 0; v < kWidth; ++v) packet.values[v] = values[begin + v];
      gpu.template Store<kWidth>(gpu.Global(to), at + begin, packet);
    }
  }
};

// Columns of the walkers' sums, in double.
template <typename T, bool kRms>
struct WalkSumsSource {
  using C = Compute<T>;
  using Total = Pair<double>;
  static constexpr int kWidth = kWalkSumsWidth;
  template <int V>
  using State = Stateless;

  const C* scales = nullptr;
  const C* biases = nullptr;  // null of RMS
  T* dscale = nullptr;        // may be null
  T* dbias = nullptr;         // may be null

  static WEFT_GPU Total Initial() { return PairFold<double>::Initial(); }
  static WEFT_GPU Total Combine(Total a, Total b) { return PairFold<double>::Combine(a, b); }
  template <int V, class Gpu>
  WEFT_GPU Stateless Open(Gpu&, int64_t, int64_t, bool) const {
    return {};
  }
  template <int V, int K, class Gpu>
  WEFT_GPU void Add(Gpu& gpu, const Stateless&, const int64_t (&at)[K], int64_t, int,
                    Total (&totals)[V]) const {
    Packet<C, V> of_scale[K];
    [[maybe_unused]] Packet<C, V> of_bias[K];
    WEFT_UNROLL
    for (int k = 0; k < K; ++k) {
      of_scale[k] = gpu.template Load<V>(gpu.Global(scales), at[k]);
      if constexpr (!kRms) of_bias[k] = gpu.template Load<V>(gpu.Global(biases), at[k]);
    }
    WEFT_UNROLL
    for (int v = 0; v < V; ++v) {
      WEFT_UNROLL
      for (int k = 0; k < K; ++k) {
        totals[v].a += static_cast<double>(of_scale[k].values[v]);
        if constexpr (!kRms) totals[v].b += static_cast<double>(of_bias[k].values[v]);
      }
    }
  }
  template <class Gpu>
  WEFT_GPU void Finish(Gpu& gpu, int64_t column, Total total) const {
    if (dscale != nullptr) gpu.Global(dscale)[column] = Narrow<T>(static_cast<C>(total.a));
    if (dbias != nullptr) gpu.Global(dbias)[column] = Narrow<T>(static_cast<C>(total.b));
  }
};

}  // namespace weft::cuda

#endif  // WEFT_OPS_KERNELS_CUDA_NORMALIZATION_NORMALIZE_WALK_BODY_H_
