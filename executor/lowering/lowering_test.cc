// Hand-made partitions: what becomes of sums, aliases, updates, sends and collectives. Results are
// checked on the CPU and on fake devices, structure on the lowered lists.
#include "executor/lowering/lowering.h"

#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "executor/interfaces/communicator.h"
#include "executor/program/compile_step.h"
#include "gmock/gmock.h"
#include "graph/graph_builder.h"
#include "gtest/gtest.h"
#include "platform/testing/fake_clock.h"
#include "tensor/cpu_device.h"
#include "tensor/testing/fake_device.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Every other member of a group holds what this one holds, so a sum is a product. Channels lead to
// nobody. Remembers what was asked of it.
class MirrorCommunicator final : public Communicator {
 public:
  RankId rank() const override { return RankId(0); }
  absl::StatusOr<ChannelHandle> OpenChannel(const Channel& channel) override {
    return static_cast<ChannelHandle>(channel.id.value);
  }
  absl::StatusOr<CollectiveHandle> OpenCollective(const CollectiveSpec& spec) override {
    specs_.push_back(spec);
    return static_cast<CollectiveHandle>(specs_.size()) - 1;
  }
  absl::Status Send(ChannelHandle channel, MessageKey key, const void* data) override {
    const float value = *static_cast<const float*>(data);
    calls.push_back(absl::StrCat("send ", channel, " mb", key.micro_batch, " ", value));
    if (clock != nullptr) clock->Advance(absl::Seconds(10));
    return absl::OkStatus();
  }
  absl::Status WaitSent(ChannelHandle channel) override {
    calls.push_back(absl::StrCat("wait ", channel));
    return absl::OkStatus();
  }
  absl::Status Receive(ChannelHandle, MessageKey key, void* data) override {
    float* values = static_cast<float*>(data);
    values[0] = values[1] = static_cast<float>(100 + key.micro_batch);
    return absl::OkStatus();
  }
  absl::Status RunCollective(CollectiveHandle handle, MessageKey, void* const* buffers) override {
    const CollectiveSpec& spec = specs_[handle];
    float* data = static_cast<float*>(buffers[0]);
    for (int64_t i = 0; i < spec.schedule.buffer_elements[0]; ++i) {
      data[i] *= static_cast<float>(spec.group.size());
    }
    ++collectives_run;
    return absl::OkStatus();
  }
  void Abort(const absl::Status& reason) override { aborted = reason; }

  std::vector<std::string> calls;
  testing::FakeClock* clock = nullptr;  // turned by ten seconds in every send
  std::atomic<int> collectives_run{0};
  absl::Status aborted;

 private:
  std::vector<CollectiveSpec> specs_;
};

// Sample i of every step is (i + 1) x (1, 10).
class CountingSource final : public InputSource {
 public:
  absl::Status Fill(int64_t, const FeedInput&, int64_t first, int64_t count,
                    void* target) override {
    float* out = static_cast<float*>(target);
    for (int64_t i = 0; i < count; ++i) {
      *out++ = static_cast<float>(first + i + 1);
      *out++ = static_cast<float>(first + i + 1) * 10;
    }
    return absl::OkStatus();
  }
};

ValueType FloatType(const Shape& shape) { return {ValueKind::kTensor, DType::kFloat32, shape}; }

using Build = std::function<void(GraphBuilder&)>;

// `micro_batches` of one sample [1,2] named "x"; sums and the end graph are added by the test.
Partition NewPartition(int micro_batches, const Build& build_micro) {
  Partition partition;
  partition.rank = RankId(0);
  partition.global_batch = partition.total_micro_batches = micro_batches;
  partition.inputs = {{"x", InputRole::kData, DType::kFloat32, Shape{2}}};
  Graph micro;
  micro.AddInput("x", FloatType({1, 2}));
  GraphBuilder builder(micro);
  build_micro(builder);
  EXPECT_TRUE(builder.status().ok()) << builder.status();
  partition.micro.push_back(std::move(micro));
  for (int i = 0; i < micro_batches; ++i) {
    partition.micro_batches.push_back({i, i, 1, 0});
    partition.actions.push_back({Action::Kind::kForward, i});
    partition.actions.push_back({Action::Kind::kBackward, i});
  }
  partition.actions.push_back({Action::Kind::kUpdate, 0});
  return partition;
}

// Input `name` [1,2] of the end graph: the sum over micro-batches [first, last) of `output`.
void AddSum(Partition& partition, const std::string& output, const std::string& name, int first,
            int last, bool ordered_tree = false) {
  partition.end.AddInput(name, FloatType({1, 2}));
  partition.accumulations.push_back({output, {{name, first, last}}, ordered_tree});
}

