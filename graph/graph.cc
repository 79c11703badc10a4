#include "graph/graph.h"

#include <algorithm>
#include <cassert>
#include <functional>

#include "absl/strings/str_cat.h"
#include "graph/schema_lookup.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

// `hint`, or `hint` with a suffix for which `taken` is false. Gallops over suffixes, so that n
// equal hints cost n log n and not n squared.
std::string UniqueName(const std::string& hint,
                       const std::function<bool(const std::string&)>& taken) {
  if (!taken(hint)) return hint;
  const auto candidate = [&hint](int64_t suffix) { return absl::StrCat(hint, "_", suffix); };
  int64_t free = 1;
  while (taken(candidate(free))) free *= 2;
  int64_t used = free / 2;  // taken, or 0
  while (free - used > 1) {
    const int64_t middle = used + (free - used) / 2;
    (taken(candidate(middle)) ? used : free) = middle;
  }
  return candidate(free);
}

Attributes CloneAttributes(const Attributes& attributes) {
  Attributes copy = attributes;
  for (const auto& [name, attribute] : attributes.items()) {
    const auto* subgraph = std::get_if<std::shared_ptr<Graph>>(&attribute);
    if (subgraph == nullptr || *subgraph == nullptr) continue;
    copy.Set(name, std::make_shared<Graph>((*subgraph)->Clone()));
  }
  return copy;
}

}  // namespace

std::string ValueType::ToString() const {
  const std::string dtype_name(DTypeName(dtype));
  const std::string tensor =
      absl::StrCat(dtype_name, shape.has_rank() ? shape.ToString() : "[unknown rank]");
  const auto wrap = [](ValueKind kind, const std::string& inner) {
    switch (kind) {
      case ValueKind::kTensor:
        return inner;
      case ValueKind::kSequence:
        return absl::StrCat("sequence(", inner, ")");
      case ValueKind::kOptional:
        return absl::StrCat("optional(", inner, ")");
    }
    return inner;
  };
  return kind == ValueKind::kTensor ? tensor : wrap(kind, wrap(element, tensor));
}

std::string_view PhaseName(Phase phase) {
  switch (phase) {
    case Phase::kForward:
      return "forward";
    case Phase::kBackward:
      return "backward";
    case Phase::kUpdate:
      return "update";
    case Phase::kBegin:
      return "begin";
  }
  return "unknown";
}

Graph Graph::Clone() const {
  Graph copy;
  copy.name = name;
  copy.opsets = opsets;
  copy.nodes_.reserve(nodes_.size());
  for (const std::unique_ptr<Node>& node : nodes_) {
    copy.nodes_.push_back(node == nullptr ? nullptr : std::make_unique<Node>(*node));
    if (node != nullptr) copy.nodes_.back()->attributes = CloneAttributes(node->attributes);
  }
  copy.values_.reserve(values_.size());
  for (const std::unique_ptr<ValueDef>& value : values_) {
    copy.values_.push_back(value == nullptr ? nullptr : std::make_unique<ValueDef>(*value));
  }
  copy.live_nodes_ = live_nodes_;
  copy.inputs_ = inputs_;
  copy.input_roles_ = input_roles_;
  copy.outputs_ = outputs_;
  copy.variables_ = variables_;
  copy.variable_hints_ = variable_hints_;
  copy.value_by_name_ = value_by_name_;
  copy.node_by_name_ = node_by_name_;
  return copy;
}

// ---- Building.

ValueId Graph::NewValue(const std::string& name, ValueSource source) {
  const ValueId id(static_cast<int32_t>(values_.size()));
  auto value = std::make_unique<ValueDef>();
  value->id = id;
  value->name = UniqueValueName(name);
  value->source = source;
  value_by_name_[value->name] = id;
  values_.push_back(std::move(value));
  return id;
}

ValueId Graph::AddInput(const std::string& name, ValueType type, InputRole role) {
  const ValueId id = NewValue(name.empty() ? "input" : name, ValueSource::kInput);
  value(id).type = std::move(type);
  inputs_.push_back(id);
  input_roles_[id] = role;
  return id;
}

