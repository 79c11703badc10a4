#include "placement/search/given_plan.h"

#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ops/node_runner.h"
#include "placement/partition/partition_summary.h"
#include "placement/partition/partitioner.h"
#include "placement/search/testing/layers.h"

namespace weft {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kBatch = 16;

absl::StatusOr<Plan> Complete(const Graph& graph, const Plan& plan) {
  const ClusterSpec cluster = ClusterSpec::Local(plan.mesh.size(), 1);
  const CostModel cost = CostModel::OfSpec(cluster).value();
  return CompleteGivenPlan(graph, cluster, cost, plan, kBatch, CpuNodeEvaluator());
}

// `--parallel tp=2` alone once split nothing: both ranks did all the work and sent no byte.
TEST(GivenPlanTest, ATensorAxisWithoutHintsIsSplit) {
  constexpr int64_t kWidth = 64;
  const Layers model(4, kWidth);
  for (const Mesh mesh : {Mesh{1, 2, 1}, Mesh{2, 2, 1}}) {
    SCOPED_TRACE(mesh.ToString());
    Plan given;
    given.mesh = mesh;
    const Plan plan = Complete(model.graph(), given).value();
    EXPECT_EQ(plan.mesh, given.mesh);
    const std::vector<Partition> partitions =
        PartitionStep(model.graph(), plan, {/*training=*/true, kBatch}, CpuNodeEvaluator()).value();
    ASSERT_EQ(partitions.size(), static_cast<size_t>(mesh.size()));
    for (const Partition& partition : partitions) {
      const RankSummary summary = Summarize(partition).value();
      EXPECT_EQ(summary.parameters, 4 * kWidth * kWidth / 2);
      EXPECT_GT(summary.sent_bytes, 0);
    }
  }
}

// Hints that keep parameters whole were taken for an answer: both ranks did all the work.
TEST(GivenPlanTest, HintsThatSplitNothingLeaveTheTensorAxisOpen) {
  constexpr int64_t kWidth = 64;
  const Layers model(4, kWidth);
  Plan given;
  given.mesh = {1, 2, 1};
  given.tensor_shardings["w0"] = AxisSharding::Replicated();
  EXPECT_TRUE(LeavesTensorAxisOpen(given));
  const Plan plan = Complete(model.graph(), given).value();
  EXPECT_EQ(plan.tensor_shardings.at("w0"), AxisSharding::Replicated());
  const std::vector<Partition> partitions =
      PartitionStep(model.graph(), plan, {/*training=*/true, kBatch}, CpuNodeEvaluator()).value();
  for (const Partition& partition : partitions) {
    const RankSummary summary = Summarize(partition).value();
    EXPECT_LT(summary.parameters, 4 * kWidth * kWidth);
    EXPECT_GE(summary.parameters, kWidth * kWidth + 3 * kWidth * kWidth / 2);
  }
  given.tensor_shardings["w1"] = AxisSharding::Split(0);
  EXPECT_FALSE(LeavesTensorAxisOpen(given));
  given.tensor_shardings.clear();
  given.mesh = {2, 1, 1};
  EXPECT_FALSE(LeavesTensorAxisOpen(given));
}

TEST(GivenPlanTest, GivenHintsAreKept) {
  const Layers model(2, 8);
  Plan given;
  given.mesh = {1, 2, 1};
  given.tensor_shardings["w1"] = AxisSharding::Split(0);
  const Plan plan = Complete(model.graph(), given).value();
  EXPECT_EQ(plan.tensor_shardings.at("w1"), AxisSharding::Split(0));
  EXPECT_FALSE(plan.tensor_shardings.contains("w0"));
}

TEST(GivenPlanTest, WhereNothingCanBeSplitTheReasonIsSaid) {
  const Layers model(2, 1);  // weights of one element
  Plan given;
  given.mesh = {1, 2, 1};
  const absl::Status status = Complete(model.graph(), given).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("tp=2 splits nothing: no parameter"));
  given.tensor_shardings["w0"] = AxisSharding::Replicated();
  EXPECT_EQ(Complete(model.graph(), given).status(), status);
}

}  // namespace
}  // namespace weft
