// Reductions of any dtype by plain loops, and the axes of a node that reduces.
#ifndef WEFT_OPS_KERNELS_CPU_REDUCTION_REDUCE_PLAIN_H_
#define WEFT_OPS_KERNELS_CPU_REDUCTION_REDUCE_PLAIN_H_

#include <algorithm>
#include <vector>

#include "ops/axes.h"
#include "ops/kernels/cpu/blocks/operand.h"
#include "ops/kernels/cpu/blocks/parallel.h"
#include "ops/kernels/cpu/reduction/reduce_plan.h"

namespace weft::cpu {

// One flag per axis of input 0, from input 1 and the attributes.
inline absl::StatusOr<std::vector<bool>> ReducedAxesOf(const PrepareContext& context) {
  const Tensor* axes = context.HasInput(1) ? context.InputValue(1) : nullptr;
  if (context.HasInput(1) && axes == nullptr) {
    return context.InvalidArgument("the axes must be known when the program is compiled");
  }
  return ReducedAxes(context.InputShape(0).rank(), axes,
                     context.attributes().Int("noop_with_empty_axes", 0) != 0);
}

// Columns that are reduced side by side where the kept axis is the contiguous one.
inline constexpr int64_t kReduceColumns = 64;

// A Reducer has a type Total, a constant kInitial of it, Add(Total&, element) and
// T Result(Total, double parameter). Elements are added in the order of the input.
template <typename Reducer, typename T>
void ReduceTiles(const ReducePlan& plan, double parameter, double nanoseconds, int threads,
                 const T* x, T* out) {
  const int64_t width = plan.kept.back().size;
  const int64_t tiles = (width + kReduceColumns - 1) / kReduceColumns;
  const double cost = nanoseconds * static_cast<double>(plan.rows * plan.run.size * kReduceColumns);
  ParallelFor(threads, plan.outputs / width * tiles, cost, 1, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      const int64_t column = t % tiles * kReduceColumns;
      const int64_t columns = std::min(kReduceColumns, width - column);
      const int64_t first = t / tiles * width + column;
      const T* base = x + plan.KeptOffset(first);
      typename Reducer::Total totals[kReduceColumns];
      std::fill(totals, totals + columns, Reducer::kInitial);
      for (int64_t r = 0; r < plan.rows; ++r) {
        const T* row = base + plan.RowOffset(r);
        for (int64_t i = 0; i < plan.run.size; ++i, row += plan.run.stride) {
          for (int64_t c = 0; c < columns; ++c) Reducer::Add(totals[c], Load(row[c]));
        }
      }
      for (int64_t c = 0; c < columns; ++c) {
        out[first + c] = Reducer::Result(totals[c], parameter);
      }
    }
  });
}

template <typename Reducer, typename T>
void ReducePlain(const ReducePlan& plan, double parameter, int threads, const T* x, T* out,
                 double nanoseconds = 1.0) {
  if (plan.outputs == 0) return;
  if (plan.has_columns() && !plan.reduces_nothing()) {
    return ReduceTiles<Reducer, T>(plan, parameter, nanoseconds, threads, x, out);
  }
  const double cost = nanoseconds * static_cast<double>(plan.rows * plan.run.size);
  ParallelFor(threads, plan.outputs, 5 + cost, 1, [&](int64_t begin, int64_t end) {
    for (int64_t o = begin; o < end; ++o) {
      const T* base = x + plan.KeptOffset(o);
      typename Reducer::Total total = Reducer::kInitial;
      for (int64_t r = 0; r < plan.rows; ++r) {
        const T* row = base + plan.RowOffset(r);
        for (int64_t i = 0; i < plan.run.size; ++i) {
          Reducer::Add(total, Load(row[i * plan.run.stride]));
        }
      }
      out[o] = Reducer::Result(total, parameter);
    }
  });
}

}  // namespace weft::cpu

#endif  // WEFT_OPS_KERNELS_CPU_REDUCTION_REDUCE_PLAIN_H_