ValueId Graph::AddConstant(const std::string& name, Tensor tensor) {
  const ValueId id = NewValue(name.empty() ? "constant" : name, ValueSource::kConstant);
  value(id).type = {ValueKind::kTensor, tensor.dtype(), tensor.shape()};
  value(id).constant = std::move(tensor);
  return id;
}

ValueId Graph::AddVariable(const std::string& name, ValueType type, Tensor initial,
                           bool trainable) {
  const ValueId id = NewValue(name.empty() ? "variable" : name, ValueSource::kVariable);
  value(id).type = std::move(type);
  Variable variable;
  variable.name = value(id).name;
  variable.value = id;
  variable.initial = std::move(initial);
  variable.trainable = trainable;
  variable_hints_[id] = static_cast<int>(variables_.size());
  variables_.push_back(std::move(variable));
  return id;
}

NodeId Graph::AddNode(NodeSpec spec) {
  const NodeId id(static_cast<int32_t>(nodes_.size()));
  auto node = std::make_unique<Node>();
  node->id = id;
  node->name = UniqueNodeName(spec.name.empty() ? spec.op : spec.name);
  node->schema = FindOpSchema(spec.domain, spec.op);
  node->domain = std::move(spec.domain);
  node->op = std::move(spec.op);
  node->attributes = std::move(spec.attributes);
  node->inputs = std::move(spec.inputs);
  node->phase = spec.phase;
  node->stage = spec.stage;
  node->origin = std::move(spec.origin);
  node->outputs.reserve(spec.outputs.size());
  for (size_t i = 0; i < spec.outputs.size(); ++i) {
    const bool unnamed = spec.outputs[i].empty();
    if (unnamed && spec.keep_empty_outputs) {
      node->outputs.push_back(kNoValue);
      continue;
    }
    const ValueId output = NewValue(unnamed ? absl::StrCat(node->name, "_out", i) : spec.outputs[i],
                                    ValueSource::kNode);
    value(output).producer = id;
    value(output).output_index = static_cast<int>(i);
    value(output).origin = node->origin;
    node->outputs.push_back(output);
  }
  node_by_name_[node->name] = id;
  nodes_.push_back(std::move(node));
  ++live_nodes_;
  return id;
}

ValueId Graph::AddNodeOutput(NodeId id, int index, const std::string& name) {
  Node& owner = node(id);
  if (index >= static_cast<int>(owner.outputs.size())) owner.outputs.resize(index + 1, kNoValue);
  if (owner.outputs[index].valid()) return owner.outputs[index];
  const ValueId output = NewValue(name, ValueSource::kNode);
  value(output).producer = id;
  value(output).output_index = index;
  value(output).origin = owner.origin;
  return node(id).outputs[index] = output;
}

void Graph::SetVariableUpdate(const std::string& variable, ValueId value) {
  const Variable* found = FindVariable(variable);
  assert(found != nullptr);
  if (found != nullptr) variables_[found - variables_.data()].update = value;
}

// ---- Editing.

void Graph::RemoveValue(ValueId id) {
  const auto found = value_by_name_.find(value(id).name);
  if (found != value_by_name_.end() && found->second == id) value_by_name_.erase(found);
  values_[id.value].reset();
}

void Graph::RemoveNode(NodeId id) {
  for (const ValueId output : node(id).outputs) {
    if (output.valid()) RemoveValue(output);
  }
  const auto found = node_by_name_.find(node(id).name);
  if (found != node_by_name_.end() && found->second == id) node_by_name_.erase(found);
  nodes_[id.value].reset();
  --live_nodes_;
}

void Graph::ReplaceUses(ValueId from, ValueId to) {
  std::vector<ValueId> replacement(from.value + 1);
  replacement[from.value] = to;
  ReplaceUses(replacement);
}

void Graph::ReplaceUses(const std::vector<ValueId>& replacement) {
  const auto replace = [&replacement](ValueId& use) {
    while (use.valid() && use.value < static_cast<int32_t>(replacement.size()) &&
           replacement[use.value].valid()) {
      use = replacement[use.value];
    }
  };
  for (const std::unique_ptr<Node>& node : nodes_) {
    if (node == nullptr) continue;
    for (ValueId& input : node->inputs) replace(input);
  }
  for (ValueId& output : outputs_) replace(output);
  for (Variable& variable : variables_) replace(variable.update);
}

