#include "placement/balanced_cut.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "absl/strings/str_cat.h"
#include "graph/inference.h"
#include "graph/op_schema.h"
#include "placement/graph_node_view.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

// Shapes alone are wanted: nothing is computed.
class NoEvaluator final : public NodeEvaluator {
 public:
  absl::StatusOr<std::vector<Tensor>> Evaluate(const Graph&, const Node&,
                                               const std::vector<Tensor>&) override {
    return absl::UnimplementedError("values are not needed to estimate costs");
  }
};

bool IsForward(const Node& node) {
  const bool is_boundary = node.schema != nullptr && node.schema->op_class() == OpClass::kBoundary;
  return node.phase == Phase::kForward && !is_boundary;
}

// The forward nodes with types for `samples` samples; unknown where a size depends on more.
absl::StatusOr<Graph> WithSizes(const Graph& graph, int64_t samples) {
  Specialization shapes;
  for (const ValueId id : graph.inputs()) {
    const SymbolicShape& shape = graph.value(id).type.shape;
    if (graph.input_role(id) != InputRole::kData || !shape.has_rank() || shape.rank() == 0)
      continue;
    std::vector<int64_t> dims = {samples};
    for (int axis = 1; axis < shape.rank(); ++axis) {
      if (!shape.dim(axis).is_known()) return absl::InvalidArgumentError("a size is not known");
      dims.push_back(shape.dim(axis).size());
    }
    shapes.input_shapes[graph.value(id).name] = Shape(dims);
  }
  NoEvaluator evaluator;
  return Specialize(graph, shapes, evaluator);
}

double FlopsOf(const Graph& graph, const Node& node) {
  const absl::StatusOr<GraphNodeView> view = GraphNodeView::Create(graph, node);
  if (!view.ok()) return 0;
  if (node.schema != nullptr && node.schema->cost()) return node.schema->cost()(*view).flops;
  return node.outputs.empty() ? 0 : static_cast<double>(view->OutputShape(0).num_elements());
}

// What parts shall have about equal shares of, and what a cut costs.
enum class CutFor : uint8_t {
  kStages,    // FLOPs; the bytes that cross
  kSegments,  // bytes that the backward pass reads; the bytes that cross, twice where it does not
              // read them: those are kept for the cut alone
};

// The forward nodes that are to be cut, in order.
struct Chain {
  std::vector<const Node*> nodes;
  std::vector<double> work_before;  // of nodes [0, i)
  std::vector<double> cut_cost;     // between nodes i - 1 and i
};

class ChainMaker {
 public:
  // Of all stages when there is none.
  ChainMaker(const Graph& graph, int64_t samples, CutFor purpose, StageId stage = StageId())
      : graph_(graph),
        purpose_(purpose),
        stage_(stage),
        uses_(graph.BuildUses()),
        sized_(WithSizes(graph, samples)),
        flops_(ForwardFlops(graph, samples)) {}

  absl::StatusOr<Chain> Run() {
    WEFT_ASSIGN_OR_RETURN(const std::vector<NodeId> order, graph_.TopologicalOrder());
    double total = 0;
    for (const auto& [name, flops] : flops_) total += flops;
    Chain chain;
    for (const NodeId id : order) {
      const Node& node = graph_.node(id);
      if (!IsForward(node) || (stage_.valid() && node.stage != stage_)) continue;
      if (!(IsFree(node) && Flops(node) * 100 < total)) chain.nodes.push_back(&node);
    }
    chain.work_before.push_back(0);
    for (const Node* node : chain.nodes) {
      // Nodes of unknown or no cost count a little, so that stages have about as many.
      chain.work_before.push_back(chain.work_before.back() + Work(*node) + 1);
    }
    AddCrossing(chain);
    return chain;
  }

 private:
  double Flops(const Node& node) const {
    const auto it = flops_.find(node.name);
    return it == flops_.end() ? 0 : it->second;
  }

  bool IsReadBackward(ValueId value) const {
    const std::vector<Graph::Use>& uses = uses_[value.value];
    return std::any_of(uses.begin(), uses.end(), [this](const Graph::Use& use) {
      return graph_.node(use.node).phase == Phase::kBackward;
    });
  }

  double Work(const Node& node) const {
    if (purpose_ == CutFor::kStages) return Flops(node);
    double bytes = 0;
    for (const ValueId output : node.outputs) {
      if (output.valid() && IsReadBackward(output)) bytes += Bytes(output);
    }
    return bytes;
  }

  double CostToCross(ValueId value) const {
    const bool is_extra = purpose_ == CutFor::kSegments && !IsReadBackward(value);
    return is_extra ? 2 * Bytes(value) : Bytes(value);
  }

