#include "placement/pipeline/stage_assignment.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "graph/node_class.h"
#include "graph/node_description.h"
#include "platform/status_macros.h"
#include "platform/text/name_pattern.h"
#include "platform/text/nearest_name.h"

namespace weft {
namespace {

constexpr int kUnplaced = -1;

bool IsStep(const Node& node) { return !IsBoundary(node) && !IsForward(node) && !IsBackward(node); }

class StageAssigner {
 public:
  StageAssigner(Graph& graph, const Plan& plan)
      : graph_(graph), plan_(plan), stage_(graph.node_capacity(), kUnplaced) {}

  absl::StatusOr<std::map<std::string, int>> Run() {
    WEFT_ASSIGN_OR_RETURN(order_, graph_.TopologicalOrder());
    uses_ = graph_.BuildUses();
    WEFT_RETURN_IF_ERROR(CheckEntries());
    WEFT_RETURN_IF_ERROR(PlaceForward());
    PlaceVariables();
    PlaceBackward();
    PlaceBoundaries();
    PlaceStep();
    for (const NodeId id : order_) graph_.node(id).stage = StageId(stage_[id.value]);
    WEFT_RETURN_IF_ERROR(CheckNoStageIsEmpty());
    return std::move(owner_);
  }

 private:
  const Node& node(NodeId id) const { return graph_.node(id); }
  int& StageOf(NodeId id) { return stage_[id.value]; }
  NodeId ProducerOf(ValueId value) const {
    return value.valid() ? graph_.value(value).producer : NodeId();
  }

  absl::Status CheckEntries() const;
  absl::Status PlaceForward();
  void PlaceFreeForward();
  absl::Status CheckForwardOrder() const;
  void PlaceVariables();
  int EarliestReader(ValueId value, bool (*wanted)(const Node&)) const;
  void PlaceBackward();
  int HintOfBackward(const Node& node) const;
  void PlaceBoundaries();
  void PlaceOwnSteps();
  void PlaceStep();
  bool NeedsBackward(ValueId value) const;
  void PlaceStepAncestors(ValueId value, int stage);
  absl::Status CheckNoStageIsEmpty() const;

