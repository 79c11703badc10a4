#include "tools/bench/kernel_fusion.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "graph/node_class.h"
#include "graph/op_schema.h"
#include "placement/cost/op_key.h"
#include "placement/graph_views/graph_node_view.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

enum class Kind : uint8_t { kOther, kMoves, kElementwise, kProduct };

// Operands and results that a mask can tell.
constexpr int kMaskBits = 64;

DType FirstFloat(const NodeView& view) {
  for (int i = 0; i < view.num_inputs(); ++i) {
    if (IsFloatingPoint(view.InputDType(i))) return view.InputDType(i);
  }
  return view.num_outputs() > 0 ? view.OutputDType(0) : DType::kFloat32;
}

Kind KindOf(const Graph& graph, const Node& node) {
  if (node.schema == nullptr || (!IsForward(node) && !IsBackward(node))) return Kind::kOther;
  if (node.schema->element_use() == ElementUse::kMoves || !node.schema->aliases().empty()) {
    return Kind::kMoves;
  }
  const absl::StatusOr<GraphNodeView> view = GraphNodeView::Create(graph, node);
  if (!view.ok()) return Kind::kOther;
  switch (FamilyOf(CostOf(*view), FirstFloat(*view))) {
    case OpFamily::kElementwise:
      return Kind::kElementwise;
    case OpFamily::kContraction:
      return Kind::kProduct;
    case OpFamily::kMovement:
      break;
  }
  return Kind::kOther;
}

class Fusion {
 public:
  Fusion(const Graph& graph, const std::vector<std::vector<Graph::Use>>& uses)
      : graph_(graph),
        uses_(uses),
        kinds_(graph.node_capacity(), Kind::kOther),
        nodes_(graph.node_capacity()) {}

  absl::StatusOr<std::vector<FusedNode>> Run() {
    WEFT_ASSIGN_OR_RETURN(const std::vector<NodeId> order, graph_.TopologicalOrder());
    for (const NodeId id : order) kinds_[id.value] = KindOf(graph_, graph_.node(id));
    for (const NodeId id : order) {
      FindOnce(id);
      Join(id);
    }
    for (auto it = order.rbegin(); it != order.rend(); ++it) FindFree(*it);
    return std::move(nodes_);
  }

 private:
  void FindOnce(NodeId id);
  void Join(NodeId id);
  void FindFree(NodeId id);
  bool IsReadInPhaseBy(ValueId value, Phase phase, NodeId reader) const;

  const Graph& graph_;
  const std::vector<std::vector<Graph::Use>>& uses_;
  std::vector<Kind> kinds_;  // by NodeId
  std::vector<FusedNode> nodes_;
};

void Fusion::FindOnce(NodeId id) {
  const Node& node = graph_.node(id);
  if (!IsForward(node) || node.inputs.empty()) return;
  bool any = false;
  for (const ValueId input : node.inputs) {
    if (!input.valid()) continue;
    const ValueDef& value = graph_.value(input);
    const bool from_once =
        value.source == ValueSource::kNode && nodes_[value.producer.value].is_once;
    const bool is_variable = value.source == ValueSource::kVariable;
    if (!from_once && !is_variable && value.source != ValueSource::kConstant) return;
    any |= from_once || is_variable;
  }
  nodes_[id.value].is_once = any;
}

// Whether `reader` is the only node of the phase that reads the value.
bool Fusion::IsReadInPhaseBy(ValueId value, Phase phase, NodeId reader) const {
  return std::all_of(uses_[value.value].begin(), uses_[value.value].end(),
                     [&](const Graph::Use& use) {
                       return use.node == reader || graph_.node(use.node).phase != phase;
                     });
}

