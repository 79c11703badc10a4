// Models train on emulated GPUs as on the CPU: each kernel and each order of their launches, copies
// and events, in several orders of threads and streams, with nothing for the emulator to report.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "executor/interfaces/communicator.h"
#include "executor/interfaces/input_source.h"
#include "executor/program/compile_step.h"
#include "executor/variables/variable_store.h"
#include "graph/step_inputs.h"
#include "gtest/gtest.h"
#include "ops/kernels/cuda/linear/testing/recording_blas_lt.h"
#include "ops/node_runner.h"
#include "ops/testing/emulator/emulated_device.h"
#include "ops/testing/test_tensors.h"
#include "placement/completion/plan_completion.h"
#include "placement/partition/partitioner.h"
#include "platform/clock.h"
#include "tensor/testing/fake_device.h"
#include "tensor/testing/watched_device.h"
#include "tests/testing/equivalence_models.h"
#include "tests/testing/training_run.h"
#include "training/graph/training_graph.h"

namespace weft::testing {
namespace {

constexpr int64_t kSamples = 6;  // the emulator is slow
constexpr int64_t kSteps = 4;

TrainingRun RunOf(const EquivalenceModel& model, const std::string& optimizer, int workers) {
  TrainingRun run;
  run.data = WriteDataFiles(model, ::testing::TempDir());
  run.optimizer.kind = optimizer;
  run.batch = kSamples;
  run.steps = kSteps;
  run.workers = workers;
  run.plan.micro_batches = 2;
  return run;
}

class EmulatedTrainingTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    auto model = BuildEquivalenceModel(GetParam(), kSamples);
    ASSERT_TRUE(model.ok()) << model.status();
    model_ = *std::move(model);
  }
  std::vector<double> LossesOf(const TrainingRun& run) const {
    const auto outcome = RunGraph(model_.graph, run);
    EXPECT_TRUE(outcome.ok()) << outcome.status();
    return outcome.ok() ? outcome->losses : std::vector<double>();
  }

  EquivalenceModel model_;
};

INSTANTIATE_TEST_SUITE_P(Models, EmulatedTrainingTest,
                         ::testing::Values("mlp", "lenet", "gpt", "lstm"),
                         [](const auto& info) { return info.param; });

TEST_P(EmulatedTrainingTest, HasTheLossesOfTheCpu) {
  for (const std::string optimizer : {"sgd", "adamw"}) {
    const std::vector<double> expected = LossesOf(RunOf(model_, optimizer, 1));
    ASSERT_EQ(expected.size(), static_cast<size_t>(kSteps));
    for (const uint64_t seed : {1, 2, 3}) {
      SCOPED_TRACE(absl::StrCat(optimizer, ", seed ", seed));
      EmulatedDevice device({.seed = seed});
      TrainingRun run = RunOf(model_, optimizer, 1);
      run.devices = {&device};
      EXPECT_LE(LargestRelativeGap(LossesOf(run), expected), 1e-5);
      EXPECT_TRUE(device.Verify().ok()) << device.Verify();
    }
  }
}

// Data of the model's own for steps that run without a job.
class ModelData final : public InputSource {
 public:
  explicit ModelData(const EquivalenceModel& model) : model_(model) {}
  absl::Status Fill(int64_t, const FeedInput& input, int64_t first, int64_t count,
                    void* target) override {
    const Tensor& all = model_.data.at(input.name);
    const size_t row = all.bytes() / static_cast<size_t>(all.shape().dim(0));
    std::memcpy(target, static_cast<const std::byte*>(all.raw_data()) + first * row, count * row);
    return absl::OkStatus();
  }

 private:
  const EquivalenceModel& model_;
};

// What some steps leave behind.
struct StepsOutcome {
  std::map<std::string, Tensor> variables;
  size_t launches = 0;
  int kernels = 0;  // of the program
  std::vector<NodeStatistics> nodes;
};

constexpr int64_t kNeverTimed = 0;

