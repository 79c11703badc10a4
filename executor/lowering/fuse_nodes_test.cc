// Which nodes of a step are fused, and which borders stay.
#include "executor/lowering/fuse_nodes.h"

#include <string>

#include "gmock/gmock.h"
#include "graph/graph_builder.h"
#include "graph/schedule/action_list.h"
#include "gtest/gtest.h"
#include "ops/fusion/fused_node.h"

namespace weft {
namespace {

FusedRole RoleOfStepNode(const Graph& /*graph*/, const Node& node) {
  return node.op == "Neg" || node.op == "Add" ? FusedRole::kElementwise : FusedRole::kNone;
}
constexpr FusionRules kStepRules{.role_of = RoleOfStepNode};

ValueId RowInput(Graph& graph, const std::string& name, InputRole role = InputRole::kData) {
  return graph.AddInput(name, {ValueKind::kTensor, DType::kFloat32, SymbolicShape(Shape({4}))},
                        role);
}

// A chain of `count` nodes in a phase; the last value.
ValueId NegChain(Graph& graph, ValueId x, int count, Phase phase) {
  GraphBuilder builder(graph);
  builder.set_phase(phase);
  for (int i = 0; i < count; ++i) x = builder.Op("Neg", {x});
  EXPECT_TRUE(builder.status().ok()) << builder.status();
  return x;
}

int FusedNodesOf(const Graph& graph) {
  int count = 0;
  for (const NodeId id : graph.node_ids()) count += graph.node(id).op == kFusedOp ? 1 : 0;
  return count;
}

Partition StepPartition() {
  Partition partition;
  partition.micro.emplace_back();
  Graph& micro = partition.micro[0];
  const ValueId y = NegChain(micro, RowInput(micro, "x"), 3, Phase::kForward);
  const ValueId dx = NegChain(micro, y, 2, Phase::kBackward);
  micro.RenameValue(dx, "dx");
  micro.AddOutput(dx);
  partition.micro_batches = {{.index = 0, .first = 0, .samples = 4, .graph = 0}};
  return partition;
}

TEST(FuseNodesTest, ForwardAndBackwardStayApart) {
  const Partition partition = StepPartition();
  const auto fused = FuseNodes(partition, kStepRules);
  ASSERT_TRUE(fused.ok()) << fused.status();
  EXPECT_EQ(fused->counts.nodes, 5);
  EXPECT_EQ(fused->counts.regions, 2);
  EXPECT_EQ(FusedNodesOf(fused->partition.micro[0]), 2);
  EXPECT_EQ(fused->partition.micro[0].value(fused->partition.micro[0].outputs()[0]).name, "dx");
  // What was given stays.
  EXPECT_EQ(FusedNodesOf(partition.micro[0]), 0);
  EXPECT_EQ(partition.micro[0].num_nodes(), 5);
}

// What the guard needs runs before any variable changes; the rest must not be drawn to it.
TEST(FuseNodesTest, TheGuardIsABorder) {
  Partition partition;
  Graph& end = partition.end;
  const ValueId sum = RowInput(end, "sum", InputRole::kStep);
  const ValueId loss = NegChain(end, sum, 2, Phase::kUpdate);
  end.RenameValue(loss, "loss");
  end.AddOutput(loss);
  const ValueId w = end.AddVariable(
      "w", {ValueKind::kTensor, DType::kFloat32, SymbolicShape(Shape({4}))}, Tensor(), true);
  GraphBuilder builder(end);
  builder.set_phase(Phase::kUpdate);
  const ValueId moved = builder.Op("Add", {w, builder.Op("Neg", {loss})});
  ASSERT_TRUE(builder.status().ok()) << builder.status();
  end.SetVariableUpdate("w", moved);
  partition.guard = "loss";
  const auto fused = FuseNodes(partition, kStepRules);
  ASSERT_TRUE(fused.ok()) << fused.status();
  EXPECT_EQ(fused->counts.regions, 2);
  partition.guard = "";
  const auto without = FuseNodes(partition, kStepRules);
  ASSERT_TRUE(without.ok()) << without.status();
  EXPECT_EQ(without->counts.regions, 1);
}

}  // namespace
}  // namespace weft
