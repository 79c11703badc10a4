// Hand-made partitions: the list of a step, outputs over inputs, aliases, what an observer sees.
// Results are checked on the CPU and on fake devices, structure on the lowered lists.
#include "executor/lowering/lowering.h"

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "executor/lowering/testing/hand_made_partition.h"
#include "executor/lowering/testing/lowering_fixture.h"
#include "executor/program/compile_step.h"
#include "gmock/gmock.h"
#include "graph/graph_builder.h"
#include "gtest/gtest.h"

namespace weft::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class LoweringTest : public LoweringFixture {};

INSTANTIATE_TEST_SUITE_P(CpuAndFake, LoweringTest, LoweringDevices(), LoweringDeviceName);

TEST_P(LoweringTest, TheListOfASmallStep) {
  Partition partition = NewPartition(2, [](GraphBuilder& b) { Scaled(b, "y", "x", 2); });
  AddSum(partition, "y", "sum", 0, 2);
  ReportSums(partition);
  partition.guard = "got_sum";
  ASSERT_TRUE(Run(partition).ok());
  EXPECT_EQ(program_->DebugString(),
            "compute:\n"
            "  fill mb0\n"
            "  kernel Scale (ai.weft::Scale) mb0\n"
            "  fill mb1\n"
            "  kernel Scale (ai.weft::Scale) mb1\n"
            "  add\n"
            "  kernel Scale (ai.weft::Scale)\n"
            "  guard\n");
}

TEST_P(LoweringTest, AnOutputGoesOverAnInputThatNobodyReadsAnyMore) {
  Partition partition = NewPartition(1, [](GraphBuilder& b) {
    Scaled(b, "a", "x", 2);
    Scaled(b, "b", "a", 3);
    Scaled(b, "y", "b", 5);
  });
  AddSum(partition, "y", "sum", 0, 1);
  ReportSums(partition);
  EXPECT_THAT(Report(Run(partition), "got_sum"), ElementsAre(30, 300));
  auto step = LowerStep(partition, Environment());
  ASSERT_TRUE(step.ok()) << step.status();
  int in_place = 0;
  for (const LoweredInstruction& instruction : step->compute) {
    const auto* const run = instruction.As<lowered::KernelRun>();
    in_place += run != nullptr && instruction.micro_batch >= 0 &&
                step->buffers.Root(run->inputs[0]) == step->buffers.Root(run->outputs[0]);
  }
  EXPECT_EQ(in_place, 3);
}

TEST_P(LoweringTest, AnInputThatIsStillReadIsNotOverwritten) {
  Partition partition = NewPartition(2, [](GraphBuilder& b) {
    Scaled(b, "a", "x", 2);
    Scaled(b, "b", "a", 3);
    const ValueId y = b.WeftOp("AddN", {Find(b, "b"), Find(b, "a")});
    b.Name(y, "y");
  });
  AddSum(partition, "y", "sum", 0, 2);
  ReportSums(partition);
  EXPECT_THAT(Report(Run(partition), "got_sum"), ElementsAre(24, 240));
}

TEST_P(LoweringTest, AnAliasNeedsNoInstructionAndKeepsItsSource) {
  Partition partition = NewPartition(2, [](GraphBuilder& b) {
    Scaled(b, "a", "x", 2);
    const ValueId flat = b.Op("Reshape", {Find(b, "a"), b.Ints({2})});
    b.Name(flat, "flat");
    Scaled(b, "b", "a", 3);  // must not go over a: flat is read below
    const ValueId back = b.Op("Reshape", {flat, b.Ints({1, 2})});
    const ValueId y = b.WeftOp("AddN", {Find(b, "b"), back});
    b.Name(y, "y");
  });
  AddSum(partition, "y", "sum", 0, 2);
  ReportSums(partition);
  EXPECT_THAT(Report(Run(partition), "got_sum"), ElementsAre(24, 240));
  EXPECT_THAT(program_->DebugString(), ::testing::Not(HasSubstr("Reshape")));
}

