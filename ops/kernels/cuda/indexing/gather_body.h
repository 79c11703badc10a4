// Bodies of Gather, GatherElements and of sums over rows.
#ifndef WEFT_OPS_KERNELS_CUDA_INDEXING_GATHER_BODY_H_
#define WEFT_OPS_KERNELS_CUDA_INDEXING_GATHER_BODY_H_

#include <cstdint>

#include "ops/kernels/cuda/blocks/broadcast.h"
#include "ops/kernels/cuda/blocks/fault.h"
#include "ops/kernels/cuda/blocks/real_operand.h"
#include "ops/kernels/cuda/indexing/gather_launch.h"
#include "ops/kernels/cuda/language/gpu.h"
#include "ops/kernels/cuda/language/scalar.h"

namespace weft::cuda {

// The place that index i names on an axis of `size`; -1, after a report, where there is none.
template <class Gpu>
WEFT_GPU int64_t PlaceOf(Gpu& gpu, const IndexInput& indices, int64_t i, int64_t size,
                         const FaultReport& report) {
  const int64_t index = ReadIndex(gpu, indices, i);
  if (!InRange(gpu, report, index, i)) return -1;
  return index < 0 ? index + size : index;
}

// A thread for a few units of the output; zeros where an index is wrong.
template <typename Unit, typename Index>
struct GatherBody {
  static constexpr int kAtOnce = 4;

  const Unit* table;
  IndexInput indices;
  Unit* y;
  Index units;  // of y
  int64_t rows;
  FastDivisor<Index> count;
  FastDivisor<Index> row;
  FaultReport report;

  template <class Gpu>
  WEFT_GPU void operator()(Gpu& gpu) const {
    const auto from = gpu.Global(table);
    const auto to = gpu.Global(y);
    const Index threads = static_cast<Index>(gpu.threads());
    const Index step = static_cast<Index>(gpu.blocks()) * threads * kAtOnce;
    Index first = static_cast<Index>(gpu.block()) * threads * kAtOnce + gpu.thread();
    for (; first < units; first += step) {
      Packet<Unit, 1> values[kAtOnce] = {};
      WEFT_UNROLL
      for (int j = 0; j < kAtOnce; ++j) {
        const Index t = first + j * threads;
        if (t >= units) continue;
        const Division<Index> by_row = row.Divide(t);
        const Division<Index> by_count = count.Divide(by_row.quotient);
        const int64_t place = PlaceOf(gpu, indices, by_count.rest, rows, report);
        if (place < 0) continue;
        const int64_t source = (by_count.quotient * rows + place) * row.divisor() + by_row.rest;
        values[j] = gpu.template Load<1>(from, source);
      }
      WEFT_UNROLL
      for (int j = 0; j < kAtOnce; ++j) {
        const Index t = first + j * threads;
        if (t < units) gpu.template Store<1>(to, t, values[j]);
      }
    }
  }
};

struct RowKeysBody {
  RowKeysCall call;

  template <class Gpu>
  WEFT_GPU void operator()(Gpu& gpu) const {
    for (int64_t r = gpu.index(); r < call.rows; r += gpu.stride()) gpu.Global(call.named)[r] = 0;
    for (int64_t i = gpu.index(); i < call.count; i += gpu.stride()) {
      const int64_t row = PlaceOf(gpu, call.indices, i, call.rows, call.report);
      gpu.Global(call.keys)[i] = static_cast<uint32_t>(row < 0 ? call.rows : row);
    }
  }
};

// What sums of rows are made in, and its packets.
template <typename T>
using RowSum = Compute<T>;
template <typename T>
inline constexpr int kRowWidth = kWidest<RowSum<T>>;

// Walks of the sorted indices, cut into runs of kSumRun. A thread sums kWidth columns of a run, row
// by row. A row whose indices all lie in the run is written; of one that began in a run before, the
// sum becomes partial sum 0 of the run (its head); of one that begins here and goes on in the next
// run it becomes partial sum 1 (its tail). The thread of column 0 marks a row where it begins.
template <typename T, int kWidth, typename Index>
struct SumRunsBody {
  using Sum = RowSum<T>;
  static constexpr int kAtOnce = 4;

  const T* dy;
  const uint32_t* keys;
  const uint32_t* order;
  Sum* partial;  // [outer, runs, 2, inner]
  T* dx;
  uint8_t* named;  // [rows]
  Index threads;   // outer * runs * columns
  Index count;
  int64_t rows;
  FastDivisor<Index> runs;
  FastDivisor<Index> columns;  // packets of a row