// Nodes are timed in the steps from `timed_step` on, of which the first finds no memory for its
// allocation `failing` (from 1; 0: it finds all).
StepsOutcome RunSteps(const EquivalenceModel& model, const TrainingSpec& spec, bool joins_kernels,
                      uint64_t seed, int64_t timed_step = kNeverTimed, int64_t failing = 0) {
  StepsOutcome outcome;
  const auto graph = BuildTrainingGraph(model.graph, spec);
  EXPECT_TRUE(graph.ok()) << graph.status();
  Plan plan;
  plan.micro_batches = 2;
  const auto complete = CompletePlan(*graph, ClusterSpec::Local(1, 1), plan, kSamples);
  EXPECT_TRUE(complete.ok()) << complete.status();
  const auto partitions = PartitionStep(*graph, *complete, {true, kSamples}, CpuNodeEvaluator());
  EXPECT_TRUE(partitions.ok()) << partitions.status();
  const Partition& partition = partitions->front();

  EmulatedDevice device({.seed = seed});
  VariableStore variables(device);
  EXPECT_TRUE(variables.Add(partition.variables).ok());
  for (const Variable& variable : graph->variables()) {
    if (!variable.initial.valid()) continue;
    const absl::Status written = variables.Write(variable.name, variable.initial);
    EXPECT_TRUE(written.ok()) << written;
  }
  const std::unique_ptr<Communicator> nobody = NewSoloCommunicator();
  ModelData data(model);
  ExecutorEnvironment environment;
  environment.device = &device;
  environment.variables = &variables;
  environment.communicator = nobody.get();
  environment.input = &data;
  environment.clock = &RealClock();
  environment.joins_kernels = joins_kernels;
  const auto program = CompileStep(partition, environment);
  EXPECT_TRUE(program.ok()) << program.status();
  const std::string text = (*program)->DebugString();
  for (size_t at = text.find("  kernel "); at != std::string::npos;
       at = text.find("  kernel ", at + 1)) {
    ++outcome.kernels;
  }
  for (int64_t step = 1; step <= kSteps; ++step) {
    (*program)->EnableStatistics(timed_step != kNeverTimed && step >= timed_step);
    if (step == timed_step) device.FailAllocation(failing);
    const auto result = (*program)->Run(
        {.step = step,
         .scalars = {{kLearningRateInput, 0.01}, {kStepInput, static_cast<double>(step)}}});
    EXPECT_TRUE(result.ok()) << result.status();
  }
  outcome.nodes = (*program)->statistics();
  outcome.launches = device.launches().size();
  EXPECT_TRUE(device.Verify().ok()) << device.Verify();
  for (const VariableShard& variable : partition.variables) {
    const auto value = variables.Read(variable.name);
    EXPECT_TRUE(value.ok()) << value.status();
    outcome.variables[variable.name] = *value;
  }
  return outcome;
}

// The updates of all parameters in a few launches, with clipping by the norm of all gradients too.
TEST_P(EmulatedTrainingTest, JoinedUpdatesHaveTheBitsOfUpdatesOneByOne) {
  TrainingSpec spec;
  spec.loss = *ParseLoss("softmax_cross_entropy");
  for (const std::string optimizer : {"sgd", "adamw"}) {
    spec.optimizer.kind = optimizer;
    spec.clip_norm = optimizer == "adamw" ? 0.1 : 0;
    SCOPED_TRACE(optimizer);
    const StepsOutcome single = RunSteps(model_, spec, /*joins_kernels=*/false, 1);
    const StepsOutcome joined = RunSteps(model_, spec, /*joins_kernels=*/true, 2);
    ASSERT_EQ(joined.variables.size(), single.variables.size());
    size_t parameters = 0;
    for (const auto& [name, value] : single.variables) {
      EXPECT_TRUE(BitwiseEqual(joined.variables.at(name), value)) << name;
    }
    for (const Variable& variable : model_.graph.variables()) parameters += variable.trainable;
    // Scale and update: one launch each instead of one for each parameter.
    EXPECT_EQ(single.kernels - joined.kernels, static_cast<int>(2 * (parameters - 1)));
    EXPECT_EQ(single.launches - joined.launches, kSteps * 2 * (parameters - 1));
  }
}

