// What `plan` and `train` say about work that is not split.
#include "tools/reports/plan_report.h"

#include "graph/graph_builder.h"
#include "graph/op_schema.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

WEFT_REGISTER_OP(OpSchema::Weft("ReportTestOp")
                     .Input("x")
                     .Output("y")
                     .Infer([](InferenceContext& context) {
                       context.SetOutput(0, context.InputType(0));
                       return absl::OkStatus();
                     })
                     .NoGradient("of a test")
                     .CostOf([](const NodeView&) {
                       return Cost{750, 2048};
                     }));

// One rank's step: a Neg of 250 elements and `nodes` ops without a rule.
Partition StepOf(int rank, int tensor, int nodes) {
  Partition partition;
  partition.rank = RankId(rank);
  partition.mesh = {1, tensor, 1};
  GraphBuilder builder(partition.end);
  ValueId x = partition.end.AddInput("x", {ValueKind::kTensor, DType::kFloat32, Shape{250}});
  x = builder.Op("Neg", {x});
  for (int i = 0; i < nodes; ++i) x = builder.WeftOp("ReportTestOp", {x});
  EXPECT_TRUE(builder.status().ok()) << builder.status();
  partition.actions = {{Action::Kind::kUpdate}};
  return partition;
}

Plan PlanOf(int tensor) {
  Plan plan;
  plan.mesh = {1, tensor, 1};
  return plan;
}

std::vector<Partition> StepsOf(int tensor, int nodes) {
  std::vector<Partition> partitions;
  for (int rank = 0; rank < tensor; ++rank) partitions.push_back(StepOf(rank, tensor, nodes));
  return partitions;
}

TEST(ReplicationTextTest, NamesTheOpsWithNumberCostAndShare) {
  EXPECT_EQ(ReplicationText(PlanOf(2), StepsOf(2, 1)),
            "replicated on each of 2 shards because they have no sharding rule, per step\n"
            "  ai.weft::ReportTestOp x 1: 750 FLOPs (75.0 % of a shard's), 2 KiB\n");
}

TEST(ReplicationTextTest, SaysNothingWhereNothingIsReplicated) {
  EXPECT_EQ(ReplicationText(PlanOf(2), StepsOf(2, 0)), "");
  EXPECT_EQ(ReplicationText(PlanOf(1), StepsOf(1, 1)), "");
}

}  // namespace
}  // namespace weft