void Graph::RemoveInput(ValueId input) {
  std::erase(inputs_, input);
  input_roles_.erase(input);
  RemoveValue(input);
}

void Graph::RemoveVariable(const std::string& name) {
  const Variable* found = FindVariable(name);
  if (found == nullptr) return;
  RemoveValue(found->value);
  variable_hints_.erase(found->value);
  variables_.erase(variables_.begin() + (found - variables_.data()));
  for (size_t i = 0; i < variables_.size(); ++i) {
    variable_hints_[variables_[i].value] = static_cast<int>(i);
  }
}

void Graph::RemoveConstant(ValueId constant) { RemoveValue(constant); }

void Graph::DropOutput(NodeId id, int index) {
  RemoveValue(node(id).outputs[index]);
  node(id).outputs[index] = kNoValue;
}

void Graph::MakeConstant(ValueId id, Tensor tensor) {
  ValueDef& def = value(id);
  switch (def.source) {
    case ValueSource::kInput:
      std::erase(inputs_, id);
      input_roles_.erase(id);
      break;
    case ValueSource::kVariable: {
      const int index = VariableIndex(id);
      if (index < 0) break;
      variables_.erase(variables_.begin() + index);
      variable_hints_.erase(id);
      for (size_t i = index; i < variables_.size(); ++i) {
        variable_hints_[variables_[i].value] = static_cast<int>(i);
      }
      break;
    }
    case ValueSource::kNode:
      node(def.producer).outputs[def.output_index] = kNoValue;
      break;
    case ValueSource::kConstant:
      break;
  }
  def.source = ValueSource::kConstant;
  def.producer = NodeId();
  def.output_index = 0;
  def.type = {ValueKind::kTensor, tensor.dtype(), tensor.shape()};
  def.elements.reset();
  def.constant = std::move(tensor);
}

void Graph::RenameValue(ValueId id, const std::string& name) {
  ValueDef& def = value(id);
  if (def.name == name) return;
  value_by_name_.erase(def.name);
  def.name = UniqueValueName(name);
  value_by_name_[def.name] = id;
}

// ---- Reading.

std::vector<NodeId> Graph::node_ids() const {
  std::vector<NodeId> ids;
  ids.reserve(live_nodes_);
  for (const std::unique_ptr<Node>& node : nodes_) {
    if (node != nullptr) ids.push_back(node->id);
  }
  return ids;
}

std::vector<ValueId> Graph::value_ids() const {
  std::vector<ValueId> ids;
  ids.reserve(values_.size());
  for (const std::unique_ptr<ValueDef>& value : values_) {
    if (value != nullptr) ids.push_back(value->id);
  }
  return ids;
}

InputRole Graph::input_role(ValueId input) const {
  const auto found = input_roles_.find(input);
  return found == input_roles_.end() ? InputRole::kData : found->second;
}

int Graph::VariableIndex(ValueId value) const {
  const auto hint = variable_hints_.find(value);
  if (hint != variable_hints_.end() && hint->second < static_cast<int>(variables_.size()) &&
      variables_[hint->second].value == value) {
    return hint->second;
  }
  for (size_t i = 0; i < variables_.size(); ++i) {
    if (variables_[i].value == value) return static_cast<int>(i);
  }
  return -1;
}

const Variable* Graph::FindVariable(const std::string& name) const {
  // Most variables are called like their value.
  const auto id = value_by_name_.find(name);
  if (id != value_by_name_.end() && value(id->second).source == ValueSource::kVariable) {
    const int index = VariableIndex(id->second);
    if (index >= 0 && variables_[index].name == name) return &variables_[index];
  }
  const auto found = std::ranges::find(variables_, name, &Variable::name);
  return found == variables_.end() ? nullptr : &*found;
}

const Variable* Graph::VariableOf(ValueId id) const {
  if (!id.valid() || value(id).source != ValueSource::kVariable) return nullptr;
  const int index = VariableIndex(id);
  return index < 0 ? nullptr : &variables_[index];
}

