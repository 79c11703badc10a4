#include "ops/kernels/cpu/reduction/reduce_plan.h"

namespace weft::cpu {

ReducePlan ReducePlan::Make(const Shape& input, const std::vector<bool>& reduced) {
  ReducePlan plan;
  int previous_fate = -1;
  for (int d = 0; d < input.rank(); ++d) {
    if (input.dim(d) == 1) continue;
    const Axis axis{input.dim(d), input.ProductOf(d + 1, input.rank())};
    std::vector<Axis>& axes = reduced[d] ? plan.outer_reduced : plan.kept;
    if (previous_fate == (reduced[d] ? 1 : 0)) {
      axes.back() = Axis{axes.back().size * axis.size, axis.stride};
    } else {
      axes.push_back(axis);
    }
    previous_fate = reduced[d] ? 1 : 0;
  }
  if (!plan.outer_reduced.empty()) {
    plan.run = plan.outer_reduced.back();
    plan.outer_reduced.pop_back();
  }
  for (const Axis& axis : plan.kept) plan.outputs *= axis.size;
  for (const Axis& axis : plan.outer_reduced) plan.rows *= axis.size;
  return plan;
}

}  // namespace weft::cpu
