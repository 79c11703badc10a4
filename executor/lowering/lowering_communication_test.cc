// Hand-made partitions: channels, and collectives beside the micro-batches. Results are checked on
// the CPU and on fake devices, structure on the lowered lists.
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "executor/lowering/lowering.h"
#include "executor/lowering/testing/hand_made_partition.h"
#include "executor/lowering/testing/lowering_fixture.h"
#include "executor/lowering/testing/mirror_communicator.h"
#include "executor/program/compile_step.h"
#include "gmock/gmock.h"
#include "graph/graph_builder.h"
#include "gtest/gtest.h"
#include "platform/testing/fake_clock.h"

namespace weft::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class LoweringCommunicationTest : public LoweringFixture {};

INSTANTIATE_TEST_SUITE_P(CpuAndFake, LoweringCommunicationTest, LoweringDevices(),
                         LoweringDeviceName);

TEST_P(LoweringCommunicationTest, AChannelIsWaitedForBeforeItIsUsedAgainAndAtTheEnd) {
  Partition partition = NewPartition(3, [](GraphBuilder& b) {
    Scaled(b, "y", "x", 2);
    AddSend(b, "y", 5);
  });
  partition.channels = {ChannelOf(5, "y")};
  ASSERT_TRUE(Run(partition).ok());
  EXPECT_THAT(communicator_.calls, ElementsAre("send 5 mb0 2", "wait 5", "send 5 mb1 4", "wait 5",
                                               "send 5 mb2 6", "wait 5"));
}

TEST_P(LoweringCommunicationTest, ASentBufferLivesUntilItIsWaitedFor) {
  Partition partition = NewPartition(2, [](GraphBuilder& b) {
    Scaled(b, "y", "x", 2);
    AddSend(b, "y", 5);
    Scaled(b, "z", "y", 3);  // must not go over y, which may still be on its way
  });
  partition.channels = {ChannelOf(5, "y")};
  AddSum(partition, "z", "sum", 0, 2);
  ReportSums(partition);
  auto step = LowerStep(partition, Environment());
  ASSERT_TRUE(step.ok()) << step.status();
  BufferIndex sent = kNoBuffer;
  int waits = 0;
  for (int i = 0; i < static_cast<int>(step->compute.size()); ++i) {
    const LoweredInstruction& instruction = step->compute[i];
    if (const auto* const send = instruction.As<lowered::Send>()) sent = send->from;
    if (const auto* const wait = instruction.As<lowered::WaitSent>()) {
      ++waits;
      ASSERT_NE(sent, kNoBuffer);
      EXPECT_EQ(step->buffers.Root(wait->from), step->buffers.Root(sent));
      EXPECT_GE(step->buffers.last(sent), i);
    }
    const auto* const run = instruction.As<lowered::KernelRun>();
    if (run != nullptr && instruction.micro_batch >= 0 &&
        step->infos[instruction.info].node == "Scale_1") {
      EXPECT_NE(step->buffers.Root(run->outputs[0]), step->buffers.Root(sent));
    }
  }
  EXPECT_EQ(waits, 2);
}

TEST_P(LoweringCommunicationTest, AReceivedValueIsSummed) {
  Partition partition = NewPartition(2, [](GraphBuilder& b) {
    const auto outputs = b.Ops(std::string(kWeftDomain), "Recv", {},
                               {{"channel", int64_t{3}},
                                {"dtype", static_cast<int64_t>(DType::kFloat32)},
                                {"shape", std::vector<int64_t>{1, 2}}},
                               {true});
    b.Name(outputs[0], "y");
  });
  partition.channels = {
      {ChannelId(3), RankId(1), RankId(0), "y", DType::kFloat32, Shape{1, 2}, true}};
  AddSum(partition, "y", "sum", 0, 2);
  ReportSums(partition);
  EXPECT_THAT(Report(Run(partition), "got_sum"), ElementsAre(201, 201));
}