// Launches are timed by many runs of each, optimizers that write over what they read among them: of
// that nothing is left, and all timed steps count what the first has shown.
TEST_P(EmulatedTrainingTest, TimedStepsHaveTheBitsOfOthers) {
  if (GetParam() != "mlp") GTEST_SKIP() << "the emulator is slow";
  TrainingSpec spec;
  spec.loss = *ParseLoss("softmax_cross_entropy");
  spec.optimizer.kind = "adamw";
  const StepsOutcome plain = RunSteps(model_, spec, /*joins_kernels=*/true, 1);
  const StepsOutcome timed = RunSteps(model_, spec, /*joins_kernels=*/true, 2, /*timed_step=*/2);
  ASSERT_EQ(timed.variables.size(), plain.variables.size());
  for (const auto& [name, value] : plain.variables) {
    EXPECT_TRUE(BitwiseEqual(timed.variables.at(name), value)) << name;
  }
  EXPECT_GT(timed.launches, 3 * plain.launches);
  int updates = 0;
  int64_t nanoseconds = 0;
  for (const NodeStatistics& node : timed.nodes) {
    if (node.calls == 0) continue;
    EXPECT_EQ(node.calls % (kSteps - 1), 0) << node.node;
    nanoseconds += node.nanoseconds;  // of one node maybe 0, where its copies took as long
    updates += node.phase == Phase::kUpdate ? 1 : 0;
  }
  EXPECT_GT(updates, 0);
  EXPECT_GT(nanoseconds, 0);
}

// What a launch writes over is kept in memory for the time. Where there is none for the next piece,
// the launch is timed by one run, and the pieces that were copied live until the copies are over.
TEST_P(EmulatedTrainingTest, LaunchesWithoutMemoryForCopiesAreTimedOnce) {
  if (GetParam() != "mlp") GTEST_SKIP() << "the emulator is slow";
  TrainingSpec spec;
  spec.loss = *ParseLoss("softmax_cross_entropy");
  spec.optimizer.kind = "adamw";
  const StepsOutcome plain = RunSteps(model_, spec, /*joins_kernels=*/true, 1);
  // The updates of all parameters are one launch, whose later pieces are wanted here.
  for (const int64_t failing : {1, 4, 7, 10, 13, 16}) {
    SCOPED_TRACE(absl::StrCat("allocation ", failing));
    const StepsOutcome timed =
        RunSteps(model_, spec, /*joins_kernels=*/true, 2, /*timed_step=*/2, failing);
    for (const auto& [name, value] : plain.variables) {
      EXPECT_TRUE(BitwiseEqual(timed.variables.at(name), value)) << name;
    }
    for (const NodeStatistics& node : timed.nodes) {
      EXPECT_EQ(node.calls % (kSteps - 1), 0) << node.node;
    }
  }
}

// Two ranks that sum their gradients beside the micro-batches, with recordings.
class EmulatedRanksTest : public EmulatedTrainingTest {
 protected:
  struct Outcome {
    double gap = 0;  // to the CPU's losses
    absl::Status verified;
  };
  Outcome Train(uint64_t seed, const std::string& stream_without_waits,
                const std::vector<double>& expected) {
    std::vector<std::unique_ptr<EmulatedDevice>> emulated;
    std::vector<std::unique_ptr<WatchedDevice>> watched;
    TrainingRun run = RunOf(model_, "sgd", 2);
    run.stall_timeout_seconds = 20;
    for (uint64_t rank = 0; rank < 2; ++rank) {
      emulated.push_back(std::make_unique<EmulatedDevice>(
          EmulatedDeviceOptions{.index = static_cast<int>(rank),
                                .seed = 10 * seed + rank,
                                // A bucket of gradients has gaps that nobody writes.
                                .checks_copies_to_host = false}));
      WatchedDeviceOptions options;
      options.stream_without_waits = stream_without_waits;
      options.records = true;
      watched.push_back(std::make_unique<WatchedDevice>(*emulated.back(), options));
      run.devices.push_back(watched.back().get());
    }
    const auto trained = RunGraph(model_.graph, run);
    Outcome outcome;
    outcome.gap = trained.ok() ? LargestRelativeGap(trained->losses, expected) : 1;
    for (const auto& device : emulated) outcome.verified.Update(device->Verify());
    return outcome;
  }
};

INSTANTIATE_TEST_SUITE_P(Models, EmulatedRanksTest, ::testing::Values("mlp"),
                         [](const auto& info) { return info.param; });

