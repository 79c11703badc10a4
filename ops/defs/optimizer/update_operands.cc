#include "ops/defs/optimizer/update_operands.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "ops/defs/rules/rules.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

bool Contains(const std::vector<int>& list, int i) {
  return std::find(list.begin(), list.end(), i) != list.end();
}

std::string InputName(const InferenceContext& context, int i) {
  return context.node().schema->FormalInput(i)->name;
}

absl::Status CheckLikeWeight(const InferenceContext& context, int i) {
  const ValueType& weight = context.InputType(0);
  const ValueType& type = context.InputType(i);
  const std::optional<Shape> expected = weight.shape.ToConcrete();
  const std::optional<Shape> actual = type.shape.ToConcrete();
  const bool same_shape = !expected.has_value() || !actual.has_value() || *expected == *actual;
  if (same_shape && type.dtype == weight.dtype) return absl::OkStatus();
  return context.Error(absl::StrCat("input ", InputName(context, i), " is ", type.ToString(),
                                    "; it must have the type of ", InputName(context, 0), ", ",
                                    weight.ToString()));
}

absl::Status CheckScalar(const InferenceContext& context, int i) {
  const std::optional<Shape> shape = context.InputShape(i).ToConcrete();
  if (!shape.has_value() || shape->num_elements() == 1) return absl::OkStatus();
  return context.Error(absl::StrCat("input ", InputName(context, i), " is ",
                                    context.InputType(i).ToString(), "; it must be a scalar"));
}

}  // namespace

OpSchema UpdateOp(std::string name) {
  return OpSchema::Weft(std::move(name))
      .Input("w", {DType::kFloat32, DType::kFloat64})
      .Input("g", {DType::kFloat32, DType::kFloat64})
      .Input("learning_rate", {DType::kFloat32, DType::kFloat64})
      .NeverLearnable()
      .NoGradient("optimizers end a step");
}

absl::Status InferUpdate(InferenceContext& context, const std::vector<int>& scalars) {
  for (int i = 1; i < context.num_inputs(); ++i) {
    if (!context.HasInput(i)) continue;
    WEFT_RETURN_IF_ERROR(Contains(scalars, i) ? CheckScalar(context, i)
                                              : CheckLikeWeight(context, i));
  }
  for (int i = 0; i < context.num_outputs(); ++i) {
    if (context.HasOutput(i)) context.SetOutput(i, context.InputType(0));
  }
  return absl::OkStatus();
}

absl::Status CheckStatePair(const InferenceContext& context, int input, int output) {
  if (!context.HasOutput(output) || context.HasInput(input)) return absl::OkStatus();
  const std::string name = context.node().schema->FormalInput(input)->name;
  return context.Error(absl::StrCat("output new_", name, " needs the input ", name));
}

ShardingFn UpdateRule(std::vector<int> scalars) {
  return [scalars = std::move(scalars)](const NodeView& view) -> absl::StatusOr<FactorRule> {
    FactorRuleBuilder rule;
    const std::vector<int> factors = rule.Factors(view.InputShape(0));
    for (int i = 0; i < view.num_inputs(); ++i) {
      if (Contains(scalars, i) || !view.HasInput(i)) {
        rule.ReplicatedInput(view.InputShape(i));
      } else {
        rule.Input(factors);
      }
    }
    for (int i = 0; i < view.num_outputs(); ++i) {
      rule.Output(view.HasOutput(i) ? factors : std::vector<int>());
    }
    return rule.Build();
  };
}

double Hyperparameter(const Attributes& attributes, const std::string& name, double fallback) {
  if (!attributes.Has(name)) return fallback;
  const float value = attributes.Float(name, static_cast<float>(fallback));
  char text[32];
  const std::to_chars_result end = std::to_chars(text, text + sizeof(text), value);
  double written = value;
  if (std::isfinite(value) && end.ec == std::errc()) std::from_chars(text, end.ptr, written);
  return written;
}

}  // namespace weft
