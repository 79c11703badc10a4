// BroadcastPlan: how a loop walks up to three operands that broadcast to one output.
#ifndef WEFT_OPS_KERNELS_CPU_BLOCKS_ELEMENTWISE_BROADCAST_H_
#define WEFT_OPS_KERNELS_CPU_BLOCKS_ELEMENTWISE_BROADCAST_H_

#include <array>
#include <cstdint>
#include <vector>

#include "tensor/shape.h"

namespace weft::cpu {

inline constexpr int kMaxBroadcastOperands = 3;

// The output is `rows` contiguous runs of `inner` elements. Axes are merged as far as every operand
// allows, so that equal shapes, scalars, [N,M]+[M] and [N,C,H,W]+[C,1,1] come out with long runs.
struct BroadcastPlan {
  using Strides = std::array<int64_t, kMaxBroadcastOperands>;
  struct Axis {
    int64_t size = 1;
    Strides strides = {};  // in elements, per operand; 0 where it is broadcast
  };
  std::vector<Axis> outer;  // major first
  int64_t rows = 1;
  int64_t inner = 1;
  Strides inner_strides = {};  // 0 or 1

  // REQUIRES: every operand broadcasts to `output`; at most kMaxBroadcastOperands.
  static BroadcastPlan Make(const Shape& output, const std::vector<Shape>& operands);

  int64_t num_elements() const { return rows * inner; }
};

// Calls fn(offsets of the operands, offset of the output) for the rows [begin, end).
template <typename Fn>
void ForEachRow(const BroadcastPlan& plan, int64_t begin, int64_t end, Fn fn) {
  std::array<int64_t, kMaxRank> index = {};
  BroadcastPlan::Strides offsets = {};
  int64_t rest = begin;
  for (int d = static_cast<int>(plan.outer.size()) - 1; d >= 0; --d) {
    const BroadcastPlan::Axis& axis = plan.outer[d];
    index[d] = rest % axis.size;
    rest /= axis.size;
    for (size_t k = 0; k < offsets.size(); ++k) offsets[k] += index[d] * axis.strides[k];
  }
  for (int64_t row = begin; row < end; ++row) {
    fn(offsets, row * plan.inner);
    for (int d = static_cast<int>(plan.outer.size()) - 1; d >= 0; --d) {
      const BroadcastPlan::Axis& axis = plan.outer[d];
      for (size_t k = 0; k < offsets.size(); ++k) offsets[k] += axis.strides[k];
      if (++index[d] < axis.size) break;
      for (size_t k = 0; k < offsets.size(); ++k) offsets[k] -= axis.size * axis.strides[k];
      index[d] = 0;
    }
  }
}

}  // namespace weft::cpu

#endif  // WEFT_OPS_KERNELS_CPU_BLOCKS_ELEMENTWISE_BROADCAST_H_