TEST_P(EmulatedRanksTest, HaveTheLossesOfTheCpuAndAMissingWaitIsSeen) {
  const std::vector<double> expected = LossesOf(RunOf(model_, "sgd", 1));
  for (const uint64_t seed : {1, 2, 3}) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    const Outcome right = Train(seed, "", expected);
    EXPECT_LE(right.gap, 1e-5);
    EXPECT_TRUE(right.verified.ok()) << right.verified;
  }
  for (const std::string stream : {"compute", "communication"}) {
    const Outcome faulty = Train(1, stream, expected);
    EXPECT_TRUE(!faulty.verified.ok() || faulty.gap > 1e-5) << stream;
  }
}

// Plan::tf32 reaches the library as the type that it computes in; strict plans do not say it.
TEST_P(EmulatedRanksTest, RoundProductsToTf32WhereThePlanSaysSo) {
  for (const bool tf32 : {false, true}) {
    for (const bool strict : {false, true}) {
      EmulatedDevice device({.seed = 1});
      TrainingRun run = RunOf(model_, "sgd", 1);
      run.devices = {&device};
      run.plan.tf32 = tf32;
      run.plan.strict = strict;
      RecordingBlasLt::Get().TakeCalls();
      ASSERT_FALSE(LossesOf(run).empty());
      const auto calls = RecordingBlasLt::Get().TakeCalls();
      ASSERT_FALSE(calls.empty());
      for (const auto& call : calls) EXPECT_EQ(call.spec.tf32, tf32 && !strict);
    }
  }
}

// ---- Several ranks, on devices of each kind

// How a model is spread over two ranks.
struct Spread {
  std::string name;
  Mesh mesh;
};

class DeviceRanksTest : public ::testing::TestWithParam<std::tuple<DeviceKind, Spread>> {
 protected:
  // A device of the kind; null: the CPU.
  static std::unique_ptr<FakeDevice> NewDevice(DeviceKind kind, int rank, uint64_t seed) {
    if (kind == DeviceKind::kFake) {
      return std::make_unique<FakeDevice>(
          FakeDeviceOptions{.index = rank, .scheduling = {.seed = seed}});
    }
    if (kind == DeviceKind::kCuda) {
      return std::make_unique<EmulatedDevice>(
          EmulatedDeviceOptions{.index = rank, .seed = seed, .checks_copies_to_host = false});
    }
    return nullptr;
  }
};

INSTANTIATE_TEST_SUITE_P(
    Kinds, DeviceRanksTest,
    ::testing::Combine(::testing::Values(DeviceKind::kCpu, DeviceKind::kFake, DeviceKind::kCuda),
                       ::testing::Values(Spread{"dp", {2, 1, 1}}, Spread{"tp", {1, 2, 1}},
                                         Spread{"pp", {1, 1, 2}})),
    [](const auto& info) {
      const DeviceKind kind = std::get<0>(info.param);
      return absl::StrCat(kind == DeviceKind::kCpu    ? "Cpu"
                          : kind == DeviceKind::kFake ? "Fake"
                                                      : "Emulated",
                          "_", std::get<1>(info.param).name);
    });

TEST_P(DeviceRanksTest, HaveTheLossesOfOneCpu) {
  const auto& [kind, spread] = GetParam();
  auto model = BuildEquivalenceModel("mlp", kSamples);
  ASSERT_TRUE(model.ok()) << model.status();
  const auto expected = RunGraph(model->graph, RunOf(*model, "adamw", 1));
  ASSERT_TRUE(expected.ok()) << expected.status();
  for (const uint64_t seed : {1, 2}) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    TrainingRun run = RunOf(*model, "adamw", 2);
    run.plan.mesh = spread.mesh;
    run.stall_timeout_seconds = 20;
    std::vector<std::unique_ptr<FakeDevice>> devices;
    for (int rank = 0; rank < 2; ++rank) {
      auto device = NewDevice(kind, rank, 10 * seed + static_cast<uint64_t>(rank));
      if (device == nullptr) continue;
      run.devices.push_back(device.get());
      devices.push_back(std::move(device));
    }
    const auto trained = RunGraph(model->graph, run);
    ASSERT_TRUE(trained.ok()) << trained.status();
    EXPECT_LE(LargestRelativeGap(trained->losses, expected->losses), 1e-5);
    for (const auto& device : devices) EXPECT_TRUE(device->Verify().ok()) << device->Verify();
  }
}

}  // namespace
}  // namespace weft::testing
