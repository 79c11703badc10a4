#include "placement/rules/part_assignment.h"

#include <algorithm>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "placement/testing/regression_graph.h"

namespace weft {
namespace {

// A step of random nodes: forward ones in a row with branches, backward ones of some of them, sums,
// updates of variables and reports.
StepSkeleton RandomSkeleton(std::mt19937_64& random) {
  const auto roll = [&](size_t sides) { return static_cast<int>(random() % sides); };
  StepSkeleton skeleton;
  const auto add = [&](NodeRole role, const std::vector<NodeId>& inputs) {
    const NodeId id(static_cast<int>(skeleton.nodes.size()));
    StepSkeleton::Node node;
    node.role = role;
    node.inputs = inputs;
    skeleton.nodes.push_back(node);
    skeleton.order.push_back(id);
    for (const NodeId input : inputs) skeleton.nodes[input.value].readers.push_back(id);
    return id;
  };
  const auto some = [&](const std::vector<NodeId>& of, int max_count) {
    std::vector<NodeId> chosen;
    for (int i = roll(max_count + 1); i > 0 && !of.empty(); --i) {
      chosen.push_back(of[roll(of.size())]);
    }
    return chosen;
  };
  skeleton.variables.resize(4);
  skeleton.variables[3].slot_of = 0;
  std::vector<NodeId> forward, backward, sums, step;
  for (int i = 0; i < 10; ++i) {
    forward.push_back(add(NodeRole::kForward, some(forward, 2)));
    if (roll(2) == 0) skeleton.variables[roll(3)].readers.push_back(forward.back());
  }
  for (int i = 0; i < 8; ++i) {
    backward.push_back(add(NodeRole::kBackward, some(backward, 2)));
    StepSkeleton::Node& node = skeleton.nodes[backward.back().value];
    if (roll(3) > 0) node.forward_node = forward[roll(forward.size())];
    if (roll(3) == 0) node.variable = roll(3);
    if (roll(3) == 0) node.logical_producer = forward[roll(forward.size())];
  }
  for (int i = 0; i < 4; ++i) {
    const std::vector<NodeId>& made = roll(3) == 0 ? forward : backward;
    sums.push_back(add(NodeRole::kBoundary, {made[roll(made.size())]}));
  }
  for (int i = 0; i < 6; ++i) {
    std::vector<NodeId> inputs = some(step, 1);
    inputs.push_back(sums[roll(sums.size())]);
    step.push_back(add(NodeRole::kStep, inputs));
    if (roll(3) == 0) skeleton.nodes[step.back().value].variable = roll(4);
  }
  for (StepSkeleton::Variable& variable : skeleton.variables) {
    if (roll(2) == 0) variable.update = step[roll(step.size())];
  }
  skeleton.reports = some(step, 2);
  return skeleton;
}

// The law that lets a search decide about units and a partitioner about stages: joining consecutive
// parts before or after the assignment is the same.
TEST(PartAssignmentTest, JoiningConsecutivePartsCommutes) {
  std::mt19937_64 random(7);
  for (int round = 0; round < 500; ++round) {
    const StepSkeleton skeleton = RandomSkeleton(random);
    const int parts = 2 + static_cast<int>(random() % 5);
    std::vector<int> entries(skeleton.nodes.size(), kNoPart);
    int part = 0;
    for (const NodeId id : skeleton.order) {
      if (skeleton.node(id).role != NodeRole::kForward || random() % 4 == 0) continue;
      if (random() % 3 == 0) part = std::min(part + 1, parts - 1);
      entries[id.value] = part;
    }
    std::vector<int> joined(parts);  // the stage of each part
    for (int i = 1; i < parts; ++i) joined[i] = joined[i - 1] + static_cast<int>(random() % 2);
    const auto join = [&](std::vector<int> all) {
      for (int& one : all) one = one == kNoPart ? kNoPart : joined[one];
      return all;
    };
    const PartAssignment fine = AssignParts(skeleton, entries, parts);
    const PartAssignment coarse = AssignParts(skeleton, join(entries), joined.back() + 1);
    EXPECT_EQ(join(fine.nodes), coarse.nodes) << "round " << round;
    EXPECT_EQ(join(fine.owners), coarse.owners) << "round " << round;
  }
}

TEST(PartAssignmentTest, EveryNodeAndVariableHasAPart) {
  const Graph graph = testing::RegressionGraph();
  const StepSkeleton skeleton = MakeSkeleton(graph).value();
  std::vector<int> entries(skeleton.nodes.size(), kNoPart);
  entries[graph.FindNode("fc1/MatMul")->value] = 0;
  entries[graph.FindNode("fc2/MatMul")->value] = 1;
  const PartAssignment assigned = AssignParts(skeleton, entries, 3);
  const auto part_of = [&](const char* name) {
    return assigned.nodes[graph.FindNode(name)->value];
  };
  for (const NodeId id : skeleton.order) {
    EXPECT_GE(assigned.nodes[id.value], 0) << graph.node(id).name;
    EXPECT_LT(assigned.nodes[id.value], 3) << graph.node(id).name;
  }
  EXPECT_EQ(part_of("loss/SquaredErrorSum"), 1);
  EXPECT_EQ(part_of("grad/fc1/MatMul"), 0);
  EXPECT_EQ(part_of("grad/fc2/MatMul_1"), 1);
  EXPECT_EQ(part_of("update/w1/SgdUpdate"), 0);
  EXPECT_EQ(part_of("update/w2/SgdUpdate"), 1);
  EXPECT_EQ(part_of("step/Accumulate_1"), 1);  // of the loss: where that is made
  EXPECT_EQ(part_of("step/Div"), 2);           // reports that need no gradient: the last part
  EXPECT_EQ(assigned.owners, (std::vector<int>{0, 1}));
}

}  // namespace
}  // namespace weft