  bool IsFree(const Node& node) const {
    return std::none_of(node.inputs.begin(), node.inputs.end(), [this](ValueId id) {
      return id.valid() && graph_.value(id).source == ValueSource::kNode;
    });
  }

  double Bytes(ValueId id) const {
    const ValueDef& value = graph_.value(id);
    std::optional<Shape> shape = value.type.shape.ToConcrete();
    if (sized_.ok()) {
      const std::optional<ValueId> known = sized_->FindValue(value.name);
      if (known.has_value()) shape = sized_->value(*known).type.shape.ToConcrete();
    }
    return shape.has_value()
               ? static_cast<double>(DTypeBytes(value.type.dtype, shape->num_elements()))
               : 1;
  }

  void AddCrossing(Chain& chain) const {
    std::vector<int> position(graph_.node_capacity(), -1);
    for (size_t i = 0; i < chain.nodes.size(); ++i) {
      position[chain.nodes[i]->id.value] = static_cast<int>(i);
    }
    chain.cut_cost.assign(chain.nodes.size() + 1, 0);
    for (size_t i = 0; i < chain.nodes.size(); ++i) {
      for (const ValueId output : chain.nodes[i]->outputs) {
        if (!output.valid()) continue;
        int last = static_cast<int>(i);
        for (const Graph::Use& use : uses_[output.value]) {
          last = std::max(last, position[use.node.value]);
        }
        for (int cut = static_cast<int>(i) + 1; cut <= last; ++cut) {
          chain.cut_cost[cut] += CostToCross(output);
        }
      }
    }
  }

  const Graph& graph_;
  const CutFor purpose_;
  const StageId stage_;
  const std::vector<std::vector<Graph::Use>> uses_;
  absl::StatusOr<Graph> sized_;
  std::map<std::string, double> flops_;
};

// The best place for cut `k` of `stages`, after `previous` and with room for the cuts that follow.
int PlaceCut(const Chain& chain, int k, int stages, int previous) {
  const double total = chain.work_before.back();
  const double target = total * k / stages;
  const double window = total / stages / 4;
  const int nodes = static_cast<int>(chain.nodes.size());
  int best = -1;
  bool best_in_window = false;
  const auto distance = [&](int cut) { return std::fabs(chain.work_before[cut] - target); };
  for (int cut = previous + 1; cut <= nodes - (stages - k); ++cut) {
    const bool in_window = distance(cut) <= window;
    bool better = best < 0 || (in_window && !best_in_window);
    if (!better && in_window == best_in_window) {
      const double cost = chain.cut_cost[cut];
      const double best_cost = chain.cut_cost[best];
      better = in_window && cost != best_cost ? cost < best_cost : distance(cut) < distance(best);
    }
    if (!better) continue;
    best = cut;
    best_in_window = in_window;
  }
  return best;
}

// The part of each node, by name.
std::map<std::string, int> CutInto(const Chain& chain, int parts) {
  std::vector<int> cuts;
  for (int k = 1; k < parts; ++k) {
    cuts.push_back(PlaceCut(chain, k, parts, cuts.empty() ? 0 : cuts.back()));
  }
  std::map<std::string, int> result;
  for (size_t i = 0; i < chain.nodes.size(); ++i) {
    const auto part = std::upper_bound(cuts.begin(), cuts.end(), static_cast<int>(i));
    result[chain.nodes[i]->name] = static_cast<int>(part - cuts.begin());
  }
  return result;
}

}  // namespace

std::map<std::string, double> ForwardFlops(const Graph& graph, int64_t samples) {
  std::map<std::string, double> flops;
  const absl::StatusOr<Graph> sized = WithSizes(graph, samples);
  if (!sized.ok()) return flops;
  for (const NodeId id : sized->node_ids()) {
    const Node& node = sized->node(id);
    if (IsForward(node)) flops[node.name] = FlopsOf(*sized, node);
  }
  return flops;
}

absl::StatusOr<std::map<std::string, int>> BalancedStages(const Graph& graph, int stages,
                                                          int64_t samples) {
  WEFT_ASSIGN_OR_RETURN(const Chain chain, ChainMaker(graph, samples, CutFor::kStages).Run());
  if (static_cast<int>(chain.nodes.size()) < stages) {
    return absl::InvalidArgumentError(
        absl::StrCat("the model has ", chain.nodes.size(), " nodes to share among ", stages,
                     " pipeline stages; use at most as many stages as nodes"));
  }
  return CutInto(chain, stages);
}

absl::StatusOr<std::map<std::string, int>> BalancedSegments(const Graph& graph, StageId stage,
                                                            int segments, int64_t samples) {
  WEFT_ASSIGN_OR_RETURN(const Chain chain,
                        ChainMaker(graph, samples, CutFor::kSegments, stage).Run());
  return CutInto(chain, std::min(segments, static_cast<int>(chain.nodes.size())));
}

}  // namespace weft
