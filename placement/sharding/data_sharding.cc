#include "placement/sharding/data_sharding.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "graph/node_description.h"
#include "graph/op_schema.h"
#include "placement/graph_views/graph_node_view.h"
#include "placement/rules/sum_groups.h"

namespace weft {
namespace {

// Rows of the smallest tensor shard, or nullopt for a scalar.
std::optional<int64_t> RowsOf(const Graph& graph, const Variable& variable, const Plan& plan,
                              const VariableShardings& tensor_shardings) {
  Shape shape = ShapeOf(graph, variable.value);
  if (shape.rank() == 0) return std::nullopt;
  const auto sharding = tensor_shardings.find(variable.name);
  if (sharding != tensor_shardings.end() && sharding->second.is_split() &&
      sharding->second.Validate(shape).ok()) {
    shape = sharding->second.LocalShape(shape, plan.mesh.tensor, plan.mesh.tensor - 1);
  }
  return shape.dim(0);
}

// Empty when there is a row for each replica.
std::string TooFewRows(const Graph& graph, const Variable& variable, const Plan& plan,
                       const VariableShardings& tensor_shardings) {
  const std::optional<int64_t> rows = RowsOf(graph, variable, plan, tensor_shardings);
  if (!rows.has_value()) return "it is a scalar";
  if (HasRowForEach(*rows, plan.mesh.data)) return "";
  return absl::StrCat("axis 0 has ", *rows, " rows for ", plan.mesh.data, " replicas");
}

bool IsAlongRows(const OperandFactors& operand, int factor) {
  return !operand.dims.empty() && operand.dims[0] == std::vector<int>{factor};
}

bool Has(const OperandFactors& operand, int factor) {
  return std::any_of(operand.dims.begin(), operand.dims.end(), [&](const std::vector<int>& dim) {
    return std::find(dim.begin(), dim.end(), factor) != dim.end();
  });
}

// The rule of an update node whose shards are nodes as it is itself.
std::optional<FactorRule> RuleOf(const Graph& graph, const Node& node) {
  const OpSchema* schema = node.schema;
  if (node.phase != Phase::kUpdate || schema == nullptr || !schema->sharding() ||
      schema->localize() || schema->stateful() || schema->op_class() != OpClass::kCompute) {
    return std::nullopt;
  }
  const absl::StatusOr<GraphNodeView> view = GraphNodeView::Create(graph, node);
  if (!view.ok()) return std::nullopt;
  absl::StatusOr<FactorRule> rule = schema->sharding()(*view);
  if (!rule.ok() || !rule->shape_inputs.empty()) return std::nullopt;
  return *std::move(rule);
}

// The parallel factor that is all of axis 0 of the operand.
std::optional<int> ParallelRows(const FactorRule& rule, const OperandFactors& operand) {
  if (operand.dims.empty() || operand.dims[0].size() != 1) return std::nullopt;
  const int factor = operand.dims[0][0];
  if (rule.factors[factor].kind != FactorKind::kParallel) return std::nullopt;
  return factor;
}

// Which inputs the node reads by rows when `factor` is split, which must be axis 0 of all operands
// that have it and of all outputs.
std::optional<std::vector<bool>> InputsByRows(const Node& node, const FactorRule& rule,
                                              int factor) {
  std::vector<bool> by_rows;
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    by_rows.push_back(node.inputs[i].valid() && IsAlongRows(rule.inputs[i], factor));
    if (node.inputs[i].valid() && !by_rows[i] && Has(rule.inputs[i], factor)) return std::nullopt;
  }
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    if (node.outputs[i].valid() && !IsAlongRows(rule.outputs[i], factor)) return std::nullopt;
  }
  return by_rows;
}

// Decides about one parameter: the nodes between it, its state and their new values.
class UpdateRegion {
 public:
  // `variables`: the parameter, then its state.
  UpdateRegion(const Graph& graph, const std::vector<std::vector<Graph::Use>>& uses,
               std::vector<const Variable*> variables)
      : graph_(graph), uses_(uses), variables_(std::move(variables)) {}

  // The reason why not; empty when the region runs on rows.
  std::string Decide() {
    for (const Variable* variable : variables_) {
      if (!variable->update.valid()) return absl::StrCat("'", variable->name, "' has no update");
      if (ShapeOf(graph_, variable->value).rank() == 0 ||
          ShapeOf(graph_, variable->value).dim(0) !=
              ShapeOf(graph_, variables_.front()->value).dim(0)) {
        return absl::StrCat("its state '", variable->name, "' has other rows");
      }
      rows_.insert(variable->value);
    }
    for (const Variable* variable : variables_) {
      if (graph_.value(variable->update).source == ValueSource::kNode) {
        Visit(graph_.value(variable->update).producer);
      }
    }
    for (const NodeId id : order_) {
      if (std::string reason = DecideNode(graph_.node(id)); !reason.empty()) return reason;
    }
    return CheckReaders();
  }

