#include "training/graph/loss_scale.h"

#include <cmath>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "graph/partition.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

// 1 / the smallest positive float16.
constexpr float kInverseOfSmallest = 16777216;

// The nodes that decide whether a step counts.
class OverflowRegion {
 public:
  OverflowRegion(GraphBuilder& builder, const LossScaleSpec& spec)
      : graph_(builder.graph()), builder_(builder), spec_(spec) {}

  absl::Status Run(ValueId squares) {
    builder_.set_origin({"", kLossScale, false});
    builder_.set_name_prefix("update/loss_scale/");
    const ValueId broken =
        builder_.Op("Or", {builder_.Op("IsNaN", {squares}), builder_.Op("IsInf", {squares})});
    const ValueId is_finite = builder_.Op("Not", {broken});
    UpdateScale(is_finite);
    CountSkipped(is_finite);
    AddGuard();
    WEFT_RETURN_IF_ERROR(builder_.status());
    SelectUpdates(is_finite);
    return builder_.status();
  }

 private:
  ValueId ValueOf(const char* variable) const { return graph_.FindVariable(variable)->value; }
  ValueId Count(int64_t value) { return builder_.Constant(Tensor::Scalar<int64_t>(value)); }
  void Report(ValueId value, const char* name) {
    if (!builder_.status().ok()) return;
    builder_.Name(value, name);
    graph_.AddOutput(value);
  }

  void UpdateScale(ValueId is_finite) {
    const ValueId scale = ValueOf(kLossScale);
    // A value of its own: the variable has its next value when outputs are read.
    Report(builder_.Op("Mul", {scale, builder_.Float(1)}), kLossScaleOutput);
    const ValueId good = builder_.Op("Add", {ValueOf(kGoodSteps), Count(1)});
    const ValueId is_due = builder_.Op("Equal", {good, Count(spec_.growth_interval)});
    const ValueId grown =
        builder_.Op("Mul", {scale, builder_.Float(static_cast<float>(spec_.growth))});
    const ValueId can_grow = builder_.Op("Not", {builder_.Op("IsInf", {grown})});
    const ValueId grows = builder_.Op("And", {is_due, can_grow});
    const ValueId kept = builder_.Op("Where", {grows, grown, scale});
    const ValueId less =
        builder_.Op("Mul", {scale, builder_.Float(static_cast<float>(spec_.backoff))});
    const ValueId zero = Count(0);
    const ValueId counted = builder_.Op("Where", {is_due, zero, good});
    const ValueId next = builder_.Op("Where", {is_finite, kept, less});
    const ValueId tracked = builder_.Op("Where", {is_finite, counted, zero});
    if (!builder_.status().ok()) return;
    graph_.SetVariableUpdate(kLossScale, next);
    graph_.SetVariableUpdate(kGoodSteps, tracked);
  }

  void CountSkipped(ValueId is_finite) {
    const ValueId skipped = ValueOf(kSkippedSteps);
    const ValueId more = builder_.Op("Add", {skipped, Count(1)});
    const ValueId total = builder_.Op("Where", {is_finite, skipped, more});
    Report(total, kSkippedStepsOutput);
    if (builder_.status().ok()) graph_.SetVariableUpdate(kSkippedSteps, total);
  }

  // Infinite for a scale below the smallest float16, else a number.
  void AddGuard() {
    const ValueId share =
        builder_.Op("Mul", {ValueOf(kLossScale), builder_.Float(kInverseOfSmallest)});
    Report(builder_.Op("Reciprocal", {builder_.Op("Floor", {share})}), kStepGuard);
  }

  // Each other variable changes in steps that count only.
  void SelectUpdates(ValueId is_finite) {
    for (Variable& variable : graph_.mutable_variables()) {
      if (!variable.update.valid() || IsLossScaleState(variable.name)) continue;
      const ValueDef& update = graph_.value(variable.update);
      Origin origin = {"", variable.name, true};
      if (update.source == ValueSource::kNode) origin = graph_.node(update.producer).origin;
      builder_.set_origin(std::move(origin));
      builder_.set_name_prefix(absl::StrCat("update/", variable.name, "/"));
      variable.update = builder_.Op("Where", {is_finite, variable.update, variable.value});
    }
  }

  Graph& graph_;
  GraphBuilder& builder_;
  const LossScaleSpec& spec_;
};

}  // namespace

bool IsLossScaleState(const std::string& variable) {
  return variable == kLossScale || variable == kGoodSteps || variable == kSkippedSteps;
}

absl::Status ValidateLossScale(const LossScaleSpec& spec) {
  const auto check = [](const char* what, double value, double low, double high) -> absl::Status {
    if (value > low && value < high) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat(what, " is ", value, ", expected a number in (", low, ", ", high, ")"));
  };
  absl::Status status = check("the loss scale", spec.initial, 1.0 / kInverseOfSmallest, 1e30);
  status.Update(check("the growth of the loss scale", spec.growth, 1, 1e6));
  status.Update(check("the backoff of the loss scale", spec.backoff, 0, 1));
  status.Update(check("the growth interval of the loss scale",
                      static_cast<double>(spec.growth_interval), 0, 1e15));
  return status;
}

void AddLossScale(Graph& graph, const LossScaleSpec& spec) {
  const auto scalar = [](DType dtype) { return ValueType{ValueKind::kTensor, dtype, Shape{}}; };
  graph.AddVariable(kLossScale, scalar(DType::kFloat32),
                    Tensor::Scalar<float>(static_cast<float>(spec.initial)), /*trainable=*/false);
  for (const char* name : {kGoodSteps, kSkippedSteps}) {
    graph.AddVariable(name, scalar(DType::kInt64), Tensor(), /*trainable=*/false);
  }
}

absl::Status SkipOverflows(GraphBuilder& builder, const LossScaleSpec& spec, ValueId squares) {
  WEFT_RETURN_IF_ERROR(builder.status());
  return OverflowRegion(builder, spec).Run(squares);
}

}  // namespace weft