  template <class Gpu>
  WEFT_GPU void operator()(Gpu& gpu) const {
    const int64_t inner = int64_t{columns.divisor()} * kWidth;
    const auto all = gpu.Global(keys);
    for (int64_t t = gpu.index(); t < threads; t += gpu.stride()) {
      const Division<Index> by_column = columns.Divide(static_cast<Index>(t));
      const Division<Index> by_run = runs.Divide(by_column.quotient);
      const int64_t column = int64_t{by_column.rest} * kWidth;
      const int64_t outer = by_run.quotient;
      const Index begin = by_run.rest * static_cast<Index>(kSumRun);
      const Index end = count - begin < kSumRun ? count : begin + static_cast<Index>(kSumRun);
      const auto source = gpu.Global(dy) + outer * count * inner + column;
      const auto target = gpu.Global(dx) + outer * rows * inner + column;
      const auto parts = gpu.Global(partial) + int64_t{by_column.quotient} * 2 * inner + column;
      uint32_t key = all[begin];
      bool is_head = false;
      if (begin > 0) is_head = all[begin - 1] == key;
      const bool marks = by_column.rest == 0 && outer == 0;
      if (marks && !is_head) Mark(gpu, key);
      Packet<Sum, kWidth> sum = {};
      for (Index e = begin; e < end; e += kAtOnce) {
        Packet<T, kWidth> packets[kAtOnce] = {};
        uint32_t names[kAtOnce] = {};
        WEFT_UNROLL
        for (int j = 0; j < kAtOnce; ++j) {
          if (e + j >= end) continue;
          names[j] = all[e + j];
          const uint32_t place = gpu.Global(order)[e + j];
          packets[j] = gpu.template Load<kWidth>(source, int64_t{place} * inner);
        }
        WEFT_UNROLL
        for (int j = 0; j < kAtOnce; ++j) {
          if (e + j >= end) continue;
          if (names[j] != key) {
            if (is_head) {
              gpu.template Store<kWidth>(parts, 0, sum);
            } else {
              Write(gpu, target, key, inner, sum);
            }
            sum = {};
            key = names[j];
            is_head = false;
            if (marks) Mark(gpu, key);
          }
          WEFT_UNROLL
          for (int k = 0; k < kWidth; ++k) sum.values[k] += Widen(packets[j].values[k]);
        }
      }
      bool goes_on = false;
      if (end < count) goes_on = all[end] == key;
      if (is_head) {
        gpu.template Store<kWidth>(parts, 0, sum);
      } else if (goes_on) {
        gpu.template Store<kWidth>(parts, inner, sum);
      } else {
        Write(gpu, target, key, inner, sum);
      }
    }
  }

 private:
  template <class Gpu>
  WEFT_GPU void Mark(Gpu& gpu, uint32_t key) const {
    if (key < rows) gpu.Global(named)[key] = 1;
  }
  template <class Gpu, typename Memory>
  WEFT_GPU void Write(Gpu& gpu, const Memory& target, uint32_t key, int64_t inner,
                      const Packet<Sum, kWidth>& sum) const {
    if (key >= rows) return;  // a wrong index
    Packet<T, kWidth> packet;
    WEFT_UNROLL
    for (int k = 0; k < kWidth; ++k) packet.values[k] = Narrow<T>(sum.values[k]);
    gpu.template Store<kWidth>(target, int64_t{key} * inner, packet);
  }
};

// Rows that lie in several runs: the tail of the first and the heads of the others, in double.
template <typename T, int kWidth, typename Index>
struct SumHeadsBody {
  using Sum = RowSum<T>;
  static constexpr int kAtOnce = 4;

  const uint32_t* keys;
  const Sum* partial;
  T* dx;
  Index threads;
  Index count;
  int64_t rows;
  FastDivisor<Index> runs;
  FastDivisor<Index> columns;