TEST_P(LoweringCommunicationTest, AChannelNobodyOpenedIsAnError) {
  Partition partition = NewPartition(1, [](GraphBuilder& b) {
    Scaled(b, "y", "x", 2);
    AddSend(b, "y", 5);
  });
  const auto result = Run(partition);
  EXPECT_EQ(result.status().code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(result.status().message()), HasSubstr("node 'Send' (Send)"));
}

// ---- Collectives beside the micro-batches

void AddAllReduce(Partition& partition, const std::vector<std::string>& names) {
  GraphBuilder end(partition.end);
  end.set_phase(Phase::kUpdate);
  std::vector<ValueId> inputs;
  for (const std::string& name : names) inputs.push_back(Find(end, name));
  const std::vector<ValueId> sums = end.Ops(std::string(kWeftDomain), "AllReduce", inputs,
                                            {{"axis", std::string("data")},
                                             {"group", std::vector<int64_t>{0, 1}},
                                             {"algorithm", std::string("ring")}},
                                            std::vector<bool>(names.size(), true));
  ASSERT_TRUE(end.status().ok()) << end.status();
  for (size_t i = 0; i < sums.size(); ++i) {
    const ValueId got = end.WeftOp("Scale", {sums[i], end.Float(1)});
    end.Name(got, "got_" + names[i]);
    partition.end.AddOutput(got);
    partition.reports.push_back("got_" + names[i]);
  }
}

TEST_P(LoweringCommunicationTest, SumsAreReducedOverRanksBesideTheMicroBatches) {
  Partition partition = NewPartition(3, [](GraphBuilder& b) {
    Scaled(b, "y", "x", 1);
    Scaled(b, "z", "x", 2);
  });
  AddSum(partition, "y", "sum_y", 0, 3);
  AddSum(partition, "z", "sum_z", 0, 3);
  AddAllReduce(partition, {"sum_y", "sum_z"});
  for (int step = 0; step < 3; ++step) {
    const auto result = step == 0 ? Run(partition) : program_->Run({});
    EXPECT_THAT(Report(result, "got_sum_y"), ElementsAre(12, 120));
    EXPECT_THAT(Report(result, "got_sum_z"), ElementsAre(24, 240));
  }
  EXPECT_EQ(communicator_.collectives_run, 3);
  EXPECT_THAT(program_->DebugString(),
              ::testing::AllOf(HasSubstr("  signal #1\n"), HasSubstr("  await #1\n"),
                               HasSubstr("communication:\n  collective AllReduce")));
}

class LoweringOnCpuTest : public LoweringFixture {};

INSTANTIATE_TEST_SUITE_P(Cpu, LoweringOnCpuTest, ::testing::Values(-1));

// Runs the plain Scale; on "late" it first waits until a collective has run.
absl::Status ScaleAfterCollective(const KernelContext& context,
                                  const MirrorCommunicator& communicator, bool late) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (late && communicator.collectives_run == 0) {
    if (std::chrono::steady_clock::now() > deadline) return absl::DeadlineExceededError("late");
    std::this_thread::yield();
  }
  const float* x = static_cast<const float*>(context.inputs[0]);
  const float factor = *static_cast<const float*>(context.inputs[1]);
  float* y = static_cast<float*>(context.outputs[0]);
  for (int i = 0; i < 2; ++i) y[i] = x[i] * factor;
  return absl::OkStatus();
}

