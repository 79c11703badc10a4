#include "graph/verifier.h"

#include <algorithm>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "graph/node_description.h"
#include "graph/node_inference.h"
#include "graph/op_schema.h"
#include "graph/schema_check.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

template <typename... Parts>
absl::Status Violation(int invariant, const Parts&... parts) {
  return absl::InternalError(absl::StrCat("invariant ", invariant, ": ", parts...));
}

// Whether both are known, and not the same.
bool Differ(const SymbolicShape& a, const SymbolicShape& b) {
  const std::optional<Shape> known_a = a.ToConcrete();
  if (!known_a.has_value()) return false;
  const std::optional<Shape> known_b = b.ToConcrete();
  return known_b.has_value() && *known_a != *known_b;
}

// The checks come in an order in which each may rely on those before.
class Verifier {
 public:
  explicit Verifier(const Graph& graph)
      : graph_(graph), nodes_(graph.node_ids()), values_(graph.value_ids()) {}

  absl::Status Run(const VerifyOptions& options) {
    WEFT_RETURN_IF_ERROR(CheckNodeInputs());
    WEFT_RETURN_IF_ERROR(CheckGraphOutputs());
    WEFT_RETURN_IF_ERROR(CheckDefinitions());
    WEFT_RETURN_IF_ERROR(CheckAcyclic());
    WEFT_RETURN_IF_ERROR(CheckNames());
    WEFT_RETURN_IF_ERROR(CheckSchemas());
    WEFT_RETURN_IF_ERROR(CheckTypes(options.exact_shapes));
    WEFT_RETURN_IF_ERROR(CheckUpdatesExist());
    if (options.training) {
      WEFT_RETURN_IF_ERROR(CheckUpdates());
      WEFT_RETURN_IF_ERROR(CheckOrigins());
      WEFT_RETURN_IF_ERROR(CheckStepRegion());
    }
    return options.concrete_shapes ? CheckConcrete() : absl::OkStatus();
  }

 private:
  bool IsValue(ValueId id) const {
    return id.valid() && id.value < graph_.value_capacity() && graph_.is_live(id);
  }

  absl::Status CheckNodeInputs();   // 1
  absl::Status CheckDefinitions();  // 2
  absl::Status CheckDefinition(const ValueDef& value) const;
  absl::Status CheckAcyclic();                 // 3
  absl::Status CheckNames();                   // 4
  absl::Status CheckSchemas();                 // 5
  absl::Status CheckGraphOutputs();            // 6
  absl::Status CheckTypes(bool exact_shapes);  // 7
  absl::Status CheckUpdatesExist();            // 8
  absl::Status CheckUpdates();                 // 8
  absl::Status CheckOrigins();                 // 9
  bool BelongsToStep(const Node& node) const;
  absl::Status CheckStepRegion();  // 10
  bool MayEnterStepRegion(const ValueDef& value) const;
  absl::Status CheckConcrete();  // 11

  const Graph& graph_;
  const std::vector<NodeId> nodes_;
  const std::vector<ValueId> values_;
};

absl::Status Verifier::CheckNodeInputs() {
  for (const NodeId id : nodes_) {
    const Node& node = graph_.node(id);
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      if (node.inputs[i] == kNoValue || IsValue(node.inputs[i])) continue;
      return Violation(1, DescribeNode(node), ": input ", i, " (value ", node.inputs[i].value,
                       ") is no value of the graph");
    }
  }
  return absl::OkStatus();
}

absl::Status Verifier::CheckGraphOutputs() {
  for (size_t i = 0; i < graph_.outputs().size(); ++i) {
    if (IsValue(graph_.outputs()[i])) continue;
    return Violation(6, "graph output ", i, " (value ", graph_.outputs()[i].value,
                     ") is no value of the graph");
  }
  return absl::OkStatus();
}

// Each place that defines a value is counted; then each value must be defined once, by its source.
absl::Status Verifier::CheckDefinitions() {
  std::vector<int> definitions(graph_.value_capacity());
  // describe() says what defines the value, and is asked only when that is wrong.
  const auto define = [&](ValueId id, ValueSource source, const auto& describe) {
    if (!IsValue(id) || graph_.value(id).source != source) {
      return Violation(2, describe(), " defines value ", id.value, ", which ",
                       IsValue(id) ? "has another source" : "does not exist");
    }
    ++definitions[id.value];
    return absl::OkStatus();
  };
  for (const ValueId id : graph_.inputs()) {
    WEFT_RETURN_IF_ERROR(define(id, ValueSource::kInput, [] { return "the list of inputs"; }));
  }
  for (const Variable& variable : graph_.variables()) {
    WEFT_RETURN_IF_ERROR(define(variable.value, ValueSource::kVariable,
                                [&] { return absl::StrCat("variable '", variable.name, "'"); }));
  }
  for (const NodeId id : nodes_) {
    const Node& node = graph_.node(id);
    for (const ValueId output : node.outputs) {
      if (!output.valid()) continue;
      WEFT_RETURN_IF_ERROR(define(output, ValueSource::kNode, [&] { return DescribeNode(node); }));
    }
  }
  for (const ValueId id : values_) {
    const ValueDef& value = graph_.value(id);
    if (value.source == ValueSource::kConstant) ++definitions[id.value];
    if (definitions[id.value] != 1) {
      return Violation(2, "value '", value.name, "' has ", definitions[id.value],
                       " definitions, expected one");
    }
    WEFT_RETURN_IF_ERROR(CheckDefinition(value));
  }
  return absl::OkStatus();
}