  template <class Gpu>
  WEFT_GPU void operator()(Gpu& gpu) const {
    const int64_t inner = int64_t{columns.divisor()} * kWidth;
    const auto all = gpu.Global(keys);
    for (int64_t t = gpu.index(); t < threads; t += gpu.stride()) {
      const Division<Index> by_column = columns.Divide(static_cast<Index>(t));
      const Division<Index> by_run = runs.Divide(by_column.quotient);
      const Index begin = by_run.rest * static_cast<Index>(kSumRun);
      if (count - begin <= kSumRun) continue;
      const Index end = begin + static_cast<Index>(kSumRun);
      const uint32_t key = all[end - 1];
      const uint32_t next = all[end];
      if (next != key || key >= rows) continue;
      if (begin > 0) {
        const uint32_t before = all[begin - 1];
        if (before == key) continue;  // it began in a run before
      }
      // The first index after `end` that is another.
      Index low = end;
      Index high = count;
      while (low < high) {
        const Index middle = low + (high - low) / 2;
        const uint32_t other = all[middle];
        if (other == key) {
          low = middle + 1;
        } else {
          high = middle;
        }
      }
      const int64_t others = (low - 1) / static_cast<Index>(kSumRun) - by_run.rest;
      const int64_t column = int64_t{by_column.rest} * kWidth;
      const auto parts = gpu.Global(partial) + int64_t{by_column.quotient} * 2 * inner + column;
      double sums[kWidth];
      const Packet<Sum, kWidth> tail = gpu.template Load<kWidth>(parts, inner);
      WEFT_UNROLL
      for (int k = 0; k < kWidth; ++k) sums[k] = static_cast<double>(tail.values[k]);
      for (int64_t r = 1; r <= others; r += kAtOnce) {
        Packet<Sum, kWidth> heads[kAtOnce] = {};
        WEFT_UNROLL
        for (int j = 0; j < kAtOnce; ++j) {
          if (r + j <= others) heads[j] = gpu.template Load<kWidth>(parts, (r + j) * 2 * inner);
        }
        WEFT_UNROLL
        for (int j = 0; j < kAtOnce; ++j) {
          WEFT_UNROLL
          for (int k = 0; k < kWidth; ++k) sums[k] += static_cast<double>(heads[j].values[k]);
        }
      }
      Packet<T, kWidth> packet;
      WEFT_UNROLL
      for (int k = 0; k < kWidth; ++k) packet.values[k] = Narrow<T>(static_cast<Sum>(sums[k]));
      gpu.template Store<kWidth>(gpu.Global(dx) + int64_t{by_run.quotient} * rows * inner + column,
                                 int64_t{key} * inner, packet);
    }
  }
};

// Zeros in the rows that are not marked: what SumRunsBody and SumHeadsBody do not write. A thread
// for a few units.
template <typename Unit, typename Index>
struct ClearRowsBody {
  static constexpr int kAtOnce = 4;

  const uint8_t* named;  // [rows]
  Unit* dx;
  Index units;  // of dx
  FastDivisor<Index> rows;
  FastDivisor<Index> row;  // units of a row

  template <class Gpu>
  WEFT_GPU void operator()(Gpu& gpu) const {
    const auto to = gpu.Global(dx);
    const Index threads = static_cast<Index>(gpu.threads());
    const Index step = static_cast<Index>(gpu.blocks()) * threads * kAtOnce;
    Index first = static_cast<Index>(gpu.block()) * threads * kAtOnce + gpu.thread();
    for (; first < units; first += step) {
      uint8_t marks[kAtOnce];
      WEFT_UNROLL
      for (int j = 0; j < kAtOnce; ++j) {
        const Index t = first + j * threads;
        marks[j] = 1;
        if (t >= units) continue;
        const Index place = rows.Divide(row.Divide(t).quotient).rest;
        marks[j] = gpu.Global(named)[place];
      }
      WEFT_UNROLL
      for (int j = 0; j < kAtOnce; ++j) {
        if (marks[j] == 0) gpu.template Store<1>(to, first + j * threads, Packet<Unit, 1>{});
      }
    }
  }
};

template <typename T, typename Index>
struct GatherElementsBody {
  const T* x;
  IndexInput indices;
  T* y;
  Index count;
  int64_t size;
  int64_t stride;
  BroadcastMap<1, Index> map;
  FaultReport report;

  template <class Gpu>
  WEFT_GPU void operator()(Gpu& gpu) const {
    const auto from = gpu.Global(x);
    const auto to = gpu.Global(y);
    for (int64_t i = gpu.index(); i < count; i += gpu.stride()) {
      const int64_t place = PlaceOf(gpu, indices, i, size, report);
      T value = {};
      if (place >= 0) value = from[map.At(static_cast<Index>(i)).of[0] + place * stride];
      to[i] = value;
    }
  }
};

}  // namespace weft::cuda

#endif  // WEFT_OPS_KERNELS_CUDA_INDEXING_GATHER_BODY_H_