// With one micro-batch the sum is the value itself; the collective must not sum under the reader.
TEST_P(LoweringOnCpuTest, ACollectiveDoesNotChangeAValueThatIsStillRead) {
  KernelRegistry kernels;
  ASSERT_TRUE(
      kernels
          .Register(kWeftDomain, "Scale", DeviceKind::kCpu,
                    [&](const PrepareContext& context) -> absl::StatusOr<std::unique_ptr<Kernel>> {
                      const bool late = context.node().name == "late";
                      return MakeKernel([this, late](const KernelContext& run) {
                        return ScaleAfterCollective(run, communicator_, late);
                      });
                    })
          .ok());
  kernels_ = &kernels;
  Partition partition = NewPartition(1, [](GraphBuilder& b) {
    Scaled(b, "y", "x", 1);
    Graph::NodeSpec spec;
    spec.name = "late";
    spec.domain = std::string(kWeftDomain);
    spec.op = "Scale";
    spec.inputs = {Find(b, "y"), b.Float(1)};
    spec.outputs = {"z"};
    const NodeId late = b.graph().AddNode(std::move(spec));
    b.graph().value(b.graph().node(late).outputs[0]).type = FloatType({1, 2});
  });
  AddSum(partition, "y", "sum_y", 0, 1);
  AddSum(partition, "z", "sum_z", 0, 1);
  AddAllReduce(partition, {"sum_y"});
  GraphBuilder end(partition.end);
  end.set_phase(Phase::kUpdate);
  Scaled(end, "got_z", "sum_z", 1);
  partition.reports.push_back("got_z");
  const auto result = Run(partition);
  EXPECT_THAT(Report(result, "got_sum_y"), ElementsAre(2, 20));
  EXPECT_THAT(Report(result, "got_z"), ElementsAre(1, 10));
}

// Each Scale takes a second, each send ten.
TEST_P(LoweringOnCpuTest, TheResultSaysWhatWaitedAndWhatIsOncePerStep) {
  FakeClock clock;
  KernelRegistry kernels;
  const auto scale = [&clock](const PrepareContext&) -> absl::StatusOr<std::unique_ptr<Kernel>> {
    return MakeKernel([&clock](const KernelContext&) {
      clock.Advance(absl::Seconds(1));
      return absl::OkStatus();
    });
  };
  ASSERT_TRUE(kernels.Register(kWeftDomain, "Scale", DeviceKind::kCpu, scale).ok());
  kernels_ = &kernels;
  communicator_.clock = &clock;
  Partition partition = NewPartition(3, [](GraphBuilder& b) {
    Scaled(b, "y", "x", 2);
    AddSend(b, "y", 5);
  });
  partition.channels = {ChannelOf(5, "y")};
  AddSum(partition, "y", "sum", 0, 3);
  ReportSums(partition);
  ExecutorEnvironment environment = Environment();
  environment.clock = &clock;
  auto program = CompileStep(partition, environment);
  ASSERT_TRUE(program.ok()) << program.status();
  for (int step = 0; step < 2; ++step) {
    const auto result = (*program)->Run({});
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_DOUBLE_EQ(result->waited_seconds, 30);
    EXPECT_DOUBLE_EQ(result->update_seconds, 1);
  }
  EXPECT_DOUBLE_EQ(static_cast<double>(clock.MonotonicNanos()) * 1e-9, 2 * (3 * 11 + 1));
}

// The other thread waits for sums that will never come: the step must end all the same.
TEST_P(LoweringCommunicationTest, AFailureBeforeTheSumsAreReadyEndsTheStep) {
  for (const absl::StatusCode code : {absl::StatusCode::kInternal, absl::StatusCode::kOutOfRange}) {
    class Source final : public InputSource {
     public:
      explicit Source(absl::StatusCode code) : code_(code) {}
      absl::Status Fill(int64_t, const FeedInput&, int64_t, int64_t, void*) override {
        return absl::Status(code_, "no such record");
      }

     private:
      const absl::StatusCode code_;
    } source(code);
    Partition partition = NewPartition(2, [](GraphBuilder& b) { Scaled(b, "y", "x", 1); });
    AddSum(partition, "y", "sum", 0, 2);
    AddAllReduce(partition, {"sum"});
    ExecutorEnvironment environment = Environment();
    environment.input = &source;
    auto program = CompileStep(partition, environment);
    ASSERT_TRUE(program.ok()) << program.status();
    EXPECT_EQ((*program)->Run({}).status().code(), code);
    EXPECT_EQ(communicator_.aborted.code(), code);
    EXPECT_EQ(communicator_.collectives_run, 0);
  }
}

}  // namespace
}  // namespace weft::testing
