#include "onnx_import/parameters/gradient_uses.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace weft {
namespace {

Meeting MeetingAt(const OpSchema* schema, int input, bool is_blocked) {
  if (schema == nullptr) return Meeting::kOrdinary;
  const FormalParameter* const formal = schema->FormalInput(input);
  const std::vector<int>& shape_inputs = schema->value_inputs();
  if (std::find(shape_inputs.begin(), shape_inputs.end(), input) != shape_inputs.end()) {
    return Meeting::kShapeValue;
  }
  if (is_blocked || formal == nullptr || formal->never_learnable) return Meeting::kNever;
  return formal->learnable ? Meeting::kLearnable : Meeting::kOrdinary;
}

}  // namespace

GradientUses::GradientUses(const Graph& graph, const std::vector<ValueId>& from)
    : graph_(graph), seen_(graph.value_capacity()), uses_(graph.value_capacity()) {
  for (const ValueId value : from) Push(value);
  while (!stack_.empty()) {
    const ValueId value = stack_.back();
    stack_.pop_back();
    if (graph_.value(value).source == ValueSource::kNode) {
      VisitInputs(graph_.node(graph_.value(value).producer));
    }
  }
}

void GradientUses::Push(ValueId value) {
  if (seen_[value.value]) return;
  seen_[value.value] = true;
  stack_.push_back(value);
}

void GradientUses::VisitInputs(const Node& node) {
  const OpSchema* const schema = node.schema;
  const bool is_blocked = schema != nullptr && schema->gradient_kind() == GradientKind::kNone;
  for (int i = 0; i < static_cast<int>(node.inputs.size()); ++i) {
    const ValueId input = node.inputs[i];
    if (!input.valid()) continue;
    const Meeting meeting = MeetingAt(schema, i, is_blocked);
    uses_[input.value].push_back({meeting, &node, i});
    const DType dtype = graph_.value(input).type.dtype;
    const bool carries_gradient = dtype == DType::kInvalid || IsFloatingPoint(dtype);
    if (meeting >= Meeting::kOrdinary && carries_gradient) Push(input);
  }
}

GradientUses::Use GradientUses::Best(ValueId value) const {
  Use best;
  for (const Use& use : Of(value)) {
    if (use.meeting > best.meeting) best = use;
  }
  return best;
}

std::string PortName(const Node& node, int input) {
  const FormalParameter* const formal =
      node.schema == nullptr ? nullptr : node.schema->FormalInput(input);
  if (formal == nullptr) return absl::StrCat("input", input);
  return formal->variadic ? absl::StrCat(formal->name, input) : formal->name;
}

}  // namespace weft