  const std::map<NodeId, std::vector<bool>>& nodes() const { return nodes_; }

 private:
  // Notes the node, after those it depends on, if it depends on the parameter or its state.
  bool Visit(NodeId id) {
    const auto [known, is_new] = visited_.try_emplace(id, false);
    if (!is_new) return known->second;
    const Node& node = graph_.node(id);
    if (node.phase != Phase::kUpdate || node.schema == nullptr ||
        node.schema->op_class() != OpClass::kCompute) {
      return false;
    }
    bool depends = false;
    for (const ValueId input : node.inputs) {
      if (!input.valid()) continue;
      const ValueDef& value = graph_.value(input);
      if (rows_.contains(input)) depends = true;
      if (value.source == ValueSource::kNode && Visit(value.producer)) depends = true;
    }
    visited_[id] = depends;
    if (depends) order_.push_back(id);
    return depends;
  }

  std::string DecideNode(const Node& node) {
    const std::string needs_all = absl::StrCat(DescribeNode(node), " needs all rows");
    const std::optional<FactorRule> rule = RuleOf(graph_, node);
    if (!rule.has_value()) return needs_all;
    const std::optional<int> factor = RowFactor(node, *rule);
    if (!factor.has_value()) return needs_all;
    const std::optional<std::vector<bool>> by_rows = InputsByRows(node, *rule, *factor);
    if (!by_rows.has_value()) return needs_all;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      if (rows_.contains(node.inputs[i]) && !(*by_rows)[i]) return needs_all;
    }
    rows_.insert(node.outputs.begin(), node.outputs.end());
    rows_.erase(kNoValue);
    nodes_[node.id] = *by_rows;
    return "";
  }

  // The parallel factor that is all of axis 0 of the first operand which lies in rows.
  std::optional<int> RowFactor(const Node& node, const FactorRule& rule) const {
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      if (!node.inputs[i].valid() || !rows_.contains(node.inputs[i])) continue;
      return ParallelRows(rule, rule.inputs[i]);
    }
    return std::nullopt;
  }

  // Nobody else reads state or what the region makes; the parameter itself may be read whole.
  std::string CheckReaders() const {
    for (const ValueId value : rows_) {
      if (value == variables_.front()->value) continue;
      for (const Graph::Use& use : uses_[value.value]) {
        if (nodes_.contains(use.node)) continue;
        return absl::StrCat(DescribeNode(graph_.node(use.node)), " reads all rows of '",
                            graph_.value(value).name, "'");
      }
      const std::vector<ValueId>& outputs = graph_.outputs();
      if (std::find(outputs.begin(), outputs.end(), value) != outputs.end()) {
        return absl::StrCat("'", graph_.value(value).name, "' is reported");
      }
    }
    return "";
  }

  const Graph& graph_;
  const std::vector<std::vector<Graph::Use>>& uses_;
  const std::vector<const Variable*> variables_;
  std::map<NodeId, bool> visited_;  // depends on the parameter or its state
  std::vector<NodeId> order_;
  std::set<ValueId> rows_;
  std::map<NodeId, std::vector<bool>> nodes_;
};

}  // namespace

RowUpdates FindRowUpdates(const Graph& graph) {
  const std::vector<std::vector<Graph::Use>> uses = graph.BuildUses();
  std::map<std::string, std::vector<const Variable*>> state;
  for (const Variable& variable : graph.variables()) {
    if (!variable.slot_of.empty()) state[variable.slot_of].push_back(&variable);
  }
  RowUpdates updates;
  for (const Variable& variable : graph.variables()) {
    if (!variable.trainable || !variable.slot_of.empty()) continue;
    std::vector<const Variable*> variables = {&variable};
    const std::vector<const Variable*>& own = state[variable.name];
    variables.insert(variables.end(), own.begin(), own.end());
    UpdateRegion region(graph, uses, std::move(variables));
    RowUpdate& update = updates[variable.name];
    update.has_state = !own.empty();
    update.obstacle = region.Decide();
    if (!update.obstacle.empty()) continue;
    for (const auto& [id, by_rows] : region.nodes()) update.nodes[graph.node(id).name] = by_rows;
  }
  return updates;
}