  Graph& graph_;
  const Plan& plan_;
  std::vector<int> stage_;  // by NodeId
  std::vector<NodeId> order_;
  std::vector<std::vector<Graph::Use>> uses_;
  std::map<std::string, int> owner_;
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
    const bool fits =
        std::any_of(names.begin(), names.end(),
                    [&p = pattern](const std::string& name) { return MatchesPattern(p, name); });
    const bool is_name = std::find(names.begin(), names.end(), pattern) != names.end();
    if (fits || is_name || !is_training) continue;
    return absl::InvalidArgumentError(absl::StrCat("the plan puts '", pattern, "' on stage ", stage,
                                                   ", but no forward node has this name",
                                                   DidYouMean(pattern, names)));
  }
  return absl::OkStatus();
}

absl::Status StageAssigner::PlaceForward() {
  for (const NodeId id : order_) {
    if (!IsForward(node(id))) continue;
    if (const auto* entry = FindEntry(plan_.stages, node(id).name)) {
      StageOf(id) = entry->second;
      continue;
    }
    for (const ValueId input : node(id).inputs) {
      if (const NodeId producer = ProducerOf(input); producer.valid()) {
        StageOf(id) = std::max(StageOf(id), StageOf(producer));
      }
    }
  }
  PlaceFreeForward();
  return CheckForwardOrder();
}

// Nodes that read nothing that is placed go to their first reader; those that only sums and reports
// read (the count of the labels) to the last stage, where the loss is.
void StageAssigner::PlaceFreeForward() {
  for (auto it = order_.rbegin(); it != order_.rend(); ++it) {
    if (!IsForward(node(*it)) || StageOf(*it) != kUnplaced) continue;
    int earliest = plan_.num_stages();
    for (const ValueId output : node(*it).outputs) {
      if (!output.valid()) continue;
      for (const Graph::Use& use : uses_[output.value]) {
        if (IsForward(node(use.node))) earliest = std::min(earliest, StageOf(use.node));
      }
    }
    StageOf(*it) = std::min(earliest, plan_.num_stages() - 1);
  }
}

absl::Status StageAssigner::CheckForwardOrder() const {
  for (const NodeId id : order_) {
    if (!IsForward(node(id))) continue;
    for (const ValueId input : node(id).inputs) {
      const NodeId producer = ProducerOf(input);
      if (!producer.valid() || stage_[producer.value] <= stage_[id.value]) continue;
      return absl::InvalidArgumentError(absl::StrCat(
          DescribeNode(node(id)), " is on stage ", stage_[id.value], " but reads '",
          graph_.value(input).name, "' of ", DescribeNode(node(producer)), " on stage ",
          stage_[producer.value], "; stages must not decrease along the forward pass"));
    }
  }
  return absl::OkStatus();
}

int StageAssigner::EarliestReader(ValueId value, bool (*wanted)(const Node&)) const {
  int earliest = kUnplaced;
  for (const Graph::Use& use : uses_[value.value]) {
    const int stage = stage_[use.node.value];
    if (!wanted(node(use.node)) || stage == kUnplaced) continue;
    earliest = earliest == kUnplaced ? stage : std::min(earliest, stage);
  }
  return earliest;
}

void StageAssigner::PlaceVariables() {
  for (const Variable& variable : graph_.variables()) {
    owner_[variable.name] = std::max(0, EarliestReader(variable.value, IsForward));
  }
  for (const Variable& variable : graph_.variables()) {
    const auto owner = owner_.find(variable.slot_of);
    if (owner != owner_.end()) owner_[variable.name] = owner->second;
  }
}

// Where the node would like to be; kUnplaced = does not matter.
int StageAssigner::HintOfBackward(const Node& node) const {
  if (const std::optional<NodeId> forward = graph_.FindNode(node.origin.forward_node)) {
    if (IsForward(graph_.node(*forward))) return stage_[forward->value];
  }
  if (const auto owner = owner_.find(node.origin.logical_value); owner != owner_.end()) {
    return owner->second;
  }
  if (const std::optional<ValueId> value = graph_.FindValue(node.origin.logical_value)) {
    const NodeId producer = ProducerOf(*value);
    if (producer.valid() && IsForward(graph_.node(producer))) return stage_[producer.value];
  }
  return kUnplaced;
}

// The backward pass goes from late stages to early ones.
void StageAssigner::PlaceBackward() {
  for (const NodeId id : order_) {
    if (!IsBackward(node(id))) continue;
    int stage = HintOfBackward(node(id));
    for (const ValueId input : node(id).inputs) {
      const NodeId producer = ProducerOf(input);
      if (!producer.valid() || !IsBackward(node(producer)) || StageOf(producer) == kUnplaced) {
        continue;
      }
      stage = stage == kUnplaced ? StageOf(producer) : std::min(stage, StageOf(producer));
    }
    StageOf(id) = stage;
  }
  // What starts the backward pass (the seed) goes to its latest reader.
  for (auto it = order_.rbegin(); it != order_.rend(); ++it) {
    if (!IsBackward(node(*it)) || StageOf(*it) != kUnplaced) continue;
    int latest = 0;
    for (const ValueId output : node(*it).outputs) {
      if (!output.valid()) continue;
      for (const Graph::Use& use : uses_[output.value]) {
        latest = std::max(latest, StageOf(use.node));
      }
    }
    StageOf(*it) = latest;
  }
}

void StageAssigner::PlaceBoundaries() {
  for (const NodeId id : order_) {
    if (!IsBoundary(node(id))) continue;
    const NodeId producer = ProducerOf(node(id).inputs[0]);
    StageOf(id) = producer.valid() ? StageOf(producer) : plan_.num_stages() - 1;
  }
}

// Gives every unplaced step node that `value` depends on this stage.
void StageAssigner::PlaceStepAncestors(ValueId value, int stage) {
  std::vector<ValueId> pending = {value};
  while (!pending.empty()) {
    const NodeId producer = ProducerOf(pending.back());
    pending.pop_back();
    if (!producer.valid() || !IsStep(node(producer)) || StageOf(producer) != kUnplaced) continue;
    StageOf(producer) = stage;
    const std::vector<ValueId>& inputs = node(producer).inputs;
    pending.insert(pending.end(), inputs.begin(), inputs.end());
  }
}

// True if the backward pass has a part in `value`.
bool StageAssigner::NeedsBackward(ValueId value) const {
  std::vector<bool> seen(graph_.value_capacity());
  std::vector<ValueId> pending = {value};
  while (!pending.empty()) {
    const ValueId id = pending.back();
    pending.pop_back();
    const NodeId producer = ProducerOf(id);
    if (!producer.valid() || seen[id.value]) continue;
    seen[id.value] = true;
    if (IsBackward(node(producer))) return true;
    const std::vector<ValueId>& inputs = node(producer).inputs;
    pending.insert(pending.end(), inputs.begin(), inputs.end());
  }
  return false;
}

// What names a variable is for its update: it runs where the variable and its gradient are, and
// only what all of them share (the norm of all gradients) crosses stages.
void StageAssigner::PlaceOwnSteps() {
  for (const NodeId id : order_) {
    if (!IsStep(node(id))) continue;
    const auto owner = owner_.find(node(id).origin.logical_value);
    if (owner != owner_.end()) StageOf(id) = owner->second;
  }
}

void StageAssigner::PlaceStep() {
  PlaceOwnSteps();
  for (const ValueId output : graph_.outputs()) {
    if (!NeedsBackward(output)) PlaceStepAncestors(output, plan_.num_stages() - 1);
  }
  for (const Variable& variable : graph_.variables()) {
    PlaceStepAncestors(variable.update, owner_[variable.name]);
  }
  // Reports of the backward pass, and what leads nowhere.
  for (const NodeId id : order_) {
    if (StageOf(id) == kUnplaced) StageOf(id) = plan_.num_stages() - 1;
  }
}

absl::Status StageAssigner::CheckNoStageIsEmpty() const {
  std::vector<bool> used(plan_.num_stages());
  for (const NodeId id : order_) {
    if (IsForward(node(id))) used[stage_[id.value]] = true;
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
