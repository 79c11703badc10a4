#include "placement/rules/step_order.h"

#include <algorithm>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "graph/graph_builder.h"
#include "graph/node_class.h"
#include "graph/partition.h"
#include "gtest/gtest.h"
#include "placement/testing/regression_graph.h"

namespace weft {
namespace {

using ::testing::ElementsAre;

// The names of sums that come first, in the graph's order.
std::vector<std::string> FirstSums(const Graph& graph) {
  const std::vector<bool> of_guard = NodesOfGuard(graph, GuardOf(graph));
  const std::vector<NodeId> order = graph.TopologicalOrder().value();
  std::vector<std::string> first;
  for (const NodeId id : order) {
    const Node& node = graph.node(id);
    if (IsBoundary(node) && IsFirstSum(graph, of_guard, id)) first.push_back(node.name);
  }
  return first;
}

TEST(StepOrderTest, TheLossIsTheGuardAndItsSumsComeFirst) {
  const Graph graph = testing::RegressionGraph();
  EXPECT_EQ(graph.value(GuardOf(graph)).name, "loss");
  EXPECT_THAT(FirstSums(graph), ElementsAre("step/Accumulate", "step/Accumulate_1"));
}

// A guard of its own that reads a gradient: that gradient's sum is waited for, others are not.
TEST(StepOrderTest, AReportedGuardGoesBeforeTheLoss) {
  Graph graph = testing::RegressionGraph();
  GraphBuilder builder(graph);
  builder.set_phase(Phase::kUpdate);
  const ValueId sum = graph.node(*graph.FindNode("update/w2/Accumulate")).outputs[0];
  const ValueId guard = builder.Op("ReduceSumSquare", {sum}, {{"keepdims", int64_t{0}}});
  builder.Name(guard, kStepGuard);
  graph.AddOutput(guard);
  ASSERT_TRUE(builder.status().ok()) << builder.status();
  EXPECT_EQ(GuardOf(graph), guard);
  EXPECT_THAT(FirstSums(graph),
              ElementsAre("step/Accumulate", "step/Accumulate_1", "update/w2/Accumulate"));
}

TEST(StepOrderTest, LaterSumsComeFromTheLastStageOn) {
  std::vector<SumTurn> turns = {{0, 1, NodeId(1)},
                                {2, 9, NodeId(5)},
                                {2, 4, NodeId(8)},
                                {2, 4, NodeId(3)},
                                {1, 0, NodeId(2)}};
  std::sort(turns.begin(), turns.end(), IsSummedBefore);
  std::vector<int> sums;
  for (const SumTurn& turn : turns) sums.push_back(turn.sum.value);
  EXPECT_THAT(sums, ElementsAre(3, 8, 5, 2, 1));
}

}  // namespace
}  // namespace weft
