// Hand-made partitions on the CPU device and on fake asynchronous devices: the sums over
// micro-batches, updates in place, the guard and errors.
#include "executor/program/step_program.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "executor/interfaces/communicator.h"
#include "executor/program/compile_step.h"
#include "executor/program/planned_memory.h"
#include "gmock/gmock.h"
#include "graph/graph_builder.h"
#include "gtest/gtest.h"
#include "tensor/testing/test_device.h"

namespace weft {
namespace {

constexpr int64_t kWidth = 3;

// Sample i of every step is (i + 1) x (1, 2, 3); `poison` makes sample 2 a NaN.
class CountingSource final : public InputSource {
 public:
  absl::Status Fill(int64_t, const FeedInput&, int64_t first, int64_t count,
                    void* target) override {
    if (!status.ok()) return status;
    float* out = static_cast<float*>(target);
    for (int64_t i = 0; i < count; ++i) {
      for (int64_t j = 0; j < kWidth; ++j) {
        const float value = static_cast<float>((first + i + 1) * (j + 1));
        *out++ = poison && first + i == 2 ? std::numeric_limits<float>::quiet_NaN() : value;
      }
    }
    return absl::OkStatus();
  }
  bool poison = false;
  absl::Status status;
};

ValueType FloatType(const Shape& shape) { return {ValueKind::kTensor, DType::kFloat32, shape}; }

// One sample per micro-batch: grad = 2 x, sum over all; w -= learning_rate * sum. The report
// "loss" is the sum of x[0:1] over the micro-batches.
Partition SumPartition(int micro_batches, bool ordered_tree) {
  Partition partition;
  partition.rank = RankId(0);
  partition.global_batch = partition.total_micro_batches = micro_batches;
  partition.inputs = {{"x", InputRole::kData, DType::kFloat32, Shape{kWidth}},
                      {"rate", InputRole::kStep, DType::kFloat32, Shape{}}};
  VariableShard w;
  w.name = "w";
  w.dtype = DType::kFloat32;
  w.global_shape = w.local_shape = Shape{1, kWidth};
  partition.variables = {w};

  Graph micro;
  const ValueId x = micro.AddInput("x", FloatType(Shape{1, kWidth}));
  GraphBuilder forward(micro);
  const ValueId twice = forward.WeftOp("Scale", {x, forward.Float(2)});
  forward.Name(twice, "grad");
  micro.AddOutput(twice);
  EXPECT_TRUE(forward.status().ok()) << forward.status();
  partition.micro.push_back(std::move(micro));

  Graph& end = partition.end;
  const ValueId rate = end.AddInput("rate", FloatType(Shape{}), InputRole::kStep);
  const ValueId sum = end.AddInput("sum", FloatType(Shape{1, kWidth}));
  const ValueId variable = end.AddVariable("w", FloatType(Shape{1, kWidth}), Tensor(), true);
  GraphBuilder update(end);
  update.set_phase(Phase::kUpdate);
  const ValueId loss =
      update.Op("Slice", {sum, update.Ints({0}), update.Ints({1}), update.Ints({1})});
  update.Name(loss, "loss");
  const ValueId updated = update.WeftOp("SgdUpdate", {variable, sum, rate});
  EXPECT_TRUE(update.status().ok()) << update.status();
  end.AddOutput(loss);
  end.SetVariableUpdate("w", updated);
  partition.guard = "loss";
  partition.reports = {"loss"};
  partition.accumulations = {{"grad", {{"sum", 0, micro_batches}}, ordered_tree}};
  for (int i = 0; i < micro_batches; ++i) {
    partition.micro_batches.push_back({i, i, 1, 0});
    partition.actions.push_back({Action::Kind::kForward, i});
    partition.actions.push_back({Action::Kind::kBackward, i});
  }
  partition.actions.push_back({Action::Kind::kUpdate, 0});
  return partition;
}

// On each device of tensor/testing/test_device.h.
class StepProgramTest : public ::testing::TestWithParam<int> {
 protected:
  StepProgramTest()
      : device_(testing::NewTestDevice(GetParam())),
        variables_(std::make_unique<VariableStore>(*device_)) {}

  absl::Status Compile(const Partition& partition) {
    absl::Status added = variables_->Add(partition.variables);
    if (!added.ok()) return added;
    ExecutorEnvironment environment{device_.get(), variables_.get(), communicator_.get(),
                                    &source_,      &RealClock(),     nullptr,
                                    arena_};
    environment.commit = commit_;
    environment.update_guard = guard_;
    auto program = CompileStep(partition, environment);
    if (program.ok()) program_ = *std::move(program);
    return program.status();
  }

