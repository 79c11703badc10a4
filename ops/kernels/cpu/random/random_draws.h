// The random numbers of a node, by the place of an element in the whole tensor.
#ifndef WEFT_OPS_KERNELS_CPU_RANDOM_RANDOM_DRAWS_H_
#define WEFT_OPS_KERNELS_CPU_RANDOM_RANDOM_DRAWS_H_

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>

#include "ops/random_draws.h"

namespace weft::cpu {

// Calls fn(first element of the output at hand, its place in the step, count) for runs of at most
// `max_run` elements that lie side by side in both, in order.
template <typename Fn>
void ForEachGlobalRun(const KernelContext& context, const Shape& shape, const OperandSlice& slice,
                      int64_t max_run, Fn fn) {
  const int rank = shape.rank();
  const int64_t base = FirstPlace(context, slice.global_shape);
  const int64_t run = rank == 0 ? 1 : shape.dim(rank - 1);
  const int64_t rows = run == 0 ? 0 : shape.num_elements() / run;
  for (int64_t row = 0; row < rows; ++row) {
    int64_t rest = row;
    int64_t place = rank == 0 ? 0 : slice.offset[rank - 1];
    int64_t stride = rank == 0 ? 1 : slice.global_shape.dim(rank - 1);
    for (int d = rank - 2; d >= 0; --d) {
      place += (slice.offset[d] + rest % shape.dim(d)) * stride;
      rest /= shape.dim(d);
      stride *= slice.global_shape.dim(d);
    }
    for (int64_t i = 0; i < run; i += max_run) {
      fn(row * run + i, base + place + i, std::min(max_run, run - i));
    }
  }
}

}  // namespace weft::cpu

#endif  // WEFT_OPS_KERNELS_CPU_RANDOM_RANDOM_DRAWS_H_
