#include "placement/sharding/derived_shardings.h"

#include <optional>
#include <vector>

#include "placement/graph_views/graph_for_samples.h"
#include "placement/graph_views/graph_node_view.h"
#include "placement/sharding/sharding_propagation.h"
#include "platform/status_macros.h"
#include "platform/text/name_pattern.h"

namespace weft {
namespace {

bool IsConcrete(const Graph& graph) {
  for (const NodeId id : graph.node_ids()) {
    for (const std::vector<ValueId>* values : {&graph.node(id).inputs, &graph.node(id).outputs}) {
      for (const ValueId value : *values) {
        if (value.valid() && !graph.value(value).type.shape.ToConcrete().has_value()) return false;
      }
    }
  }
  return true;
}

// How all forward readers read the variable; Replicated unless they agree on a split with a row for
// each rank.
AxisSharding ReadAs(const Graph& graph, const Variable& variable,
                    const std::vector<Graph::Use>& uses, const ShardingDecisions& decisions,
                    int shards) {
  std::optional<AxisSharding> common;
  for (const Graph::Use& use : uses) {
    if (graph.node(use.node).phase != Phase::kForward) continue;
    const AxisSharding& sharding = decisions.nodes[use.node.value].inputs[use.input_index];
    if (common.has_value() && *common != sharding) return AxisSharding::Replicated();
    common = sharding;
  }
  if (!common.has_value() || !common->is_split()) return AxisSharding::Replicated();
  const int64_t rows = ShapeOf(graph, variable.value).dim(common->axis) / common->blocks;
  return rows >= shards ? *common : AxisSharding::Replicated();
}

// Adds the gradient of each split variable that a node would make whole though it costs nothing to
// make only the rank's part: of an embedding split by columns, dense rows of zeros. What is hinted
// is made so where that sends no more bytes.
void AddGradients(const Graph& graph, const ShardingDecisions& decisions,
                  std::map<std::string, AxisSharding>& shardings) {
  for (const NodeId id : graph.node_ids()) {
    const Node& node = graph.node(id);
    if (node.op != "Accumulate" || node.domain != kWeftDomain) continue;
    const ValueDef& gradient = graph.value(node.inputs[0]);
    if (gradient.source != ValueSource::kNode) continue;
    if (!node.origin.is_gradient) continue;
    const auto variable = shardings.find(node.origin.logical_value);
    if (variable == shardings.end() || !variable->second.is_split()) continue;
    const AxisSharding& made = decisions.values[gradient.id.value];
    if (made.is_split() || shardings.contains(gradient.name)) continue;
    const AxisSharding sharding = variable->second;
    shardings[gradient.name] = sharding;
  }
}

}  // namespace

absl::Status DeriveShardings(const Graph& graph, int shards, int64_t samples,
                             std::map<std::string, AxisSharding>& shardings) {
  absl::StatusOr<Graph> sized = GraphForSamples(graph, samples);
  if (!sized.ok() || !IsConcrete(*sized)) return absl::OkStatus();
  PropagationOptions options;
  options.shards = shards;
  options.hints = shardings;
  WEFT_RETURN_IF_ERROR(ExpandForHints(*sized, options));
  WEFT_ASSIGN_OR_RETURN(const ShardingDecisions decisions, PropagateShardings(*sized, options));
  DeriveShardings(*sized, shards, decisions, shardings);
  return absl::OkStatus();
}

void DeriveShardings(const Graph& graph, int shards, const ShardingDecisions& decisions,
                     std::map<std::string, AxisSharding>& shardings) {
  const std::vector<std::vector<Graph::Use>> uses = graph.BuildUses();
  for (const Variable& variable : graph.variables()) {
    if (!variable.trainable || shardings.contains(variable.name)) continue;
    const AxisSharding sharding =
        ReadAs(graph, variable, uses[variable.value.value], decisions, shards);
    if (sharding.is_split()) shardings[variable.name] = sharding;
  }
  AddGradients(graph, decisions, shardings);
}

std::map<std::string, AxisSharding> ResolveShardings(
    const Graph& graph, const std::map<std::string, AxisSharding>& shardings) {
  std::map<std::string, AxisSharding> resolved;
  for (const auto& [name, sharding] : shardings) {
    if (name.find_first_of("*?") == std::string::npos) resolved[name] = sharding;
  }
  for (const Variable& variable : graph.variables()) {
    if (!variable.slot_of.empty()) continue;
    const auto* entry = FindEntry(shardings, variable.name);
    if (entry != nullptr) resolved[variable.name] = entry->second;
  }
  return resolved;
}

}  // namespace weft