// End graph: every sum times one, reported as "got_" + its name.
void ReportSums(Partition& partition) {
  GraphBuilder builder(partition.end);
  builder.set_phase(Phase::kUpdate);
  for (ValueId input : std::vector<ValueId>(partition.end.inputs())) {
    const ValueId got = builder.WeftOp("Scale", {input, builder.Float(1)});
    builder.Name(got, "got_" + partition.end.value(input).name);
    partition.end.AddOutput(got);
    partition.reports.push_back(partition.end.value(got).name);
  }
  EXPECT_TRUE(builder.status().ok()) << builder.status();
}

ValueId Find(GraphBuilder& builder, const std::string& name) {
  return *builder.graph().FindValue(name);
}

void Scaled(GraphBuilder& builder, const std::string& name, const std::string& from, float factor) {
  const ValueId scaled = builder.WeftOp("Scale", {Find(builder, from), builder.Float(factor)});
  builder.Name(scaled, name);
}

void AddSend(GraphBuilder& builder, const std::string& value, int64_t channel) {
  builder.Ops(std::string(kWeftDomain), "Send", {Find(builder, value)}, {{"channel", channel}}, {});
}

Channel ChannelOf(int32_t id, const std::string& value) {
  return {ChannelId(id), RankId(0), RankId(1), value, DType::kFloat32, Shape{1, 2}, true};
}

class LoweringTest : public ::testing::TestWithParam<int> {
 protected:
  LoweringTest() {
    if (GetParam() < 0) {
      device_ = NewCpuDevice({});
    } else {
      device_ = std::make_unique<testing::FakeDevice>(
          testing::FakeDeviceOptions{.scheduling = {.seed = static_cast<uint64_t>(GetParam())}});
    }
    variables_ = std::make_unique<VariableStore>(*device_);
  }

  void AddVariable(Partition& partition, const std::string& name, std::vector<float> initial) {
    VariableShard shard;
    shard.name = name;
    shard.dtype = DType::kFloat32;
    shard.global_shape = shard.local_shape = Shape{1, 2};
    partition.variables.push_back(shard);
    ASSERT_TRUE(variables_->Add({shard}).ok());
    ASSERT_TRUE(variables_->Write(name, Tensor::Of<float>({1, 2}, initial)).ok());
    partition.end.AddVariable(name, FloatType({1, 2}), Tensor(), true);
  }

  ExecutorEnvironment Environment() {
    return {device_.get(), variables_.get(), &communicator_, &source_, &RealClock(), kernels_};
  }

  absl::StatusOr<StepResult> Run(const Partition& partition) {
    auto program = CompileStep(partition, Environment());
    if (!program.ok()) return program.status();
    program_ = *std::move(program);
    auto first = program_->Run({});
    return first;
  }

  std::vector<float> Variable(const std::string& name) {
    const auto read = variables_->Read(name);
    EXPECT_TRUE(read.ok()) << read.status();
    const std::span<const float> data = read->data<float>();
    return {data.begin(), data.end()};
  }

  static std::vector<float> Report(const absl::StatusOr<StepResult>& result,
                                   const std::string& name) {
    EXPECT_TRUE(result.ok()) << result.status();
    if (!result.ok()) return {};
    const std::span<const float> data = result->reports.at(name).data<float>();
    return {data.begin(), data.end()};
  }

  std::unique_ptr<Device> device_;
  std::unique_ptr<VariableStore> variables_;
  MirrorCommunicator communicator_;
  CountingSource source_;
  const KernelRegistry* kernels_ = nullptr;
  std::unique_ptr<StepProgram> program_;
};

INSTANTIATE_TEST_SUITE_P(CpuAndFake, LoweringTest, ::testing::Values(-1, 1, 2),
                         [](const auto& info) {
                           return info.param < 0 ? std::string("Cpu")
                                                 : "Fake" + std::to_string(info.param);
                         });

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

