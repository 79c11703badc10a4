#include "ops/defs/optimizer/update_operands.h"

#include <charconv>
#include <cmath>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "ops/defs/rules/rules.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

std::string InputName(const Node& node, int i) { return node.schema->FormalInput(i)->name; }

absl::Status CheckLikeWeight(const InferenceContext& context, int i) {
  const ValueType& weight = context.InputType(0);
  const ValueType& type = context.InputType(i);
  const std::optional<Shape> expected = weight.shape.ToConcrete();
  const std::optional<Shape> actual = type.shape.ToConcrete();
  const bool same_shape = !expected.has_value() || !actual.has_value() || *expected == *actual;
  if (same_shape && type.dtype == weight.dtype) return absl::OkStatus();
  return context.Error(absl::StrCat("input ", InputName(context.node(), i), " is ", type.ToString(),
                                    "; it must have the type of ", InputName(context.node(), 0),
                                    ", ", weight.ToString()));
}

absl::Status CheckScalar(const InferenceContext& context, int i) {
  const std::optional<Shape> shape = context.InputShape(i).ToConcrete();
  if (!shape.has_value() || shape->num_elements() == 1) return absl::OkStatus();
  return context.Error(absl::StrCat("input ", InputName(context.node(), i), " is ",
                                    context.InputType(i).ToString(), "; it must be a scalar"));
}

bool HasInputNamed(const InferenceContext& context, absl::string_view name) {
  for (int i = 0; i < context.num_inputs(); ++i) {
    if (InputName(context.node(), i) == name) return context.HasInput(i);
  }
  return false;
}

absl::Status CheckStatePairs(const InferenceContext& context) {
  for (int i = 1; i < context.num_outputs(); ++i) {
    const std::string& output = context.node().schema->FormalOutput(i)->name;
    absl::string_view state = output;
    if (!context.HasOutput(i) || !absl::ConsumePrefix(&state, "new_")) continue;
    if (HasInputNamed(context, state)) continue;
    return context.Error(absl::StrCat("output ", output, " needs the input ", state));
  }
  return absl::OkStatus();
}

// The slots of a kind, with the attributes of options in place of their names.
std::vector<OptimizerSlot> SlotsByAttribute(const OptimizerKind& kind) {
  std::vector<OptimizerSlot> slots = kind.slots;
  for (OptimizerSlot& slot : slots) {
    const OptimizerOption* const option = kind.FindOption(slot.only_with);
    if (option != nullptr) slot.only_with = option->AttributeName();
  }
  return slots;
}

}  // namespace

bool IsUpdateScalar(const std::string& name) {
  return name == "learning_rate" || name == "step" || name == "scale";
}

OpSchema UpdateOp(const OptimizerKind& kind, double flops_per_element) {
  OpSchema schema = OpSchema::Weft(kind.op);
  schema.Input("w", kUpdateTypes).Input("g", kUpdateTypes).Input("learning_rate", kUpdateTypes);
  schema.NeverLearnable();
  if (kind.needs_step) schema.Input("step", {DType::kInt64});
  schema.Output("new_w").InPlace(0, 0);
  for (const OptimizerSlot& slot : kind.slots) {
    const int input = static_cast<int>(schema.inputs().size());
    schema.InPlace(input, static_cast<int>(schema.outputs().size()));
    const std::string updated = absl::StrCat("new_", slot.name);
    if (slot.only_with.empty()) {
      schema.Input(slot.name, kUpdateTypes).Output(updated);
    } else {
      schema.OptionalInput(slot.name, kUpdateTypes).OptionalOutput(updated);
    }
  }
  schema.Attr("weight_decay", AttributeType::kFloat);
  for (const auto& [name, value] : kind.attributes.items()) schema.Attr(name, TypeOf(value));
  for (const OptimizerOption& option : kind.options) {
    const std::string attribute = option.AttributeName();
    if (!attribute.empty()) schema.Attr(attribute, AttributeType::kFloat);
  }
  schema.Infer(InferUpdate(SlotsByAttribute(kind)))
      .NoGradient("optimizers end a step")
      .Sharding(UpdateRule);
  return schema.CostOf(FlopsPerElement(flops_per_element));
}

InferFn InferUpdate(std::vector<OptimizerSlot> slots) {
  return [slots = std::move(slots)](InferenceContext& context) -> absl::Status {
    for (int i = 1; i < context.num_inputs(); ++i) {
      if (!context.HasInput(i)) continue;
      WEFT_RETURN_IF_ERROR(IsUpdateScalar(InputName(context.node(), i))
                               ? CheckScalar(context, i)
                               : CheckLikeWeight(context, i));
    }
    for (const OptimizerSlot& slot : slots) {
      const bool needed = context.attributes().Float(slot.only_with, 0) != 0;
      if (!needed || HasInputNamed(context, slot.name)) continue;
      return context.Error(absl::StrCat(slot.only_with, " needs the input ", slot.name));
    }
    WEFT_RETURN_IF_ERROR(CheckStatePairs(context));
    for (int i = 0; i < context.num_outputs(); ++i) {
      if (context.HasOutput(i)) context.SetOutput(i, context.InputType(0));
    }
    return absl::OkStatus();
  };
}

absl::StatusOr<FactorRule> UpdateRule(const NodeView& view) {
  FactorRuleBuilder rule;
  const std::vector<int> factors = rule.Factors(view.InputShape(0));
  for (int i = 0; i < view.num_inputs(); ++i) {
    if (!view.HasInput(i) || IsUpdateScalar(InputName(view.node(), i))) {
      rule.ReplicatedInput(view.InputShape(i));
    } else {
      rule.Input(factors);
    }
  }
  for (int i = 0; i < view.num_outputs(); ++i) {
    rule.Output(view.HasOutput(i) ? factors : std::vector<int>());
  }
  return rule.Build();
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
