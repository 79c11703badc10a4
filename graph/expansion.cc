#include "graph/expansion.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "graph/graph_builder.h"
#include "graph/node_description.h"
#include "graph/node_inference.h"
#include "graph/op_schema.h"
#include "graph/schema_check.h"
#include "platform/status.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

// An op whose expansion holds more levels of expansions than this holds itself.
constexpr int kMaxDepth = 32;

class NodeExpander final : public ExpandContext {
 public:
  NodeExpander(Graph& graph, const Node& node)
      : graph_(graph), node_(node), builder_(BuilderFor(graph, node)) {}
  const Node& node() const override { return node_; }
  const Graph& graph() const override { return graph_; }
  GraphBuilder& builder() override { return builder_; }

 private:
  Graph& graph_;
  const Node& node_;
  GraphBuilder builder_;
};

// A node of a branch that is never taken need not fit its inputs, but expansions rely on it.
absl::Status CheckFits(const Graph& graph, const Node& node) {
  WEFT_RETURN_IF_ERROR(CheckNodeAgainstSchema(graph, node));
  if (!node.schema->infer()) return absl::OkStatus();
  std::vector<InferredOutput> outputs;
  return RunShapeFunction(graph, node, outputs);
}

// One value per output of the node, each made by a node of its own that came after `first`, so that
// it can take over the output's name.
absl::StatusOr<std::vector<ValueId>> BuildExpansion(Graph& graph, const Node& node,
                                                    const ExpandFn& build, int first) {
  NodeExpander expander(graph, node);
  WEFT_ASSIGN_OR_RETURN(std::vector<ValueId> results, build(expander));
  GraphBuilder& builder = expander.builder();
  WEFT_RETURN_IF_ERROR(builder.status());
  if (results.empty()) return results;
  if (results.size() < node.outputs.size()) {
    return absl::InternalError(absl::StrCat("its expansion makes ", results.size(), " values for ",
                                            node.outputs.size(), " outputs"));
  }
  results.resize(node.outputs.size());
  for (size_t i = 0; i < results.size(); ++i) {
    if (!node.outputs[i].valid()) continue;
    if (!results[i].valid()) {
      return absl::InternalError(absl::StrCat("its expansion makes no value for output ", i));
    }
    const ValueDef& value = graph.value(results[i]);
    const auto before = results.begin() + static_cast<std::ptrdiff_t>(i);
    const bool own = value.source == ValueSource::kNode && value.producer.value >= first &&
                     std::find(results.begin(), before, results[i]) == before;
    if (!own) results[i] = builder.Op("Identity", {results[i]});
  }
  WEFT_RETURN_IF_ERROR(builder.status());
  return results;
}

bool MayExpand(const Node& node, const RunsNodeFn& runs_node) {
  return node.schema != nullptr && node.schema->expand() != nullptr && !runs_node(node);
}

}  // namespace

absl::Status ExpandNode(Graph& graph, NodeId id) {
  const Node& node = graph.node(id);
  WEFT_ASSIGN_OR_RETURN(const bool replaced, ReplaceNode(graph, id, node.schema->expand()));
  if (replaced) return absl::OkStatus();
  return absl::InternalError(absl::StrCat(DescribeNode(node), ": its expansion makes 0 values for ",
                                          node.outputs.size(), " outputs"));
}

absl::StatusOr<bool> ReplaceNode(Graph& graph, NodeId id, const ExpandFn& build) {
  const Node& node = graph.node(id);
  WEFT_RETURN_IF_ERROR(CheckFits(graph, node));
  const int first = graph.node_capacity();
  const absl::StatusOr<std::vector<ValueId>> results = BuildExpansion(graph, node, build, first);
  if (!results.ok()) {
    for (int added = graph.node_capacity() - 1; added >= first; --added) {
      if (graph.is_live(NodeId(added))) graph.RemoveNode(NodeId(added));
    }
    return Annotate(results.status(), DescribeNode(node));
  }
  if (results->empty()) return false;
  const std::vector<ValueId> outputs = node.outputs;
  std::vector<std::string> names(outputs.size());
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (!outputs[i].valid()) continue;
    names[i] = graph.value(outputs[i]).name;
    graph.value((*results)[i]).origin = graph.value(outputs[i]).origin;
    graph.ReplaceUses(outputs[i], (*results)[i]);
  }
  graph.RemoveNode(id);
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (outputs[i].valid()) graph.RenameValue((*results)[i], names[i]);
  }
  return true;
}

absl::StatusOr<bool> ExpandFunctions(Graph& graph, const RunsNodeFn& runs_node,
                                     std::vector<absl::Status>* refusals) {
  bool changed = false;
  std::vector<int> depths(graph.node_capacity());
  // Expansions append nodes, which are visited in their turn.
  for (int i = 0; i < graph.node_capacity(); ++i) {
    const NodeId id(i);
    if (!graph.is_live(id) || !MayExpand(graph.node(id), runs_node)) continue;
    if (depths[i] >= kMaxDepth) {
      return absl::InternalError(absl::StrCat(DescribeNode(graph.node(id)), ": its expansion ",
                                              "has expansions ", kMaxDepth, " levels deep"));
    }
    const absl::Status status = ExpandNode(graph, id);
    depths.resize(graph.node_capacity(), depths[i] + 1);
    changed = changed || status.ok();
    if (status.ok()) continue;
    if (refusals == nullptr) return status;
    refusals->push_back(status);
  }
  return changed;
}

}  // namespace weft