DataShardings FindDataShardings(const Graph& graph, const Plan& plan,
                                const VariableShardings& tensor_shardings) {
  if (!SplitsVariables(DataAxisOf(plan))) return {};
  return FindDataShardings(graph, plan, tensor_shardings, FindRowUpdates(graph));
}

DataShardings FindDataShardings(const Graph& graph, const Plan& plan,
                                const VariableShardings& tensor_shardings,
                                const RowUpdates& updates) {
  DataShardings result;
  if (!SplitsVariables(DataAxisOf(plan))) return result;
  for (const Variable& variable : graph.variables()) {
    const auto update = updates.find(variable.name);
    if (!variable.trainable || !variable.slot_of.empty() || update == updates.end()) continue;
    std::string reason = TooFewRows(graph, variable, plan, tensor_shardings);
    if (const auto said = plan.zero_replicated.find(variable.name);
        said != plan.zero_replicated.end()) {
      reason = said->second;
    }
    if (reason.empty() && plan.zero == 1 && !update->second.has_state) {
      reason = "it has no optimizer state";
    }
    if (reason.empty()) reason = update->second.obstacle;
    if (!reason.empty()) {
      result.replicated[variable.name] = reason;
      continue;
    }
    result.parameters.insert(variable.name);
    for (const auto& [name, by_rows] : update->second.nodes) {
      if (const auto node = graph.FindNode(name)) result.nodes.try_emplace(*node, by_rows);
    }
  }
  return result;
}

RowReaders::RowReaders(const Graph& graph, const ShardingDecisions& shardings)
    : graph_(graph),
      shardings_(shardings),
      uses_(graph.BuildUses()),
      leaves_(graph.value_capacity()) {
  for (const ValueId report : graph.outputs()) leaves_[report.value] = true;
  for (const Variable& variable : graph.variables()) {
    if (variable.update.valid()) leaves_[variable.update.value] = true;
  }
}

bool RowReaders::ReadRowsOnly(ValueId value, const DataShardings& data) const {
  const std::vector<Graph::Use>& uses = uses_[value.value];
  if (uses.empty() || leaves_[value.value]) return false;
  return std::all_of(uses.begin(), uses.end(), [&](const Graph::Use& use) {
    const auto node = data.nodes.find(use.node);
    return node != data.nodes.end() && node->second[use.input_index] &&
           shardings_.nodes[use.node.value].inputs[use.input_index] ==
               shardings_.values[value.value];
  });
}

void ExtendToInputs(const RowReaders& readers, DataShardings& data) {
  const Graph& graph = readers.graph();
  const ShardingDecisions& shardings = readers.shardings();
  std::vector<NodeId> pending;
  for (const auto& [id, by_rows] : data.nodes) pending.push_back(id);
  while (!pending.empty()) {
    const Node& reader = graph.node(pending.back());
    pending.pop_back();
    const std::vector<bool> by_rows = data.nodes.at(reader.id);
    for (size_t i = 0; i < reader.inputs.size(); ++i) {
      const ValueId value = reader.inputs[i];
      if (!by_rows[i] || graph.value(value).source != ValueSource::kNode) continue;
      const Node& node = graph.node(graph.value(value).producer);
      if (data.nodes.contains(node.id) || node.outputs.size() != 1 || node.stage != reader.stage ||
          shardings.nodes[node.id.value].outputs[0] != shardings.values[value.value] ||
          !readers.ReadRowsOnly(value, data)) {
        continue;
      }
      const std::optional<FactorRule> rule = RuleOf(graph, node);
      if (!rule.has_value()) continue;
      const std::optional<int> factor = ParallelRows(*rule, rule->outputs[0]);
      if (!factor.has_value()) continue;
      const auto inputs = InputsByRows(node, *rule, *factor);
      if (!inputs.has_value()) continue;
      data.nodes[node.id] = *inputs;
      pending.push_back(node.id);
    }
  }
}

DataShardings FindStoredShardings(const Graph& graph, const Plan& plan,
                                  const VariableShardings& tensor_shardings) {
  DataShardings result;
  if (!SplitsVariables(DataAxisOf(plan)) || plan.zero < 3) return result;
  for (const Variable& variable : graph.variables()) {
    if (!variable.trainable || !variable.slot_of.empty()) continue;
    if (plan.zero_replicated.contains(variable.name)) continue;
    if (!TooFewRows(graph, variable, plan, tensor_shardings).empty()) continue;
    result.parameters.insert(variable.name);
  }
  return result;
}

}  // namespace weft
