#include "placement/rules/part_assignment.h"

#include <algorithm>
#include <utility>

namespace weft {
namespace {

class Assigner {
 public:
  Assigner(const StepSkeleton& skeleton, std::vector<int> entries, int parts)
      : skeleton_(skeleton), last_(parts - 1), part_(std::move(entries)) {}

  PartAssignment Run() {
    PlaceForward();
    PlaceFreeForward();
    PlaceVariables();
    PlaceBackward();
    PlaceSeeds();
    PlaceBoundaries();
    PlaceStep();
    return {std::move(part_), std::move(owners_)};
  }

 private:
  const StepSkeleton::Node& node(NodeId id) const { return skeleton_.node(id); }
  bool Has(NodeId id, NodeRole role) const { return node(id).role == role; }
  int& PartOf(NodeId id) { return part_[id.value]; }
  // The earliest forward reader's; kNoPart without any.
  int EarliestOf(const std::vector<NodeId>& readers) const;
  void PlaceForward();
  void PlaceFreeForward();
  void PlaceVariables();
  int HintOfBackward(const StepSkeleton::Node& node) const;
  void PlaceBackward();
  void PlaceSeeds();
  void PlaceBoundaries();
  std::vector<bool> NodesThatNeedBackward() const;
  void PlaceStepAncestors(NodeId node, int part);
  void PlaceStep();

  const StepSkeleton& skeleton_;
  const int last_;
  std::vector<int> part_;  // by NodeId
  std::vector<int> owners_;
};

int Assigner::EarliestOf(const std::vector<NodeId>& readers) const {
  int earliest = kNoPart;
  for (const NodeId reader : readers) {
    const int part = part_[reader.value];
    if (!Has(reader, NodeRole::kForward) || part == kNoPart) continue;
    earliest = earliest == kNoPart ? part : std::min(earliest, part);
  }
  return earliest;
}

void Assigner::PlaceForward() {
  for (const NodeId id : skeleton_.order) {
    if (!Has(id, NodeRole::kForward) || PartOf(id) != kNoPart) continue;
    for (const NodeId input : node(id).inputs) PartOf(id) = std::max(PartOf(id), PartOf(input));
  }
}

// What reads nothing that is placed. What only sums and reports read (the count of the labels) goes
// to the last part, where the loss is.
void Assigner::PlaceFreeForward() {
  for (auto it = skeleton_.order.rbegin(); it != skeleton_.order.rend(); ++it) {
    if (!Has(*it, NodeRole::kForward) || PartOf(*it) != kNoPart) continue;
    const int earliest = EarliestOf(node(*it).readers);
    PartOf(*it) = earliest == kNoPart ? last_ : earliest;
  }
}

void Assigner::PlaceVariables() {
  for (const StepSkeleton::Variable& variable : skeleton_.variables) {
    owners_.push_back(std::max(0, EarliestOf(variable.readers)));
  }
  const std::vector<int> read = owners_;
  for (size_t i = 0; i < owners_.size(); ++i) {
    const int parameter = skeleton_.variables[i].slot_of;
    if (parameter >= 0) owners_[i] = read[parameter];
  }
}

int Assigner::HintOfBackward(const StepSkeleton::Node& node) const {
  if (node.forward_node.valid()) return part_[node.forward_node.value];
  if (node.variable >= 0) return owners_[node.variable];
  return node.logical_producer.valid() ? part_[node.logical_producer.value] : kNoPart;
}

// The backward pass goes from late parts to early ones.
void Assigner::PlaceBackward() {
  for (const NodeId id : skeleton_.order) {
    if (!Has(id, NodeRole::kBackward)) continue;
    int part = HintOfBackward(node(id));
    for (const NodeId input : node(id).inputs) {
      const int other = PartOf(input);
      if (!Has(input, NodeRole::kBackward) || other == kNoPart) continue;
      part = part == kNoPart ? other : std::min(part, other);
    }
    PartOf(id) = part;
  }
}

void Assigner::PlaceSeeds() {
  for (auto it = skeleton_.order.rbegin(); it != skeleton_.order.rend(); ++it) {
    if (!Has(*it, NodeRole::kBackward) || PartOf(*it) != kNoPart) continue;
    int latest = 0;
    for (const NodeId reader : node(*it).readers) latest = std::max(latest, PartOf(reader));
    PartOf(*it) = latest;
  }
}

void Assigner::PlaceBoundaries() {
  for (const NodeId id : skeleton_.order) {
    if (!Has(id, NodeRole::kBoundary)) continue;
    PartOf(id) = node(id).inputs.empty() ? last_ : PartOf(node(id).inputs.front());
  }
}

// By NodeId: the backward pass has a part in what it makes.
std::vector<bool> Assigner::NodesThatNeedBackward() const {
  std::vector<bool> needs(part_.size());
  for (const NodeId id : skeleton_.order) {
    needs[id.value] = Has(id, NodeRole::kBackward) ||
                      std::any_of(node(id).inputs.begin(), node(id).inputs.end(),
                                  [&](NodeId input) { return needs[input.value]; });
  }
  return needs;
}

// Gives every unplaced step node that `node` depends on, itself included, this part.
void Assigner::PlaceStepAncestors(NodeId node, int part) {
  std::vector<NodeId> pending = {node};
  while (!pending.empty()) {
    const NodeId id = pending.back();
    pending.pop_back();
    if (!id.valid() || !Has(id, NodeRole::kStep) || PartOf(id) != kNoPart) continue;
    PartOf(id) = part;
    const std::vector<NodeId>& inputs = skeleton_.node(id).inputs;
    pending.insert(pending.end(), inputs.begin(), inputs.end());
  }
}

void Assigner::PlaceStep() {
  // What names a variable runs where the variable and its gradient are, and only what all of them
  // share (the norm of all gradients) crosses parts.
  for (const NodeId id : skeleton_.order) {
    const int variable = node(id).variable;
    if (Has(id, NodeRole::kStep) && variable >= 0) PartOf(id) = owners_[variable];
  }
  const std::vector<bool> needs_backward = NodesThatNeedBackward();
  for (const NodeId report : skeleton_.reports) {
    if (!needs_backward[report.value]) PlaceStepAncestors(report, last_);
  }
  for (size_t i = 0; i < owners_.size(); ++i) {
    PlaceStepAncestors(skeleton_.variables[i].update, owners_[i]);
  }
  // Reports of the backward pass, and what leads nowhere.
  for (const NodeId id : skeleton_.order) {
    if (PartOf(id) == kNoPart) PartOf(id) = last_;
  }
}

}  // namespace

PartAssignment AssignParts(const StepSkeleton& skeleton, std::vector<int> entries, int parts) {
  return Assigner(skeleton, std::move(entries), parts).Run();
}

}  // namespace weft