// What a value says of its definition is so.
absl::Status Verifier::CheckDefinition(const ValueDef& value) const {
  if (value.source == ValueSource::kConstant && !value.constant.valid()) {
    return Violation(2, "constant '", value.name, "' has no tensor");
  }
  if (value.source != ValueSource::kNode) return absl::OkStatus();
  const NodeId producer = value.producer;
  const bool exists =
      producer.valid() && producer.value < graph_.node_capacity() && graph_.is_live(producer);
  if (!exists) return Violation(2, "value '", value.name, "' names a producer that does not exist");
  const Node& node = graph_.node(producer);
  const bool is_output = value.output_index >= 0 &&
                         value.output_index < static_cast<int>(node.outputs.size()) &&
                         node.outputs[value.output_index] == value.id;
  if (is_output) return absl::OkStatus();
  return Violation(2, DescribeNode(node), ": value '", value.name, "' says that it is output ",
                   value.output_index, " of this node, and it is not");
}

absl::Status Verifier::CheckAcyclic() {
  const absl::Status status = graph_.TopologicalOrder().status();
  return status.ok() ? status : Violation(3, std::string(status.message()));
}

absl::Status Verifier::CheckNames() {
  for (const NodeId id : nodes_) {
    const Node& node = graph_.node(id);
    if (node.name.empty()) return Violation(4, "a node (", FullOpName(node), ") has no name");
    if (graph_.FindNode(node.name) == id) continue;
    return Violation(4, DescribeNode(node), ": is not what the graph finds under its name, ",
                     "which is another node's or unknown");
  }
  for (const ValueId id : values_) {
    const ValueDef& value = graph_.value(id);
    if (value.name.empty()) return Violation(4, "value ", id.value, " has no name");
    if (graph_.FindValue(value.name) == id) continue;
    return Violation(4, "value '", value.name, "' is not what the graph finds under its name, ",
                     "which is another value's or unknown");
  }
  return absl::OkStatus();
}

absl::Status Verifier::CheckSchemas() {
  for (const NodeId id : nodes_) {
    const absl::Status status = CheckNodeAgainstSchema(graph_, graph_.node(id));
    if (!status.ok()) return Violation(5, std::string(status.message()));
  }
  return absl::OkStatus();
}

absl::Status Verifier::CheckTypes(bool exact_shapes) {
  std::vector<InferredOutput> inferred;
  const auto is_typed = [this](ValueId id) {
    return !id.valid() || graph_.value(id).type.dtype != DType::kInvalid;
  };
  for (const NodeId id : nodes_) {
    const Node& node = graph_.node(id);
    if (node.schema == nullptr || !node.schema->infer()) continue;
    // Before inference there is nothing to compare.
    if (!std::ranges::all_of(node.inputs, is_typed)) continue;
    if (!std::ranges::all_of(node.outputs, is_typed)) continue;
    const absl::Status status = RunShapeFunction(graph_, node, inferred);
    if (!status.ok()) return Violation(7, std::string(status.message()));
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      if (!node.outputs[i].valid() || inferred[i].type.dtype == DType::kInvalid) continue;
      const ValueDef& output = graph_.value(node.outputs[i]);
      const bool shapes_fit = !exact_shapes || !Differ(output.type.shape, inferred[i].type.shape);
      if (output.type.dtype == inferred[i].type.dtype && shapes_fit) continue;
      return Violation(7, DescribeNode(node), ": output '", output.name, "' is ",
                       output.type.ToString(), ", but its shape function says ",
                       inferred[i].type.ToString());
    }
  }
  return absl::OkStatus();
}

absl::Status Verifier::CheckUpdatesExist() {
  for (const Variable& variable : graph_.variables()) {
    if (variable.update == kNoValue || IsValue(variable.update)) continue;
    return Violation(8, "variable '", variable.name, "': its update (value ", variable.update.value,
                     ") is no value of the graph");
  }
  return absl::OkStatus();
}

