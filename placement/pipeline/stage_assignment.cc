#include "placement/pipeline/stage_assignment.h"

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "graph/node_class.h"
#include "graph/node_description.h"
#include "placement/rules/part_assignment.h"
#include "platform/status_macros.h"
#include "platform/text/name_pattern.h"
#include "platform/text/nearest_name.h"

namespace weft {
namespace {

class StageAssigner {
 public:
  StageAssigner(Graph& graph, const Plan& plan) : graph_(graph), plan_(plan) {}

  absl::StatusOr<std::map<std::string, int>> Run() {
    WEFT_ASSIGN_OR_RETURN(const StepSkeleton skeleton, MakeSkeleton(graph_));
    order_ = skeleton.order;
    WEFT_RETURN_IF_ERROR(CheckEntries());
    const PartAssignment assigned = AssignParts(skeleton, Entries(), plan_.num_stages());
    for (const NodeId id : order_) graph_.node(id).stage = StageId(assigned.nodes[id.value]);
    WEFT_RETURN_IF_ERROR(CheckForwardOrder());
    WEFT_RETURN_IF_ERROR(CheckNoStageIsEmpty());
    std::map<std::string, int> owners;
    for (size_t i = 0; i < graph_.variables().size(); ++i) {
      owners[graph_.variables()[i].name] = assigned.owners[i];
    }
    return owners;
  }

 private:
  const Node& node(NodeId id) const { return graph_.node(id); }
  absl::Status CheckEntries() const;
  std::vector<int> Entries() const;
  absl::Status CheckForwardOrder() const;
  absl::Status CheckNoStageIsEmpty() const;

  Graph& graph_;
  const Plan& plan_;
  std::vector<NodeId> order_;
};

// Every entry of the plan names a forward node. Evaluation graphs have fewer nodes than the
// training graph that a plan is written for, so there a name may be missing.
absl::Status StageAssigner::CheckEntries() const {
  std::vector<std::string> names;
  bool is_training = false;
  for (const NodeId id : order_) {
    if (IsForward(node(id))) names.push_back(node(id).name);
    is_training |= IsBackward(node(id));
  }
  for (const auto& [pattern, stage] : plan_.stages) {
    if (stage < 0 || stage >= plan_.num_stages()) {
      return absl::InvalidArgumentError(absl::StrCat("the plan puts '", pattern, "' on stage ",
                                                     stage, ", but the plan has ",
                                                     plan_.num_stages(), " stages"));
    }
    const std::optional<NodeId> named = graph_.FindNode(pattern);
    if (!is_training || (named.has_value() && IsForward(node(*named)))) continue;
    const bool fits =
        std::any_of(names.begin(), names.end(),
                    [&p = pattern](const std::string& name) { return MatchesPattern(p, name); });
    if (fits) continue;
    return absl::InvalidArgumentError(absl::StrCat("the plan puts '", pattern, "' on stage ", stage,
                                                   ", but no forward node has this name",
                                                   DidYouMean(pattern, names)));
  }
  return absl::OkStatus();
}

// By NodeId: what the plan says of forward nodes.
std::vector<int> StageAssigner::Entries() const {
  std::vector<int> entries(graph_.node_capacity(), kNoPart);
  for (const NodeId id : order_) {
    if (!IsForward(node(id))) continue;
    if (const auto* entry = FindEntry(plan_.stages, node(id).name))
      entries[id.value] = entry->second;
  }
  return entries;
}

absl::Status StageAssigner::CheckForwardOrder() const {
  for (const NodeId id : order_) {
    if (!IsForward(node(id))) continue;
    for (const ValueId input : node(id).inputs) {
      const NodeId producer = input.valid() ? graph_.value(input).producer : NodeId();
      if (!producer.valid() || node(producer).stage <= node(id).stage) continue;
      return absl::InvalidArgumentError(absl::StrCat(
          DescribeNode(node(id)), " is on stage ", node(id).stage.value, " but reads '",
          graph_.value(input).name, "' of ", DescribeNode(node(producer)), " on stage ",
          node(producer).stage.value, "; stages must not decrease along the forward pass"));
    }
  }
  return absl::OkStatus();
}

absl::Status StageAssigner::CheckNoStageIsEmpty() const {
  std::vector<bool> used(plan_.num_stages());
  for (const NodeId id : order_) {
    if (IsForward(node(id))) used[node(id).stage.value] = true;
  }
  for (int stage = 0; stage < plan_.num_stages(); ++stage) {
    if (used[stage]) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("no forward node is on stage ", stage, " of ", plan_.num_stages(),
                     "; the plan's stages must name at least one node for each"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::map<std::string, int>> AssignStages(Graph& graph, const Plan& plan) {
  return StageAssigner(graph, plan).Run();
}

}  // namespace weft
