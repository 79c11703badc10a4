// Hand-made partitions: how variables are updated, and what comes before and after. Results are
// checked on the CPU and on fake devices, the order on the list.
#include <string>

#include "executor/lowering/testing/hand_made_partition.h"
#include "executor/lowering/testing/lowering_fixture.h"
#include "gmock/gmock.h"
#include "graph/graph_builder.h"
#include "gtest/gtest.h"

namespace weft::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class LoweringVariablesTest : public LoweringFixture {};

INSTANTIATE_TEST_SUITE_P(CpuAndFake, LoweringVariablesTest, LoweringDevices(), LoweringDeviceName);

TEST_P(LoweringVariablesTest, AnUpdateIsMadeInPlace) {
  Partition partition = NewPartition(1, [](GraphBuilder& b) { Scaled(b, "y", "x", 1); });
  AddVariable(partition, "w", {3, 4});
  GraphBuilder end(partition.end);
  end.set_phase(Phase::kUpdate);
  partition.end.SetVariableUpdate("w", end.WeftOp("Scale", {Find(end, "w"), end.Float(2)}));
  ASSERT_TRUE(Run(partition).ok());
  EXPECT_THAT(Variable("w"), ElementsAre(6, 8));
  EXPECT_THAT(program_->DebugString(), ::testing::Not(HasSubstr("copy")));
}

TEST_P(LoweringVariablesTest, AnUpdateWaitsForReadersOfTheOldValue) {
  Partition partition = NewPartition(1, [](GraphBuilder& b) { Scaled(b, "y", "x", 1); });
  AddVariable(partition, "w", {3, 4});
  GraphBuilder end(partition.end);
  end.set_phase(Phase::kUpdate);
  const ValueId w = Find(end, "w");
  const ValueId updated = end.WeftOp("Scale", {w, end.Float(2)});
  const ValueId both = end.WeftOp("AddN", {updated, w});
  end.Name(both, "both");
  partition.end.SetVariableUpdate("w", updated);
  partition.end.AddOutput(both);
  partition.reports = {"both"};
  EXPECT_THAT(Report(Run(partition), "both"), ElementsAre(9, 12));
  EXPECT_THAT(Variable("w"), ElementsAre(6, 8));
}

// Before the guard runs what another rank may wait for, but nothing that changes a variable, and so
// nothing that reads a changed one.
TEST_P(LoweringVariablesTest, UpdatesAndTheirReadersComeAfterTheGuard) {
  Partition partition = NewPartition(1, [](GraphBuilder& b) { Scaled(b, "y", "x", 1); });
  AddSum(partition, "y", "sum", 0, 1);
  AddVariable(partition, "w", {3, 4});
  GraphBuilder end(partition.end);
  end.set_phase(Phase::kUpdate);
  const ValueId updated = end.WeftOp("Scale", {Find(end, "w"), end.Float(2)});
  end.Name(updated, "updated");
  AddSend(end, "updated", 6);
  AddSend(end, "sum", 5);
  const ValueId loss = end.WeftOp("Scale", {Find(end, "sum"), end.Float(1)});
  end.Name(loss, "loss");
  ASSERT_TRUE(end.status().ok()) << end.status();
  partition.end.SetVariableUpdate("w", updated);
  partition.channels = {ChannelOf(5, "sum"), ChannelOf(6, "updated")};
  partition.guard = "loss";
  ASSERT_TRUE(Run(partition).ok());
  const std::string list = program_->DebugString();
  EXPECT_LT(list.find("send Send_1"), list.find("guard")) << list;
  EXPECT_GT(list.find("send Send (ai.weft::Send)"), list.find("guard")) << list;
  EXPECT_THAT(communicator_.calls,
              ElementsAre("send 5 mb-1 1", "send 6 mb-1 6", "wait 5", "wait 6"));
  EXPECT_THAT(Variable("w"), ElementsAre(6, 8));
}

TEST_P(LoweringVariablesTest, VariablesCanSwap) {
  Partition partition = NewPartition(1, [](GraphBuilder& b) { Scaled(b, "y", "x", 1); });
  AddVariable(partition, "a", {1, 2});
  AddVariable(partition, "b", {3, 4});
  GraphBuilder end(partition.end);
  partition.end.SetVariableUpdate("a", Find(end, "b"));
  partition.end.SetVariableUpdate("b", Find(end, "a"));
  ASSERT_TRUE(Run(partition).ok());
  EXPECT_THAT(Variable("a"), ElementsAre(3, 4));
  EXPECT_THAT(Variable("b"), ElementsAre(1, 2));
}

TEST_P(LoweringVariablesTest, AVariableCanKeepTheOldValueOfAnother) {
  Partition partition = NewPartition(1, [](GraphBuilder& b) { Scaled(b, "y", "x", 1); });
  AddVariable(partition, "w", {1, 2});
  AddVariable(partition, "before", {0, 0});
  GraphBuilder end(partition.end);
  end.set_phase(Phase::kUpdate);
  const ValueId w = Find(end, "w");
  partition.end.SetVariableUpdate("w", end.WeftOp("Scale", {w, end.Float(2)}));
  partition.end.SetVariableUpdate("before", w);
  ASSERT_TRUE(Run(partition).ok());
  EXPECT_THAT(Variable("before"), ElementsAre(1, 2));
  EXPECT_THAT(Variable("w"), ElementsAre(2, 4));
}

TEST_P(LoweringVariablesTest, AnUnknownVariableIsNamed) {
  Partition partition = NewPartition(1, [](GraphBuilder& b) { Scaled(b, "y", "x", 1); });
  partition.end.AddVariable("lost", FloatType({1, 2}), Tensor(), true);
  GraphBuilder end(partition.end);
  partition.end.SetVariableUpdate("lost", end.WeftOp("Scale", {Find(end, "lost"), end.Float(2)}));
  const auto result = Run(partition);
  EXPECT_EQ(result.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(result.status().message()), HasSubstr("no variable 'lost'"));
}

}  // namespace
}  // namespace weft::testing
