#include "ops/defs/rules/backward_body.h"

#include <utility>

#include "ops/defs/rules/gradients.h"
#include "ops/defs/rules/inline_body.h"
#include "platform/status_macros.h"

namespace weft {

ValueId ZerosLike(GraphBuilder& builder, ValueId value) {
  if (!builder.status().ok() || !value.valid()) return kNoValue;
  const auto zero = Tensor::Zeros(builder.type(value).dtype, Shape{1});
  if (!zero.ok()) return kNoValue;
  return builder.Op("ConstantOfShape", {ShapeOf(builder, value)}, {{"value", *zero}});
}

ValueId BackwardBody::ZerosLike(ValueId value) { return weft::ZerosLike(builder_, value); }

ValueId BackwardBody::Capture(ValueId outer) {
  const auto found = captures_.find(outer);
  if (found != captures_.end()) return found->second;
  const ValueDef& value = context_.graph().value(outer);
  const ValueId input = graph_->AddInput(value.name, value.type);
  captured_.push_back(outer);
  captures_[outer] = input;
  return input;
}

absl::StatusOr<std::vector<ValueId>> BackwardBody::RunForward(std::vector<ValueId> own_inputs) {
  for (int i = 0; i < forward_.captures; ++i) {
    const int input = forward_.first_capture + i;
    const ValueId captured = Capture(context_.node().inputs[input]);
    forward_captures_[input] = captured;
    own_inputs.push_back(captured);
  }
  return InlineBody(builder_, *forward_.graph, own_inputs);
}

absl::StatusOr<std::map<ValueId, ValueId>> BackwardBody::Differentiate(
    const std::vector<GradientSeed>& seeds, const std::vector<ValueId>& wanted) {
  WEFT_RETURN_IF_ERROR(builder_.status());
  WEFT_ASSIGN_OR_RETURN(auto gradients, context_.DifferentiateBody(*graph_, seeds, wanted));
  // Seen from the graph around it, all of it is one node of the backward pass.
  for (const NodeId id : graph_->node_ids()) graph_->node(id).phase = Phase::kForward;
  return gradients;
}

absl::Status BackwardBody::AddTo(const std::string& name, Attributes& attributes,
                                 std::vector<ValueId>& inputs) {
  WEFT_RETURN_IF_ERROR(builder_.status());
  std::vector<std::string> names;
  for (const ValueId outer : captured_) {
    names.push_back(graph_->value(captures_.at(outer)).name);
    inputs.push_back(outer);
  }
  attributes.Set(name, graph_);
  attributes.Set(CapturesAttribute(name), std::move(names));
  return absl::OkStatus();
}

}  // namespace weft