TEST_P(LoweringTest, TheFirstLeafIsWrittenWhereTheSumWillBe) {
  Partition partition = NewPartition(3, [](GraphBuilder& b) { Scaled(b, "y", "x", 2); });
  AddSum(partition, "y", "sum", 0, 3);
  ReportSums(partition);
  auto step = LowerStep(partition, Environment());
  ASSERT_TRUE(step.ok()) << step.status();
  int copies = 0;
  std::vector<BufferIndex> leaves;
  std::vector<BufferIndex> targets;
  for (const LoweredInstruction& instruction : step->compute) {
    copies += instruction.As<lowered::Copy>() != nullptr;
    const auto* const run = instruction.As<lowered::KernelRun>();
    if (run != nullptr && instruction.micro_batch >= 0) {
      leaves.push_back(step->buffers.Root(run->outputs[0]));
    }
    if (const auto* const add = instruction.As<lowered::Add>()) {
      targets.push_back(step->buffers.Root(add->into));
    }
  }
  EXPECT_EQ(copies, 0);
  EXPECT_THAT(targets, ElementsAre(leaves[0], leaves[0]));
  EXPECT_NE(leaves[1], leaves[0]);
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

TEST_P(LoweringTest, ASummedValueMayBeReadElsewhere) {
  for (const int micro_batches : {1, 2, 4}) {
    for (const bool tree : {false, true}) {
      Partition partition = NewPartition(micro_batches, [](GraphBuilder& b) {
        Scaled(b, "y", "x", 2);
        Scaled(b, "z", "y", 10);
      });
      AddSum(partition, "y", "sum_y", 0, micro_batches, tree);
      AddSum(partition, "z", "sum_z", 0, micro_batches, tree);
      ReportSums(partition);
      const auto result = Run(partition);
      const float total = static_cast<float>(micro_batches * (micro_batches + 1));
      EXPECT_THAT(Report(result, "got_sum_y"), ElementsAre(total, total * 10));
      EXPECT_THAT(Report(result, "got_sum_z"), ElementsAre(total * 10, total * 100));
    }
  }
}

TEST_P(LoweringTest, OneValueMayBeALeafOfSeveralSums) {
  for (const int micro_batches : {1, 2, 3}) {
    Partition partition =
        NewPartition(micro_batches, [](GraphBuilder& b) { Scaled(b, "y", "x", 2); });
    AddSum(partition, "y", "one", 0, micro_batches);
    AddSum(partition, "y", "two", 0, micro_batches);
    ReportSums(partition);
    const auto result = Run(partition);
    const float total = static_cast<float>(micro_batches * (micro_batches + 1));
    EXPECT_THAT(Report(result, "got_one"), ElementsAre(total, total * 10));
    EXPECT_THAT(Report(result, "got_two"), ElementsAre(total, total * 10));
  }
}

TEST_P(LoweringTest, SeveralBlocksOfATreeAreSeparateSums) {
  Partition partition = NewPartition(7, [](GraphBuilder& b) { Scaled(b, "y", "x", 1); });
  for (const char* name : {"a", "b", "c"}) partition.end.AddInput(name, FloatType({1, 2}));
  partition.accumulations = {{"y", {{"a", 0, 4}, {"b", 4, 6}, {"c", 6, 7}}, true}};
  ReportSums(partition);
  const auto result = Run(partition);
  EXPECT_THAT(Report(result, "got_a"), ElementsAre(10, 100));
  EXPECT_THAT(Report(result, "got_b"), ElementsAre(11, 110));
  EXPECT_THAT(Report(result, "got_c"), ElementsAre(7, 70));
}

// ((1 + 2) + (3 + 4)), not (((1 + 2) + 3) + 4): told apart by a sum that loses small terms.
TEST_P(LoweringTest, AnOrderedTreeAddsPairsFirst) {
  class Source final : public InputSource {
   public:
    absl::Status Fill(int64_t, const FeedInput&, int64_t first, int64_t, void* target) override {
      const float values[] = {16777216.f, 0.f, 1.f, 1.f};
      static_cast<float*>(target)[0] = values[first];
      static_cast<float*>(target)[1] = 0;
      return absl::OkStatus();
    }
  } source;
  for (const bool tree : {false, true}) {
    Partition partition = NewPartition(4, [](GraphBuilder& b) { Scaled(b, "y", "x", 1); });
    AddSum(partition, "y", "sum", 0, 4, tree);
    ReportSums(partition);
    ExecutorEnvironment environment = Environment();
    environment.input = &source;
    auto program = CompileStep(partition, environment);
    ASSERT_TRUE(program.ok()) << program.status();
    EXPECT_EQ(Report((*program)->Run({}), "got_sum")[0], tree ? 16777218.f : 16777216.f);
  }
}

TEST_P(LoweringTest, AConstantIsSummedOncePerMicroBatch) {
  Partition partition = NewPartition(3, [](GraphBuilder& b) {
    b.graph().AddConstant("c", Tensor::Of<float>({1, 2}, {2, 5}));
  });
  AddSum(partition, "c", "sum", 0, 3);
  ReportSums(partition);
  EXPECT_THAT(Report(Run(partition), "got_sum"), ElementsAre(6, 15));
  EXPECT_THAT(Report(program_->Run({}), "got_sum"), ElementsAre(6, 15));
}

// Graphs of two sizes may convert values otherwise, so that one of them has a value of its own.
TEST_P(LoweringTest, ASumNeedsItsLeafOnlyInItsOwnMicroBatches) {
  Partition partition = NewPartition(2, [](GraphBuilder& b) { Scaled(b, "y", "x", 2); });
  Graph other;
  other.AddInput("x", FloatType({1, 2}));
  GraphBuilder builder(other);
  Scaled(builder, "y@S(0)", "x", 5);
  ASSERT_TRUE(builder.status().ok()) << builder.status();
  partition.micro.push_back(std::move(other));
  partition.micro_batches[1].graph = 1;
  AddSum(partition, "y", "first", 0, 1);
  AddSum(partition, "y@S(0)", "second", 1, 2);
  ReportSums(partition);
  const auto result = Run(partition);
  EXPECT_THAT(Report(result, "got_first"), ElementsAre(2, 20));
  EXPECT_THAT(Report(result, "got_second"), ElementsAre(10, 100));
}

TEST_P(LoweringTest, ASumThatNeverEndsIsAnError) {
  Partition partition = NewPartition(2, [](GraphBuilder& b) { Scaled(b, "y", "x", 2); });
  AddSum(partition, "y", "sum", 0, 3);
  ReportSums(partition);
  const auto result = Run(partition);
  EXPECT_EQ(result.status().code(), absl::StatusCode::kInternal);
  EXPECT_THAT(std::string(result.status().message()), HasSubstr("'sum' is not complete"));
}

// ---- Updates

TEST_P(LoweringTest, AnUpdateIsMadeInPlace) {
  Partition partition = NewPartition(1, [](GraphBuilder& b) { Scaled(b, "y", "x", 1); });
  AddVariable(partition, "w", {3, 4});
  GraphBuilder end(partition.end);
  end.set_phase(Phase::kUpdate);
  partition.end.SetVariableUpdate("w", end.WeftOp("Scale", {Find(end, "w"), end.Float(2)}));
  ASSERT_TRUE(Run(partition).ok());
  EXPECT_THAT(Variable("w"), ElementsAre(6, 8));
  EXPECT_THAT(program_->DebugString(), ::testing::Not(HasSubstr("copy")));
}

TEST_P(LoweringTest, AnUpdateWaitsForReadersOfTheOldValue) {
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
TEST_P(LoweringTest, UpdatesAndTheirReadersComeAfterTheGuard) {
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

TEST_P(LoweringTest, VariablesCanSwap) {
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

TEST_P(LoweringTest, AVariableCanKeepTheOldValueOfAnother) {
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

TEST_P(LoweringTest, AnUnknownVariableIsNamed) {
  Partition partition = NewPartition(1, [](GraphBuilder& b) { Scaled(b, "y", "x", 1); });
  partition.end.AddVariable("lost", FloatType({1, 2}), Tensor(), true);
  GraphBuilder end(partition.end);
  partition.end.SetVariableUpdate("lost", end.WeftOp("Scale", {Find(end, "lost"), end.Float(2)}));
  const auto result = Run(partition);
  EXPECT_EQ(result.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(result.status().message()), HasSubstr("no variable 'lost'"));
}

// ---- Channels

TEST_P(LoweringTest, AChannelIsWaitedForBeforeItIsUsedAgainAndAtTheEnd) {
  Partition partition = NewPartition(3, [](GraphBuilder& b) {
    Scaled(b, "y", "x", 2);
    AddSend(b, "y", 5);
  });
  partition.channels = {ChannelOf(5, "y")};
  ASSERT_TRUE(Run(partition).ok());
  EXPECT_THAT(communicator_.calls, ElementsAre("send 5 mb0 2", "wait 5", "send 5 mb1 4", "wait 5",
                                               "send 5 mb2 6", "wait 5"));
}

TEST_P(LoweringTest, ASentBufferLivesUntilItIsWaitedFor) {
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

TEST_P(LoweringTest, AReceivedValueIsSummed) {
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

TEST_P(LoweringTest, AChannelNobodyOpenedIsAnError) {
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

TEST_P(LoweringTest, SumsAreReducedOverRanksBesideTheMicroBatches) {
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

class LoweringOnCpuTest : public LoweringTest {};

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
  testing::FakeClock clock;
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
TEST_P(LoweringTest, AFailureBeforeTheSumsAreReadyEndsTheStep) {
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

// ---- What an observer sees

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
}  // namespace weft
