#include "ops/kernels/cuda/blocks/broadcast_plan.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "absl/strings/str_cat.h"

namespace weft::cuda {
namespace {

using PlanAxis = BroadcastPlan::Axis;

std::atomic<int64_t> factory_limit = kPieceLimit - 1;

// Cuts of long axes keep addresses aligned.
constexpr int64_t kCutGrain = 64;

// True if walking `major` and then `minor` is walking one axis, for every operand.
bool IsOneAxis(const PlanAxis& major, const PlanAxis& minor) {
  for (size_t k = 0; k < major.strides.size(); ++k) {
    if (major.strides[k] != minor.strides[k] * minor.size) return false;
  }
  return true;
}

void Cut(const BroadcastPiece& whole, int64_t limit, std::vector<BroadcastPiece>& pieces) {
  if (whole.plan.elements <= limit) {
    pieces.push_back(whole);
    return;
  }
  const PlanAxis& major = whole.plan.axes.back();
  const int64_t inner = whole.plan.elements / major.size;
  int64_t steps = limit / inner;  // 0: one step along the axis is too much
  if (steps > kCutGrain) steps = steps / kCutGrain * kCutGrain;
  for (int64_t at = 0; at < major.size; at += std::max<int64_t>(steps, 1)) {
    BroadcastPiece piece = whole;
    piece.output += at * inner;
    for (size_t k = 0; k < piece.operands.size(); ++k) piece.operands[k] += at * major.strides[k];
    if (steps > 0) {
      piece.plan.axes.back().size = std::min(steps, major.size - at);
    } else {
      piece.plan.axes.pop_back();  // so it was not the only axis
    }
    piece.plan.elements = 1;
    for (const PlanAxis& axis : piece.plan.axes) piece.plan.elements *= axis.size;
    Cut(piece, limit, pieces);
  }
}

}  // namespace

BroadcastPlan BroadcastPlan::OfStrides(const std::vector<Axis>& axes, size_t operands) {
  BroadcastPlan plan;
  for (const Axis& axis : axes) {
    plan.elements *= axis.size;
    if (axis.size == 1) continue;
    if (!plan.axes.empty() && IsOneAxis(plan.axes.back(), axis)) {
      plan.axes.back() = {plan.axes.back().size * axis.size, axis.strides};
    } else {
      plan.axes.push_back(axis);
    }
  }
  if (plan.axes.empty()) plan.axes.push_back({1, std::vector<int64_t>(operands, 0)});
  std::reverse(plan.axes.begin(), plan.axes.end());
  return plan;
}

BroadcastPlan BroadcastPlan::Make(const Shape& output, const std::vector<Shape>& operands) {
  std::vector<Axis> axes;
  for (int d = 0; d < output.rank(); ++d) {
    Axis axis{output.dim(d), {}};
    for (const Shape& operand : operands) {
      const int own = d - (output.rank() - operand.rank());
      const bool is_broadcast = own < 0 || operand.dim(own) == 1;
      axis.strides.push_back(is_broadcast ? 0 : operand.ProductOf(own + 1, operand.rank()));
    }
    axes.push_back(std::move(axis));
  }
  return OfStrides(axes, operands.size());
}

bool BroadcastPlan::HasPackets(int width) const {
  if (axes[0].size % width != 0) return false;
  for (size_t k = 0; k < axes[0].strides.size(); ++k) {
    const int64_t inner = axes[0].strides[k];
    if (inner == 0) continue;
    if (inner != 1) return false;
    for (size_t d = 1; d < axes.size(); ++d) {
      if (axes[d].strides[k] % width != 0) return false;
    }
  }
  return true;
}

int64_t BroadcastPlan::Reach(size_t operand) const {
  int64_t reach = 0;
  for (const Axis& axis : axes) reach += (axis.size - 1) * axis.strides[operand];
  return reach;
}

std::vector<BroadcastPiece> Pieces(const BroadcastPlan& plan, int64_t limit) {
  std::vector<BroadcastPiece> pieces;
  if (plan.elements == 0) return pieces;
  Cut({plan, 0, std::vector<int64_t>(plan.axes[0].strides.size(), 0)}, limit, pieces);
  return pieces;
}

int64_t PieceLimitOfFactories() { return factory_limit.load(std::memory_order_relaxed); }
void SetPieceLimitForTesting(int64_t limit) {
  factory_limit.store(limit, std::memory_order_relaxed);
}

absl::StatusOr<std::vector<BroadcastPiece>> PiecesOfInputs(const PrepareContext& context) {
  std::vector<Shape> shapes;
  for (int i = 0; i < context.num_inputs(); ++i) shapes.push_back(context.InputShape(i));
  const BroadcastPlan plan = BroadcastPlan::Make(context.OutputShape(0), shapes);
  if (plan.elements > 0 && plan.axes.size() > kMaxBroadcastAxes) {
    return context.Unimplemented(absl::StrCat("the operands broadcast along ", plan.axes.size(),
                                              " axes in turn, the kernel walks ",
                                              kMaxBroadcastAxes));
  }
  return Pieces(plan, PieceLimitOfFactories());
}

}  // namespace weft::cuda