std::optional<ValueId> Graph::FindValue(const std::string& name) const {
  const auto found = value_by_name_.find(name);
  if (found == value_by_name_.end()) return std::nullopt;
  return found->second;
}

std::optional<NodeId> Graph::FindNode(const std::string& name) const {
  const auto found = node_by_name_.find(name);
  if (found == node_by_name_.end()) return std::nullopt;
  return found->second;
}

std::string Graph::UniqueValueName(const std::string& hint) const {
  return UniqueName(hint.empty() ? "value" : hint,
                    [this](const std::string& name) { return value_by_name_.contains(name); });
}

std::string Graph::UniqueNodeName(const std::string& hint) const {
  return UniqueName(hint.empty() ? "node" : hint,
                    [this](const std::string& name) { return node_by_name_.contains(name); });
}

std::vector<std::vector<Graph::Use>> Graph::BuildUses() const {
  std::vector<std::vector<Use>> uses(values_.size());
  for (const std::unique_ptr<Node>& node : nodes_) {
    if (node == nullptr) continue;
    for (size_t i = 0; i < node->inputs.size(); ++i) {
      const ValueId input = node->inputs[i];
      if (input.valid() && input.value < value_capacity()) {
        uses[input.value].push_back({node->id, static_cast<int>(i)});
      }
    }
  }
  return uses;
}

absl::Status Graph::Compact() {
  WEFT_ASSIGN_OR_RETURN(const std::vector<NodeId> order, TopologicalOrder());
  const std::vector<std::vector<Use>> uses = BuildUses();
  std::vector<bool> kept(values_.size());
  for (const std::unique_ptr<ValueDef>& value : values_) {
    if (value == nullptr) continue;
    kept[value->id.value] =
        value->source != ValueSource::kConstant || !uses[value->id.value].empty();
  }
  for (const ValueId output : outputs_) kept[output.value] = true;
  for (const Variable& variable : variables_) {
    if (variable.update.valid()) kept[variable.update.value] = true;
  }
  std::vector<ValueId> new_value(values_.size());
  std::vector<std::unique_ptr<ValueDef>> values;
  for (std::unique_ptr<ValueDef>& value : values_) {
    if (value == nullptr) continue;
    if (!kept[value->id.value]) {
      value_by_name_.erase(value->name);
      continue;
    }
    new_value[value->id.value] = ValueId(static_cast<int32_t>(values.size()));
    values.push_back(std::move(value));
  }
  std::vector<NodeId> new_node(nodes_.size());
  std::vector<std::unique_ptr<Node>> nodes;
  for (const NodeId id : order) {
    new_node[id.value] = NodeId(static_cast<int32_t>(nodes.size()));
    nodes.push_back(std::move(nodes_[id.value]));
  }
  nodes_ = std::move(nodes);
  values_ = std::move(values);
  Renumber(new_node, new_value);
  return absl::OkStatus();
}

void Graph::Renumber(const std::vector<NodeId>& new_node, const std::vector<ValueId>& new_value) {
  const auto renumber = [&new_value](ValueId& id) {
    if (id.valid()) id = new_value[id.value];
  };
  for (const std::unique_ptr<Node>& node : nodes_) {
    node->id = new_node[node->id.value];
    for (ValueId& input : node->inputs) renumber(input);
    for (ValueId& output : node->outputs) renumber(output);
  }
  for (const std::unique_ptr<ValueDef>& value : values_) {
    renumber(value->id);
    if (value->producer.valid()) value->producer = new_node[value->producer.value];
  }
  for (ValueId& input : inputs_) renumber(input);
  for (ValueId& output : outputs_) renumber(output);
  variable_hints_.clear();
  for (size_t i = 0; i < variables_.size(); ++i) {
    renumber(variables_[i].value);
    renumber(variables_[i].update);
    variable_hints_[variables_[i].value] = static_cast<int>(i);
  }
  std::map<ValueId, InputRole> roles;
  for (const auto& [input, role] : input_roles_) roles[new_value[input.value]] = role;
  input_roles_ = std::move(roles);
  for (auto& [name, id] : value_by_name_) renumber(id);
  for (auto& [name, id] : node_by_name_) id = new_node[id.value];
}

}  // namespace weft
