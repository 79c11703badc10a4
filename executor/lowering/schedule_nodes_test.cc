#include "executor/lowering/schedule_nodes.h"

#include <string>
#include <utility>

#include "gmock/gmock.h"
#include "graph/graph_builder.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

using ::testing::HasSubstr;

constexpr int kMicroBatches = 2;

ValueType FloatType(const Shape& shape) { return {ValueKind::kTensor, DType::kFloat32, shape}; }

// Forward y = -x, backward z = -y; the loss is guarded, w becomes -w.
Partition SmallPartition() {
  Partition partition;
  partition.rank = RankId(0);
  partition.global_batch = partition.total_micro_batches = kMicroBatches;
  Graph micro;
  GraphBuilder builder(micro);
  const ValueId y = builder.Op("Neg", {micro.AddInput("x", FloatType({1, 2}))});
  builder.set_phase(Phase::kBackward);
  const ValueId z = builder.Op("Abs", {y});
  EXPECT_TRUE(builder.status().ok()) << builder.status();
  micro.AddOutput(z);
  partition.micro.push_back(std::move(micro));
  GraphBuilder end(partition.end);
  end.set_phase(Phase::kUpdate);
  const ValueId w = partition.end.AddVariable("w", FloatType({1, 2}), Tensor(), true);
  const ValueId loss = end.Op("Abs", {partition.end.AddInput("sum", FloatType({1, 2}))});
  end.Name(loss, "loss");
  partition.end.SetVariableUpdate("w", end.Op("Neg", {w}));
  EXPECT_TRUE(end.status().ok()) << end.status();
  partition.guard = "loss";
  for (int i = 0; i < kMicroBatches; ++i) partition.micro_batches.push_back({i, i, 1, 0});
  return partition;
}

TEST(ScheduleNodesTest, FollowsTheActionsAndPutsTheGuardBeforeUpdates) {
  Partition partition = SmallPartition();
  using Kind = Action::Kind;
  partition.actions = {{Kind::kForward, 0},
                       {Kind::kForward, 1},
                       {Kind::kBackward, 0},
                       {Kind::kBackward, 1},
                       {Kind::kUpdate, 0}};
  const auto schedule = ScheduleNodes(partition);
  ASSERT_TRUE(schedule.ok()) << schedule.status();
  EXPECT_EQ(Describe(*schedule),
            "schedule:\n"
            "  node Neg (Neg) mb0\n"
            "  constant_sums mb0\n"
            "  node Neg (Neg) mb1\n"
            "  constant_sums mb1\n"
            "  node Abs (Abs) mb0\n"
            "  node Abs (Abs) mb1\n"
            "  end\n"
            "  node Abs (Abs)\n"
            "  guard\n"
            "  node Neg (Neg)\n"
            "  updates\n"
            "  reports\n"
            "  done\n");
}

TEST(ScheduleNodesTest, ARankWithoutMicroBatchesHasItsEndAlone) {
  Partition partition;
  partition.actions = {{Action::Kind::kUpdate, 0}};
  const auto schedule = ScheduleNodes(partition);
  ASSERT_TRUE(schedule.ok()) << schedule.status();
  EXPECT_EQ(Describe(*schedule), "schedule:\n  end\n  updates\n  reports\n  done\n");
}

TEST(ScheduleNodesTest, AnActionOfAMicroBatchThatIsNotThereIsRefused) {
  Partition partition = SmallPartition();
  partition.actions = {{Action::Kind::kForward, kMicroBatches}};
  EXPECT_EQ(ScheduleNodes(partition).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(ScheduleNodesTest, AGuardThatIsNotThereIsNamed) {
  Partition partition;
  partition.guard = "lost";
  partition.actions = {{Action::Kind::kUpdate, 0}};
  EXPECT_THAT(std::string(ScheduleNodes(partition).status().message()), HasSubstr("'lost'"));
}

}  // namespace
}  // namespace weft
