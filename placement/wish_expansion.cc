// ExpandForWishes: takes nodes apart whose own rule cannot read a parameter as the plan lays it.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "graph/graph_builder.h"
#include "graph/node_description.h"
#include "graph/op_schema.h"
#include "placement/graph_node_view.h"
#include "placement/name_pattern.h"
#include "placement/sharding_candidates.h"
#include "placement/sharding_propagation.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

class NodeExpander final : public ExpandContext {
 public:
  NodeExpander(Graph& graph, const Node& node) : graph_(graph), node_(node), builder_(graph) {
    builder_.set_phase(node.phase);
    builder_.set_stage(node.stage);
    Origin origin = node.origin;
    if (origin.forward_node.empty()) origin.forward_node = node.name;
    builder_.set_origin(std::move(origin));
    builder_.set_name_prefix(absl::StrCat(node.name, "/"));
  }
  const Node& node() const override { return node_; }
  const Graph& graph() const override { return graph_; }
  GraphBuilder& builder() override { return builder_; }

 private:
  Graph& graph_;
  const Node& node_;
  GraphBuilder builder_;
};

// True if some input is a variable that is wished to be split in a way that no candidate reads as
// it is.
absl::StatusOr<bool> NeedsExpansion(const Graph& graph, const Node& node,
                                    const PropagationOptions& options) {
  std::vector<AxisSharding> current(node.inputs.size());
  std::vector<int> wished;
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    if (!node.inputs[i].valid()) continue;
    const Variable* variable = graph.VariableOf(node.inputs[i]);
    const auto* wish = variable == nullptr ? nullptr : FindEntry(options.wishes, variable->name);
    if (wish == nullptr || !wish->second.is_split()) continue;
    current[i] = wish->second;
    wished.push_back(static_cast<int>(i));
  }
  if (wished.empty()) return false;
  WEFT_ASSIGN_OR_RETURN(const GraphNodeView view, GraphNodeView::Create(graph, node));
  WEFT_ASSIGN_OR_RETURN(const std::vector<NodeSharding> candidates,
                        ShardingCandidates(view, current, options.shards));
  return std::any_of(wished.begin(), wished.end(), [&](int input) {
    return std::none_of(candidates.begin(), candidates.end(), [&](const NodeSharding& candidate) {
      return candidate.inputs[input] == current[input];
    });
  });
}

absl::Status Expand(Graph& graph, NodeId id) {
  const Node& node = graph.node(id);
  NodeExpander expander(graph, node);
  WEFT_ASSIGN_OR_RETURN(const std::vector<ValueId> results, node.schema->expand()(expander));
  WEFT_RETURN_IF_ERROR(expander.builder().status());
  const std::vector<ValueId> outputs = node.outputs;
  if (results.size() < outputs.size()) {
    return absl::InternalError(absl::StrCat(DescribeNode(node), ": its expansion makes ",
                                            results.size(), " values for ", outputs.size(),
                                            " outputs"));
  }
  std::vector<std::string> names;
  for (size_t i = 0; i < outputs.size(); ++i) {
    names.push_back(outputs[i].valid() ? graph.value(outputs[i]).name : "");
    if (outputs[i].valid()) graph.ReplaceUses(outputs[i], results[i]);
  }
  graph.RemoveNode(id);
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (outputs[i].valid()) graph.RenameValue(results[i], names[i]);
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ExpandForWishes(Graph& graph, const PropagationOptions& options) {
  for (const NodeId id : graph.node_ids()) {
    const Node& node = graph.node(id);
    if (node.phase != Phase::kForward || node.schema == nullptr || !node.schema->expand()) continue;
    WEFT_ASSIGN_OR_RETURN(const bool needed, NeedsExpansion(graph, node, options));
    if (needed) WEFT_RETURN_IF_ERROR(Expand(graph, id));
  }
  return absl::OkStatus();
}

}  // namespace weft