  std::vector<float> Weights() {
    const auto read = variables_->Read("w");
    EXPECT_TRUE(read.ok()) << read.status();
    const std::span<const float> data = read->data<float>();
    return {data.begin(), data.end()};
  }

  absl::StatusOr<StepResult> RunStep(bool check = false) {
    StepOptions options;
    options.scalars = {{"rate", 0.5}};
    options.check_numerics = check;
    return program_->Run(options);
  }

  std::unique_ptr<Device> device_;
  std::unique_ptr<VariableStore> variables_;
  std::unique_ptr<Communicator> communicator_ = NewSoloCommunicator();
  CountingSource source_;
  Arena* arena_ = nullptr;  // null: each program has its own
  StepCommit* commit_ = nullptr;
  UpdateGuard* guard_ = nullptr;
  std::unique_ptr<StepProgram> program_;
};

TEST_P(StepProgramTest, SumsOverMicroBatchesAndUpdatesInPlace) {
  for (const bool tree : {false, true}) {
    SCOPED_TRACE(tree ? "ordered tree" : "in order");
    variables_ = std::make_unique<VariableStore>(*device_);
    ASSERT_TRUE(Compile(SumPartition(4, tree)).ok());
    for (int step = 1; step <= 3; ++step) {
      const auto result = RunStep();
      ASSERT_TRUE(result.ok()) << result.status();
      // 2 x (1 + 2 + 3 + 4) x (1, 2, 3), times the rate.
      EXPECT_EQ(result->reports.at("loss").data<float>()[0], 20);
      EXPECT_EQ(Weights(), (std::vector<float>{-10.f * step, -20.f * step, -30.f * step}));
    }
    program_.reset();
  }
}

TEST_P(StepProgramTest, NonFiniteLossChangesNothingAndTheCheckNamesTheNode) {
  ASSERT_TRUE(Compile(SumPartition(4, false)).ok());
  source_.poison = true;
  const auto result = RunStep();
  EXPECT_EQ(result.status().code(), absl::StatusCode::kOutOfRange);
  EXPECT_THAT(std::string(result.status().message()), ::testing::HasSubstr("loss is nan"));
  EXPECT_EQ(Weights(), (std::vector<float>{0, 0, 0}));
  const auto checked = RunStep(/*check=*/true);
  EXPECT_EQ(checked.status().code(), absl::StatusCode::kOutOfRange);
  EXPECT_THAT(std::string(checked.status().message()), ::testing::HasSubstr("micro-batch 2"));
  EXPECT_THAT(std::string(checked.status().message()), ::testing::HasSubstr("node 'Scale'"));
}

TEST_P(StepProgramTest, AnInputErrorNamesTheInputAndTheStep) {
  ASSERT_TRUE(Compile(SumPartition(2, false)).ok());
  source_.status = absl::DataLossError("record 7 is damaged");
  const auto result = RunStep();
  EXPECT_EQ(result.status().code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(result.status().message()),
              ::testing::AllOf(::testing::HasSubstr("input 'x'"), ::testing::HasSubstr("step 0"),
                               ::testing::HasSubstr("record 7 is damaged")));
}

TEST_P(StepProgramTest, AMissingScalarIsAnError) {
  ASSERT_TRUE(Compile(SumPartition(2, false)).ok());
  const auto result = program_->Run({});
  EXPECT_EQ(result.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(result.status().message()), ::testing::HasSubstr("'rate'"));
}

TEST_P(StepProgramTest, ZeroSamplesAddNothing) {
  Partition partition = SumPartition(3, false);
  Graph empty;
  const ValueId x = empty.AddInput("x", FloatType(Shape{0, kWidth}));
  GraphBuilder builder(empty);
  const ValueId flat = builder.Op(
      "Concat",
      {x, builder.Constant(Tensor::Of<float>(Shape{1, kWidth}, std::vector<float>(3, 0)))},
      {{"axis", int64_t{0}}});
  builder.Name(flat, "grad");
  empty.AddOutput(flat);
  ASSERT_TRUE(builder.status().ok()) << builder.status();
  partition.micro.push_back(std::move(empty));
  partition.micro_batches[2] = {2, 2, 0, 1};
  ASSERT_TRUE(Compile(partition).ok());
  ASSERT_TRUE(RunStep().ok());
  EXPECT_EQ(Weights(), (std::vector<float>{-3, -6, -9}));
}

TEST_P(StepProgramTest, TakesNoMemoryBeforeItIsPrepared) {
  ASSERT_TRUE(Compile(SumPartition(4, false)).ok());
  const ProgramMemory& memory = program_->memory();
  EXPECT_GT(memory.arena_bytes, 0);
  EXPECT_EQ(memory.variable_bytes, static_cast<int64_t>(kAlignment));  // 3 floats
  EXPECT_GE(memory.arena_bytes, memory.lower_bound_bytes);
  EXPECT_LT(device_->bytes_in_use(), kAlignment);  // the rate
  ASSERT_TRUE(program_->Prepare().ok());
  EXPECT_GE(device_->bytes_in_use(), static_cast<size_t>(memory.arena_bytes));
}

TEST_P(StepProgramTest, IsPlannedAsItIsCompiled) {
  for (const bool tree : {false, true}) {
    const Partition partition = SumPartition(4, tree);
    const auto planned = PlanProgramMemory(partition, *device_);
    ASSERT_TRUE(planned.ok()) << planned.status();
    variables_ = std::make_unique<VariableStore>(*device_);
    ASSERT_TRUE(Compile(partition).ok());
    EXPECT_EQ(planned->arena_bytes, program_->memory().arena_bytes);
    EXPECT_EQ(planned->variable_bytes, program_->memory().variable_bytes);
    EXPECT_EQ(planned->staging_bytes, program_->memory().staging_bytes);
    program_.reset();
  }
}

TEST_P(StepProgramTest, IsNotLaidOutWhereItCannotFit) {
  const Partition partition = SumPartition(4, false);
  const auto planned = PlanProgram(partition, *device_, std::numeric_limits<int64_t>::max());
  ASSERT_TRUE(planned.ok()) << planned.status();
  EXPECT_TRUE(planned->unexpected_bytes.empty());  // it has no peers
  const int64_t min_bytes = planned->memory.variable_bytes + planned->memory.lower_bound_bytes;
  EXPECT_TRUE(PlanProgram(partition, *device_, min_bytes).ok());
  for (const int64_t max_bytes : {min_bytes - 1, planned->memory.variable_bytes - 1}) {
    EXPECT_TRUE(absl::IsResourceExhausted(PlanProgram(partition, *device_, max_bytes).status()))
        << max_bytes;
  }
}

// The second needs more than the first: when it runs, the memory moves, and the first follows.
TEST_P(StepProgramTest, ProgramsShareOneArenaInTurn) {
  Arena arena(*device_);
  arena_ = &arena;
  ASSERT_TRUE(Compile(SumPartition(1, false)).ok());
  ASSERT_TRUE(RunStep().ok());
  std::unique_ptr<StepProgram> small = std::move(program_);
  ASSERT_TRUE(Compile(SumPartition(8, true)).ok());
  EXPECT_GT(program_->memory().arena_bytes, small->memory().arena_bytes);
  EXPECT_EQ(arena.reserved_bytes(), program_->memory().arena_bytes);
  ASSERT_TRUE(RunStep().ok());
  program_.swap(small);
  ASSERT_TRUE(RunStep().ok());
  // Twice the only micro-batch, once the sum of eight.
  EXPECT_EQ(Weights(), (std::vector<float>{-38, -76, -114}));
  EXPECT_EQ(arena.allocated_bytes(), arena.reserved_bytes());
  small.reset();
  program_.reset();
}

TEST_P(StepProgramTest, StatisticsCountEveryCall) {
  ASSERT_TRUE(Compile(SumPartition(4, false)).ok());
  program_->EnableStatistics(true);
  ASSERT_TRUE(RunStep().ok());
  ASSERT_TRUE(RunStep().ok());
  int64_t calls = 0;
  for (const NodeStatistics& node : program_->statistics()) {
    if (node.node == "Scale") calls = node.calls;
  }
  EXPECT_EQ(calls, 8);
}

// Looks at w before it is updated, and lets it be updated or not.
class LookingGuard final : public UpdateGuard {
 public:
  explicit LookingGuard(VariableStore& variables) : variables_(variables) {}
  absl::Status BeforeUpdates(int64_t) override {
    const auto read = variables_.Read("w");
    EXPECT_TRUE(read.ok()) << read.status();
    const std::span<const float> data = read->data<float>();
    seen.emplace_back(data.begin(), data.end());
    return answer;
  }
  absl::Status answer;
  std::vector<std::vector<float>> seen;

