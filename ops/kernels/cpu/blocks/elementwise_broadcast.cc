#include "ops/kernels/cpu/blocks/elementwise_broadcast.h"

namespace weft::cpu {
namespace {

using Axis = BroadcastPlan::Axis;

// Axes of the output with more than one element, each operand's stride on it (0: broadcast).
std::vector<Axis> StridedAxes(const Shape& output, const std::vector<Shape>& operands) {
  std::vector<Axis> axes;
  for (int d = 0; d < output.rank(); ++d) {
    if (output.dim(d) == 1) continue;
    Axis axis{output.dim(d), {}};
    for (size_t k = 0; k < operands.size(); ++k) {
      const Shape& shape = operands[k];
      const int own = d - (output.rank() - shape.rank());
      if (own < 0 || shape.dim(own) == 1) continue;
      axis.strides[k] = shape.ProductOf(own + 1, shape.rank());
    }
    axes.push_back(axis);
  }
  return axes;
}

// True if walking `major` and `minor` is walking one axis, for every operand.
bool Mergeable(const Axis& major, const Axis& minor) {
  for (size_t k = 0; k < major.strides.size(); ++k) {
    if (major.strides[k] != minor.strides[k] * minor.size) return false;
  }
  return true;
}

}  // namespace

BroadcastPlan BroadcastPlan::Make(const Shape& output, const std::vector<Shape>& operands) {
  BroadcastPlan plan;
  if (output.num_elements() == 0) {
    plan.rows = 0;
    return plan;
  }
  std::vector<Axis> merged;
  for (const Axis& axis : StridedAxes(output, operands)) {
    if (!merged.empty() && Mergeable(merged.back(), axis)) {
      merged.back() = Axis{merged.back().size * axis.size, axis.strides};
    } else {
      merged.push_back(axis);
    }
  }
  if (merged.empty()) return plan;
  plan.inner = merged.back().size;
  plan.inner_strides = merged.back().strides;
  merged.pop_back();
  for (const Axis& axis : merged) plan.rows *= axis.size;
  plan.outer = std::move(merged);
  return plan;
}

}  // namespace weft::cpu