TEST_P(LoweringTest, AnAliasCanBeSummed) {
  Partition partition = NewPartition(3, [](GraphBuilder& b) {
    Scaled(b, "a", "x", 2);
    const ValueId y = b.Op("Reshape", {Find(b, "a"), b.Ints({1, 2})});
    b.Name(y, "y");
    Scaled(b, "z", "a", 1);
  });
  AddSum(partition, "y", "sum_y", 0, 3);
  AddSum(partition, "z", "sum_z", 0, 3);
  ReportSums(partition);
  const auto result = Run(partition);
  EXPECT_THAT(Report(result, "got_sum_y"), ElementsAre(12, 120));
  EXPECT_THAT(Report(result, "got_sum_z"), ElementsAre(12, 120));
}

TEST_P(LoweringTest, AnObserverHearsOfEachPassInOrder) {
  Partition partition = NewPartition(2, [](GraphBuilder& b) { Scaled(b, "y", "x", 2); });
  AddSum(partition, "y", "sum", 0, 2);
  ReportSums(partition);
  std::vector<std::string> passes;
  std::map<std::string, std::string> texts;
  const LoweringObserver observer = [&](std::string_view pass, std::string_view text) {
    passes.emplace_back(pass);
    texts[std::string(pass)] = std::string(text);
  };
  ExecutorEnvironment environment = Environment();
  environment.observe_lowering = &observer;
  ASSERT_TRUE(CompileStep(partition, environment).ok());
  EXPECT_EQ(passes, LoweringPassNames());
  EXPECT_THAT(texts["schedule"], HasSubstr("  node Scale (ai.weft::Scale) mb1\n"));
  EXPECT_THAT(texts["bind"], HasSubstr("  leaf Scale (ai.weft::Scale) mb1: "));
  EXPECT_THAT(texts["sums"], HasSubstr("  add: "));
  EXPECT_THAT(texts["lifetimes"], HasSubstr("report 'got_sum': b"));
  const std::map<std::string, std::string> first = texts;
  ASSERT_TRUE(LowerStep(partition, Environment(), &observer).ok());
  EXPECT_EQ(texts, first);  // stable
}

// A server of variables: it has an end graph alone.
TEST_P(LoweringTest, ARankMayHaveNoMicroBatches) {
  Partition partition;
  partition.rank = RankId(0);
  partition.global_batch = partition.total_micro_batches = 4;  // of others
  AddVariable(partition, "w", {3, 4});
  GraphBuilder end(partition.end);
  end.set_phase(Phase::kUpdate);
  const auto received = end.Ops(std::string(kWeftDomain), "Recv", {},
                                {{"channel", int64_t{3}},
                                 {"dtype", static_cast<int64_t>(DType::kFloat32)},
                                 {"shape", std::vector<int64_t>{1, 2}}},
                                {true});
  const ValueId updated = end.WeftOp("AddN", {Find(end, "w"), received[0]});
  end.Name(updated, "updated");
  AddSend(end, "updated", 5);
  ASSERT_TRUE(end.status().ok()) << end.status();
  partition.end.SetVariableUpdate("w", updated);
  partition.channels = {
      {ChannelId(3), RankId(1), RankId(0), "gradient", DType::kFloat32, Shape{1, 2}, false},
      ChannelOf(5, "updated")};
  partition.actions = {{Action::Kind::kUpdate, 0}};
  ASSERT_TRUE(Run(partition).ok());
  EXPECT_THAT(Variable("w"), ElementsAre(102, 103));  // 99 received
  EXPECT_THAT(communicator_.calls, ElementsAre("send 5 mb-1 102", "wait 5"));
  EXPECT_EQ(program_->DebugString(),
            "compute:\n"
            "  receive Recv (ai.weft::Recv) #3\n"
            "  kernel AddN (ai.weft::AddN)\n"
            "  send Send (ai.weft::Send) #5\n"
            "  wait_sent Send (ai.weft::Send) #5\n");
}

}  // namespace
}  // namespace weft::testing