 private:
  VariableStore& variables_;
};

TEST_P(StepProgramTest, AGuardSeesVariablesBeforeTheyAreUpdatedAndMayEndTheStep) {
  if (!device_->info().host_accessible) GTEST_SKIP() << "steps of such a device have no guard";
  LookingGuard guard(*variables_);
  guard_ = &guard;
  ASSERT_TRUE(Compile(SumPartition(4, false)).ok());
  const std::vector<float> initial = Weights();
  ASSERT_TRUE(RunStep().ok());
  const std::vector<float> after = Weights();
  EXPECT_NE(after, initial);
  ASSERT_EQ(guard.seen.size(), 1U);
  EXPECT_EQ(guard.seen[0], initial);
  guard.answer = absl::DataLossError("flipped");
  EXPECT_EQ(RunStep().status(), guard.answer);
  EXPECT_EQ(Weights(), after);
}

// Agrees, or does not.
class ScriptedCommit final : public StepCommit {
 public:
  absl::Status Agree(int64_t step) override {
    steps.push_back(step);
    return answer;
  }
  absl::Status answer;
  std::vector<int64_t> steps;
};

TEST_P(StepProgramTest, AStepThatCommitsChangesWhatOthersDo) {
  ScriptedCommit commit;
  commit_ = &commit;
  ASSERT_TRUE(Compile(SumPartition(4, false)).ok());
  EXPECT_TRUE(program_->finishes_alone());
  EXPECT_EQ(program_->state(), StepState::kDone);
  ASSERT_TRUE(RunStep().ok());
  EXPECT_EQ(program_->state(), StepState::kDone);
  EXPECT_EQ(commit.steps.size(), 1U);
  const std::vector<float> weights = Weights();
  program_.reset();
  variables_ = std::make_unique<VariableStore>(*device_);
  commit_ = nullptr;
  ASSERT_TRUE(Compile(SumPartition(4, false)).ok());
  EXPECT_FALSE(program_->finishes_alone());
  ASSERT_TRUE(RunStep().ok());
  EXPECT_EQ(Weights(), weights);
}

// A peer is lost while this rank waits for all to have their gradients. It has changed nothing, and
// can: with what it has summed, once.
TEST_P(StepProgramTest, AStepThatLosesItsPeersAtTheCommitCanBeFinished) {
  ScriptedCommit commit;
  commit_ = &commit;
  ASSERT_TRUE(Compile(SumPartition(4, false)).ok());
  ASSERT_TRUE(RunStep().ok());
  const std::vector<float> before = Weights();
  commit.answer = absl::UnavailableError("worker:1 was lost");
  const absl::Status lost = RunStep().status();
  EXPECT_TRUE(absl::IsUnavailable(lost)) << lost;
  EXPECT_EQ(program_->state(), StepState::kReady);
  EXPECT_EQ(Weights(), before);
  StepResult result;
  ASSERT_TRUE(program_->Finish(result).ok());
  EXPECT_EQ(program_->state(), StepState::kDone);
  for (size_t i = 0; i < before.size(); ++i) EXPECT_EQ(Weights()[i], 2 * before[i]);
  EXPECT_EQ(result.reports.at("loss").data<float>()[0], 20);
  EXPECT_TRUE(absl::IsFailedPrecondition(program_->Finish(result)));
}

TEST_P(StepProgramTest, AStepThatFailsBeforeItsCommitCannotBeFinished) {
  ScriptedCommit commit;
  commit_ = &commit;
  ASSERT_TRUE(Compile(SumPartition(4, false)).ok());
  source_.status = absl::DataLossError("record 3 is damaged");
  EXPECT_FALSE(RunStep().ok());
  EXPECT_EQ(program_->state(), StepState::kUnchanged);
  StepResult result;
  EXPECT_TRUE(absl::IsFailedPrecondition(program_->Finish(result)));
  source_.status = absl::OkStatus();
  source_.poison = true;
  EXPECT_FALSE(RunStep().ok());  // its guard fails
  EXPECT_EQ(program_->state(), StepState::kUnchanged);
  EXPECT_EQ(commit.steps.size(), 0U);
}

INSTANTIATE_TEST_SUITE_P(CpuAndFake, StepProgramTest, ::testing::Values(-1, 0, 1, 2, 3),
                         [](const auto& info) { return testing::TestDeviceName(info.param); });

}  // namespace
}  // namespace weft
