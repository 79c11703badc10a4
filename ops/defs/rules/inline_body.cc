#include "ops/defs/rules/inline_body.h"

#include <memory>

#include "absl/strings/str_cat.h"
#include "platform/status_macros.h"

namespace weft {

namespace {

// With bodies of its own.
Attributes CopyOf(const Attributes& attributes) {
  Attributes copy = attributes;
  for (const auto& [name, attribute] : attributes.items()) {
    const auto* body = std::get_if<std::shared_ptr<Graph>>(&attribute);
    if (body != nullptr && *body != nullptr) {
      copy.Set(name, std::make_shared<Graph>((*body)->Clone()));
    }
  }
  return copy;
}

}  // namespace

absl::StatusOr<std::vector<ValueId>> InlineBody(GraphBuilder& builder, const Graph& body,
                                                const std::vector<ValueId>& inputs) {
  if (body.inputs().size() != inputs.size()) {
    return absl::InvalidArgumentError(absl::StrCat("the subgraph '", body.name, "' has ",
                                                   body.inputs().size(), " inputs, expected ",
                                                   inputs.size()));
  }
  std::vector<ValueId> copies(body.value_capacity(), kNoValue);
  for (size_t i = 0; i < inputs.size(); ++i) copies[body.inputs()[i].value] = inputs[i];
  for (const ValueId id : body.value_ids()) {
    const ValueDef& value = body.value(id);
    if (value.source == ValueSource::kConstant) {
      copies[id.value] = builder.Constant(value.constant, value.name);
    }
  }
  for (const Variable& variable : body.variables()) {
    if (variable.initial.valid()) {
      copies[variable.value.value] = builder.Constant(variable.initial, variable.name);
    }
  }
  WEFT_ASSIGN_OR_RETURN(const std::vector<NodeId> order, body.TopologicalOrder());
  for (const NodeId id : order) {
    const Node& node = body.node(id);
    std::vector<ValueId> operands;
    std::vector<bool> wanted;
    for (const ValueId input : node.inputs) {
      operands.push_back(input.valid() ? copies[input.value] : kNoValue);
    }
    for (const ValueId output : node.outputs) wanted.push_back(output.valid());
    const std::vector<ValueId> outputs =
        builder.Ops(node.domain, node.op, std::move(operands), CopyOf(node.attributes), wanted);
    WEFT_RETURN_IF_ERROR(builder.status());
    for (size_t o = 0; o < outputs.size(); ++o) {
      if (wanted[o]) copies[node.outputs[o].value] = outputs[o];
    }
  }
  std::vector<ValueId> results;
  for (const ValueId output : body.outputs()) results.push_back(copies[output.value]);
  return results;
}

}  // namespace weft
