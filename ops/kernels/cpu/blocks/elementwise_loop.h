// Loops of elementwise kernels over threads and rows.
#ifndef WEFT_OPS_KERNELS_CPU_BLOCKS_ELEMENTWISE_LOOP_H_
#define WEFT_OPS_KERNELS_CPU_BLOCKS_ELEMENTWISE_LOOP_H_

#include <algorithm>
#include <cstdint>

#include "ops/kernels/cpu/blocks/elementwise_broadcast.h"
#include "ops/kernels/cpu/blocks/parallel.h"

namespace weft::cpu {

// Borders between threads fall on cache lines.
inline constexpr int64_t kElementGrain = 64;

// Nanoseconds per element, by which loops decide whether a second thread pays.
inline constexpr double kArithmeticNanoseconds = 0.2;
inline constexpr double kVectorFunctionNanoseconds = 0.6;
inline constexpr double kScalarFunctionNanoseconds = 8;

// Calls fn(offsets of the operands, offset of the output, count) for runs that cover the output, on
// up to `threads` threads.
template <typename Fn>
void ForEachRun(const BroadcastPlan& plan, int threads, double nanoseconds_per_element, Fn fn) {
  if (plan.rows == 1) {
    ParallelFor(threads, plan.inner, nanoseconds_per_element, kElementGrain,
                [&](int64_t begin, int64_t end) {
                  BroadcastPlan::Strides offsets = plan.inner_strides;
                  for (int64_t& offset : offsets) offset *= begin;
                  fn(offsets, begin, end - begin);
                });
    return;
  }
  const double nanoseconds_per_row = 10 + nanoseconds_per_element * static_cast<double>(plan.inner);
  ParallelFor(threads, plan.rows, nanoseconds_per_row, 1, [&](int64_t begin, int64_t end) {
    ForEachRow(plan, begin, end, [&](const BroadcastPlan::Strides& offsets, int64_t output) {
      fn(offsets, output, plan.inner);
    });
  });
}

}  // namespace weft::cpu

#endif  // WEFT_OPS_KERNELS_CPU_BLOCKS_ELEMENTWISE_LOOP_H_
