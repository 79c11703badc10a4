#include "placement/completion/balanced_cut.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "absl/strings/str_cat.h"
#include "graph/node_class.h"
#include "graph/op_schema.h"
#include "placement/completion/pinned_stages.h"
#include "placement/graph_views/graph_for_samples.h"
#include "placement/graph_views/graph_node_view.h"
#include "placement/pipeline/off_path_nodes.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

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
  std::vector<StageRange> ranges;   // of the nodes
  std::vector<double> work_before;  // of nodes [0, i)
  std::vector<double> cut_cost;     // between nodes i - 1 and i
};

class ChainMaker {
 public:
  // `parts` and `pinned` limit where nodes may be. With a valid `stage` only its nodes.
  ChainMaker(const Graph& graph, int parts, int64_t samples, CutFor purpose,
             const std::map<std::string, int>& pinned, StageId stage = StageId())
      : graph_(graph),
        parts_(parts),
        purpose_(purpose),
        pinned_(pinned),
        stage_(stage),
        uses_(graph.BuildUses()),
        sized_(GraphForSamples(graph, samples)),
        flops_(ForwardFlops(graph, samples)) {}

  absl::StatusOr<Chain> Run() {
    WEFT_ASSIGN_OR_RETURN(const std::vector<NodeId> order, graph_.TopologicalOrder());
    double total = 0;
    for (const auto& [name, flops] : flops_) total += flops;
    Chain chain;
    WEFT_RETURN_IF_ERROR(FindOffPathNodes(order));
    for (const NodeId id : order) {
      const Node& node = graph_.node(id);
      if (!IsForward(node) || (stage_.valid() && node.stage != stage_)) continue;
      const bool follows = IsFree(node) && Flops(node) * 100 < total;
      const bool is_left_out = follows || is_off_path_[id.value];
      if (!is_left_out || pinned_.contains(node.name)) chain.nodes.push_back(&node);
    }
    WEFT_RETURN_IF_ERROR(SortByRange(chain));
    chain.work_before.push_back(0);
    for (const Node* node : chain.nodes) {
      // Nodes of unknown or no cost count a little, so that stages have about as many.
      chain.work_before.push_back(chain.work_before.back() + Work(*node) + 1);
    }
    AddCrossing(chain);
    return chain;
  }

 private:
  // Off-path nodes are left out of stages, and their work is that of the nodes they lie with.
  // Segments are about the backward pass, which does not know of them.
  absl::Status FindOffPathNodes(const std::vector<NodeId>& order) {
    is_off_path_.resize(graph_.node_capacity());
    if (purpose_ != CutFor::kStages) return absl::OkStatus();
    WEFT_ASSIGN_OR_RETURN(const std::vector<NodeId> leaders, LeadersOfOffPathNodes(graph_));
    for (const NodeId id : order) {
      const NodeId leader = leaders[id.value];
      if (!leader.valid() || pinned_.contains(graph_.node(id).name)) continue;
      is_off_path_[id.value] = true;
      flops_[graph_.node(leader).name] += Flops(graph_.node(id));
    }
    return absl::OkStatus();
  }

  // Those that must be early first: an order of the graph still, as both ends of the range only
  // grow along its edges.
  absl::Status SortByRange(Chain& chain) const {
    WEFT_ASSIGN_OR_RETURN(const std::vector<StageRange> ranges,
                          StageRanges(graph_, parts_, pinned_));
    std::stable_sort(chain.nodes.begin(), chain.nodes.end(), [&](const Node* a, const Node* b) {
      const StageRange& x = ranges[a->id.value];
      const StageRange& y = ranges[b->id.value];
      return std::pair(x.first, x.last) < std::pair(y.first, y.last);
    });
    for (const Node* node : chain.nodes) chain.ranges.push_back(ranges[node->id.value]);
    return absl::OkStatus();
  }

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
  const int parts_;
  const CutFor purpose_;
  const std::map<std::string, int>& pinned_;
  const StageId stage_;
  const std::vector<std::vector<Graph::Use>> uses_;
  absl::StatusOr<Graph> sized_;
  std::map<std::string, double> flops_;
  std::vector<bool> is_off_path_;  // by NodeId
};

// Cut k, the first node of stage k, may lie in [first, last]; each later one at least one further
// on.
struct CutRange {
  int first = 0;
  int last = 0;
};

// By k, from 0; [0] is not used. What must be before stage k is before cut k, what may not is
// after.
std::vector<CutRange> CutRanges(const Chain& chain, int stages) {
  const int nodes = static_cast<int>(chain.nodes.size());
  std::vector<CutRange> cuts(stages, {0, nodes});
  int next = nodes;
  for (int k = stages - 1; k > 0; --k) {
    cuts[k].last = next - 1;
    for (int i = 0; i < nodes; ++i) {
      if (chain.ranges[i].last < k) cuts[k].first = i + 1;
      if (chain.ranges[i].first >= k) cuts[k].last = std::min(cuts[k].last, i);
    }
    next = cuts[k].last;
  }
  return cuts;
}

// The best place for cut `k` of `stages`, in [first, last].
int PlaceCut(const Chain& chain, int k, int stages, CutRange range) {
  const double total = chain.work_before.back();
  const double target = total * k / stages;
  const double window = total / stages / 4;
  int best = -1;
  bool best_in_window = false;
  const auto distance = [&](int cut) { return std::fabs(chain.work_before[cut] - target); };
  for (int cut = range.first; cut <= range.last; ++cut) {
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
absl::StatusOr<std::map<std::string, int>> CutInto(const Chain& chain, int parts) {
  const std::vector<CutRange> ranges = CutRanges(chain, parts);
  std::vector<int> cuts;
  for (int k = 1; k < parts; ++k) {
    const int previous = cuts.empty() ? 0 : cuts.back();
    const CutRange range{std::max(ranges[k].first, previous + 1), ranges[k].last};
    if (range.first > range.last) {
      return absl::InvalidArgumentError(
          absl::StrCat("the pins leave stage ", k - 1, " of ", parts,
                       " without a node; pin fewer nodes, or use fewer stages"));
    }
    cuts.push_back(PlaceCut(chain, k, parts, range));
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
  const absl::StatusOr<Graph> sized = GraphForSamples(graph, samples);
  if (!sized.ok()) return flops;
  for (const NodeId id : sized->node_ids()) {
    const Node& node = sized->node(id);
    if (IsForward(node)) flops[node.name] = FlopsOf(*sized, node);
  }
  return flops;
}

absl::StatusOr<std::map<std::string, int>> BalancedStages(
    const Graph& graph, int stages, int64_t samples, const std::map<std::string, int>& pinned) {
  WEFT_ASSIGN_OR_RETURN(const Chain chain,
                        ChainMaker(graph, stages, samples, CutFor::kStages, pinned).Run());
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
                        ChainMaker(graph, segments, samples, CutFor::kSegments, {}, stage).Run());
  return CutInto(chain, std::min(segments, static_cast<int>(chain.nodes.size())));
}

}  // namespace weft