void Fusion::Join(NodeId id) {
  const Node& node = graph_.node(id);
  if (kinds_[id.value] != Kind::kElementwise || nodes_[id.value].is_once) return;
  for (size_t i = 0; i < std::min(node.inputs.size(), size_t{kMaskBits}); ++i) {
    const ValueId input = node.inputs[i];
    if (!input.valid() || graph_.value(input).source != ValueSource::kNode) continue;
    const NodeId producer = graph_.value(input).producer;
    const Node& before = graph_.node(producer);
    if (kinds_[producer.value] != Kind::kElementwise || before.phase != node.phase ||
        nodes_[producer.value].is_once || !IsReadInPhaseBy(input, node.phase, id)) {
      continue;
    }
    nodes_[id.value].joins = true;
    nodes_[id.value].unread |= uint64_t{1} << i;
    const bool is_needed = std::any_of(uses_[input.value].begin(), uses_[input.value].end(),
                                       [&](const Graph::Use& use) { return use.node != id; });
    const auto output = std::find(before.outputs.begin(), before.outputs.end(), input);
    const size_t at = static_cast<size_t>(output - before.outputs.begin());
    if (!is_needed && at < size_t{kMaskBits}) nodes_[producer.value].unwritten |= uint64_t{1} << at;
  }
}

void Fusion::FindFree(NodeId id) {
  if (kinds_[id.value] != Kind::kMoves) return;
  for (const ValueId output : graph_.node(id).outputs) {
    if (!output.valid()) continue;
    for (const Graph::Use& use : uses_[output.value]) {
      const bool passes =
          kinds_[use.node.value] == Kind::kProduct || nodes_[use.node.value].is_free;
      if (!passes) return;
    }
  }
  nodes_[id.value].is_free = true;
}

class FusedNodeCosts final : public NodeCosts {
 public:
  FusedNodeCosts(const NodeCostsRequest& request, std::vector<FusedNode> fused)
      : request_(request), fused_(std::move(fused)) {}

  double Seconds(const Node& node, const NodeView& shard, int worker) const override;
  std::string Kind(const Node& node) const override {
    const FusedNode& fused = Of(node);
    if (fused == FusedNode()) return "";
    return absl::StrCat("f", fused.unread, ".", fused.unwritten, ".", fused.joins, fused.is_free);
  }
  bool RunsOncePerStep(const Node& node) const override { return Of(node).is_once; }
  bool HasAccumulation() const override { return false; }

 private:
  const FusedNode& Of(const Node& node) const { return fused_[node.id.value]; }

  const NodeCostsRequest request_;
  const std::vector<FusedNode> fused_;  // by NodeId
};

// Of a node whose kernel is another one's too, without what it then neither reads nor writes.
double FusedNodeCosts::Seconds(const Node& node, const NodeView& shard, int worker) const {
  const FusedNode& fused = Of(node);
  const CostModel& model = request_.cost;
  const int threads = request_.threads[worker];
  if (fused.is_free) return 0;
  if (fused == FusedNode()) return model.NodeSeconds(shard, worker, threads, request_.in_flight);
  Cost cost = CostOf(shard);
  const DType computed = FirstFloat(shard);
  const OpFamily family = FamilyOf(cost, computed);
  const auto bytes = [](DType dtype, const Shape& shape) {
    return static_cast<double>(DTypeBytes(dtype, shape.num_elements()));
  };
  for (int i = 0; i < shard.num_inputs(); ++i) {
    const bool skipped = i < kMaskBits && (fused.unread >> i & 1) != 0;
    if (skipped) cost.bytes -= bytes(shard.InputDType(i), shard.InputShape(i));
  }
  for (int i = 0; i < shard.num_outputs(); ++i) {
    const bool skipped = i < kMaskBits && (fused.unwritten >> i & 1) != 0;
    if (skipped) cost.bytes -= bytes(shard.OutputDType(i), shard.OutputShape(i));
  }
  cost.bytes = std::max(0.0, cost.bytes);
  return model.WorkSeconds(cost, family, computed, worker, threads) +
         (fused.joins ? 0 : model.node_seconds(worker));
}

}  // namespace

absl::StatusOr<std::vector<FusedNode>> FuseNodes(const Graph& graph,
                                                 const std::vector<std::vector<Graph::Use>>& uses) {
  return Fusion(graph, uses).Run();
}

absl::StatusOr<std::unique_ptr<NodeCosts>> MakeFusedNodeCosts(const NodeCostsRequest& request) {
  WEFT_ASSIGN_OR_RETURN(std::vector<FusedNode> fused, FuseNodes(request.graph, request.uses));
  return std::make_unique<FusedNodeCosts>(request, std::move(fused));
}

}  // namespace weft
