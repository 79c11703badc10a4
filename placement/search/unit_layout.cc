#include "placement/search/unit_layout.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "graph/node_class.h"
#include "placement/graph_views/graph_node_view.h"
#include "placement/pipeline/off_path_nodes.h"
#include "placement/rules/part_assignment.h"
#include "placement/rules/step_skeleton.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

struct Chain {
  std::vector<NodeId> nodes;
  std::vector<double> before;    // seconds of the nodes before node i; one more at the end
  std::vector<double> crossing;  // bytes that cross between nodes i - 1 and i
};

bool ReadsNoNode(const Graph& graph, const Node& node) {
  return std::none_of(node.inputs.begin(), node.inputs.end(), [&](ValueId id) {
    return id.valid() && graph.value(id).source == ValueSource::kNode;
  });
}

double SecondsOf(const Graph& graph, const Node& node, const CostModel& cost) {
  const auto view = GraphNodeView::Create(graph, node);
  return view.ok() ? cost.NodeSeconds(*view, 0, 1) : 0;
}

void AddCrossing(const Graph& graph, Chain& chain) {
  const auto uses = graph.BuildUses();
  std::vector<int> position(graph.node_capacity(), -1);
  for (size_t i = 0; i < chain.nodes.size(); ++i) {
    position[chain.nodes[i].value] = static_cast<int>(i);
  }
  std::vector<double> change(chain.nodes.size() + 2);
  for (size_t i = 0; i < chain.nodes.size(); ++i) {
    for (const ValueId output : graph.node(chain.nodes[i]).outputs) {
      if (!output.valid()) continue;
      int last = static_cast<int>(i);
      for (const Graph::Use& use : uses[output.value]) {
        last = std::max(last, position[use.node.value]);
      }
      const double bytes = static_cast<double>(BytesOf(graph, output));
      change[i + 1] += bytes;
      change[last + 1] -= bytes;
    }
  }
  double bytes = 0;
  for (size_t i = 0; i <= chain.nodes.size(); ++i) {
    bytes += change[i];
    chain.crossing.push_back(bytes);
  }
}

absl::StatusOr<Chain> MakeChain(const Graph& graph, const CostModel& cost) {
  WEFT_ASSIGN_OR_RETURN(const std::vector<NodeId> order, graph.TopologicalOrder());
  WEFT_ASSIGN_OR_RETURN(const std::vector<NodeId> leaders, LeadersOfOffPathNodes(graph));
  std::vector<double> seconds(graph.node_capacity());  // off-path nodes' are at their leaders
  double total = 0;
  for (const NodeId id : order) {
    const Node& node = graph.node(id);
    if (!IsForward(node)) continue;
    const double own = SecondsOf(graph, node, cost);
    seconds[leaders[id.value].valid() ? leaders[id.value].value : id.value] += own;
    total += own;
  }
  Chain chain;
  chain.before.push_back(0);
  for (const NodeId id : order) {
    if (!IsForward(graph.node(id)) || leaders[id.value].valid()) continue;
    if (ReadsNoNode(graph, graph.node(id)) && seconds[id.value] * 100 < total) continue;
    chain.nodes.push_back(id);
    // What costs nothing counts a little, so that units have about as many nodes.
    chain.before.push_back(chain.before.back() + seconds[id.value] + 1e-9);
  }
  AddCrossing(graph, chain);
  return chain;
}

// Where units begin, the first at 0.
std::vector<int> PlaceCuts(const Chain& chain, int max_units) {
  const int nodes = static_cast<int>(chain.nodes.size());
  std::vector<int> cuts = {0};
  if (nodes <= max_units) {
    for (int i = 1; i < nodes; ++i) cuts.push_back(i);
    return cuts;
  }
  const double window = chain.before.back() / max_units;
  for (int k = 1; k < max_units; ++k) {
    const double target = window * k;
    const auto begin =
        std::lower_bound(chain.before.begin(), chain.before.end(), target - window / 2);
    int best = -1;
    for (int i = static_cast<int>(begin - chain.before.begin());
         i < nodes && chain.before[i] <= target + window / 2; ++i) {
      if (i <= cuts.back()) continue;
      const bool fewer = best < 0 || chain.crossing[i] < chain.crossing[best];
      const bool nearer =
          best >= 0 && chain.crossing[i] == chain.crossing[best] &&
          std::fabs(chain.before[i] - target) < std::fabs(chain.before[best] - target);
      if (fewer || nearer) best = i;
    }
    if (best > 0) cuts.push_back(best);
  }
  return cuts;
}

}  // namespace

absl::StatusOr<UnitLayout> CutIntoUnits(const Graph& graph, const CostModel& cost, int max_units) {
  WEFT_ASSIGN_OR_RETURN(const Chain chain, MakeChain(graph, cost));
  if (chain.nodes.empty()) {
    return absl::InvalidArgumentError("the model's forward pass has no node to place");
  }
  const std::vector<int> cuts = PlaceCuts(chain, max_units);
  UnitLayout layout;
  layout.nodes.resize(cuts.size());
  for (size_t i = 0; i < chain.nodes.size(); ++i) {
    const auto after = std::upper_bound(cuts.begin(), cuts.end(), static_cast<int>(i));
    const int unit = static_cast<int>(after - cuts.begin()) - 1;
    layout.nodes[unit].push_back(graph.node(chain.nodes[i]).name);
  }
  return layout;
}

absl::Status PlaceInUnits(Graph& graph, UnitLayout& layout) {
  WEFT_ASSIGN_OR_RETURN(const StepSkeleton skeleton, MakeSkeleton(graph));
  std::vector<int> entries(graph.node_capacity(), kNoPart);
  for (int unit = 0; unit < layout.size(); ++unit) {
    for (const std::string& name : layout.nodes[unit]) {
      if (const auto node = graph.FindNode(name)) entries[node->value] = unit;
    }
  }
  const PartAssignment assigned = AssignParts(skeleton, std::move(entries), layout.size());
  for (const NodeId id : skeleton.order) {
    graph.node(id).stage = StageId(assigned.nodes[id.value]);
  }
  layout.owners.clear();
  for (size_t i = 0; i < graph.variables().size(); ++i) {
    layout.owners[graph.variables()[i].name] = assigned.owners[i];
  }
  return absl::OkStatus();
}

}  // namespace weft