absl::Status Verifier::CheckUpdates() {
  absl::flat_hash_set<std::string> names;
  for (const Variable& variable : graph_.variables()) {
    if (!names.insert(variable.name).second) {
      return Violation(8, "variable '", variable.name,
                       "' is there twice, so it may have two updates");
    }
    if (!variable.update.valid()) continue;
    const ValueType& type = graph_.value(variable.value).type;
    const ValueDef& update = graph_.value(variable.update);
    const std::optional<Shape> shape = type.shape.ToConcrete();
    const std::optional<Shape> new_shape = update.type.shape.ToConcrete();
    const bool fits = type.dtype == update.type.dtype &&
                      (!shape.has_value() || !new_shape.has_value() || *shape == *new_shape);
    if (fits) continue;
    return Violation(8, "variable '", variable.name, "' is ", type.ToString(), ", but its update '",
                     update.name, "' is ", update.type.ToString());
  }
  return absl::OkStatus();
}

// A node that reads only what exists once per step or in every graph (step inputs, constants) and
// what other such nodes make: the seed of the backward pass, the loss scale.
bool Verifier::BelongsToStep(const Node& node) const {
  if (node.schema != nullptr && node.schema->op_class() != OpClass::kCompute) return true;
  return std::ranges::all_of(node.inputs, [this](ValueId id) {
    if (!id.valid()) return true;
    const ValueDef& value = graph_.value(id);
    switch (value.source) {
      case ValueSource::kConstant:
        return true;
      case ValueSource::kInput:
        return graph_.input_role(id) == InputRole::kStep;
      case ValueSource::kVariable:
        return false;
      case ValueSource::kNode: {
        const Node& producer = graph_.node(value.producer);
        return producer.phase != Phase::kForward && producer.origin == Origin();
      }
    }
    return false;
  });
}

absl::Status Verifier::CheckOrigins() {
  std::vector<bool> is_update(graph_.node_capacity());  // nodes that make a variable's new value
  for (const Variable& variable : graph_.variables()) {
    if (!variable.update.valid()) continue;
    const ValueDef& update = graph_.value(variable.update);
    if (update.source == ValueSource::kNode) is_update[update.producer.value] = true;
  }
  for (const NodeId id : nodes_) {
    const Node& node = graph_.node(id);
    const bool needs_origin =
        node.phase == Phase::kBackward || (node.phase == Phase::kUpdate && is_update[id.value]);
    if (!needs_origin || !node.origin.forward_node.empty()) continue;
    if (node.phase == Phase::kUpdate && !node.origin.logical_value.empty()) continue;
    if (BelongsToStep(node)) continue;
    return Violation(9, DescribeNode(node), ": this ", std::string(PhaseName(node.phase)),
                     " node does not name the forward node it comes from");
  }
  return absl::OkStatus();
}

bool Verifier::MayEnterStepRegion(const ValueDef& value) const {
  switch (value.source) {
    case ValueSource::kConstant:
    case ValueSource::kVariable:
      return true;
    case ValueSource::kInput:
      return graph_.input_role(value.id) == InputRole::kStep;
    case ValueSource::kNode:
      break;
  }
  const Node& producer = graph_.node(value.producer);
  return producer.phase == Phase::kUpdate || producer.phase == Phase::kBegin ||
         (producer.schema != nullptr && producer.schema->op_class() == OpClass::kBoundary);
}

absl::Status Verifier::CheckStepRegion() {
  for (const NodeId id : nodes_) {
    const Node& node = graph_.node(id);
    if (node.phase != Phase::kUpdate) continue;
    if (node.schema != nullptr && node.schema->op_class() == OpClass::kBoundary) continue;
    for (const ValueId input : node.inputs) {
      if (!input.valid() || MayEnterStepRegion(graph_.value(input))) continue;
      return Violation(10, DescribeNode(node), ": reads the micro-batch value '",
                       graph_.value(input).name, "' in the update phase without Accumulate");
    }
  }
  return absl::OkStatus();
}

absl::Status Verifier::CheckConcrete() {
  for (const ValueId id : values_) {
    const ValueDef& value = graph_.value(id);
    if (value.type.kind != ValueKind::kTensor || value.type.shape.is_concrete()) {
      continue;
    }
    const std::string at = value.source == ValueSource::kNode
                               ? absl::StrCat(DescribeNode(graph_.node(value.producer)), ": ")
                               : std::string();
    return Violation(11, at, "value '", value.name, "' is ", value.type.ToString(),
                     ", expected a concrete shape");
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status VerifyGraph(const Graph& graph, const VerifyOptions& options) {
  return Verifier(graph).Run(options);
}

}  // namespace weft
