// A GPT with dropout is one recording before its guard and one behind it. Its steps have the random
// numbers of steps that were not recorded, and of the CPU: in any step, micro-batch and bucket. So
// have steps whose tokens were copied while the one before was computed.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "executor/interfaces/communicator.h"
#include "executor/interfaces/input_source.h"
#include "executor/memory/arena.h"
#include "executor/program/compile_step.h"
#include "executor/variables/variable_store.h"
#include "graph/step_inputs.h"
#include "gtest/gtest.h"
#include "ops/node_runner.h"
#include "ops/testing/emulator/emulated_device.h"
#include "ops/testing/test_tensors.h"
#include "placement/completion/plan_completion.h"
#include "placement/partition/partitioner.h"
#include "platform/clock.h"
#include "tensor/testing/watched_device.h"
#include "tests/testing/training_run.h"
#include "tools/models/gpt_model.h"
#include "training/graph/training_graph.h"

namespace weft::testing {
namespace {

constexpr int64_t kTokens = 5;
constexpr int64_t kVocabulary = 11;
constexpr float kDropout = 0.3f;

// Tokens and labels: whole numbers below kVocabulary, others for each step, sample and place.
class TokenSource final : public InputSource {
 public:
  absl::Status Fill(int64_t step, const FeedInput& input, int64_t first, int64_t count,
                    void* target) override {
    const int64_t shift = input.name == "tokens" ? 0 : 1;
    std::vector<int64_t> values;
    for (int64_t i = first * kTokens; i < (first + count) * kTokens; ++i) {
      values.push_back((7 * step + 3 * (i + shift) + i * i) % kVocabulary);
    }
    if (input.dtype == DType::kInt64) {
      std::memcpy(target, values.data(), values.size() * sizeof(int64_t));
      return absl::OkStatus();
    }
    return absl::InvalidArgumentError(input.name);
  }
};

struct Step {
  int64_t number;
  int64_t samples;  // the bucket
};

struct RecordedOutcome {
  std::vector<double> losses;
  std::map<std::string, Tensor> variables;
  std::vector<int64_t> recordings;     // that there are after each step
  std::vector<int64_t> recorded_runs;  // in each step
};

enum class Feeds : bool { kInTurn, kAhead };

// Takes the steps on a device, each by the program of its bucket; the programs share an arena.
// Counts recordings where the device is a watched one.
void TakeSteps(const std::vector<Step>& steps, int micro_batches, Feeds feeds, Device& device,
               RecordedOutcome& outcome) {
  const auto model = GptLanguageModel({.blocks = 2, .width = 8, .heads = 2, .tokens = kTokens},
                                      {.vocabulary = kVocabulary, .dropout = kDropout});
  ASSERT_TRUE(model.ok()) << model.status();
  TrainingSpec spec;
  spec.loss = *ParseLoss("softmax_cross_entropy");
  spec.optimizer.kind = "adamw";
  const auto graph = BuildTrainingGraph(*model, spec);
  ASSERT_TRUE(graph.ok()) << graph.status();
  Plan plan;
  plan.micro_batches = micro_batches;
  VariableStore variables(device);
  Arena arena(device);
  TokenSource data;
  const std::unique_ptr<Communicator> nobody = NewSoloCommunicator();
  std::map<int64_t, Partition> partitions;
  std::map<int64_t, std::unique_ptr<StepProgram>> programs;
  std::set<std::string> names;
  for (const Step& step : steps) {
    if (programs.contains(step.samples)) continue;
    const auto complete = CompletePlan(*graph, ClusterSpec::Local(1, 1), plan, step.samples);
    ASSERT_TRUE(complete.ok()) << complete.status();
    auto parts = PartitionStep(*graph, *complete, {true, step.samples}, CpuNodeEvaluator());
    ASSERT_TRUE(parts.ok()) << parts.status();
    Partition& partition = partitions[step.samples] = std::move(parts->front());
    if (names.empty()) {
      ASSERT_TRUE(variables.Add(partition.variables).ok());
      for (const VariableShard& variable : partition.variables) names.insert(variable.name);
      for (const Variable& variable : graph->variables()) {
        if (!variable.initial.valid()) continue;
        ASSERT_TRUE(variables.Write(variable.name, variable.initial).ok());
      }
    }
    ExecutorEnvironment environment;
    environment.device = &device;
    environment.variables = &variables;
    environment.communicator = nobody.get();
    environment.input = &data;
    environment.clock = &RealClock();
    environment.arena = &arena;
    if (feeds == Feeds::kAhead) environment.min_ahead_bytes = 0;
    auto program = CompileStep(partition, environment);
    ASSERT_TRUE(program.ok()) << program.status();
    programs[step.samples] = *std::move(program);
  }
  auto* const watched = dynamic_cast<WatchedDevice*>(&device);
  for (size_t i = 0; i < steps.size(); ++i) {
    const Step& step = steps[i];
    const int64_t runs = watched == nullptr ? 0 : watched->calls().recorded_runs.load();
    StepOptions options;
    options.step = step.number;
    options.scalars = {{kLearningRateInput, 0.01},
                       {kStepInput, static_cast<double>(step.number + 1)}};
    const bool goes_on = i + 1 < steps.size() && steps[i + 1].samples == step.samples;
    if (goes_on) options.next_step = steps[i + 1].number;
    const auto result = programs.at(step.samples)->Run(options);
    ASSERT_TRUE(result.ok()) << result.status();
    const Tensor& loss = result->reports.at(partitions.at(step.samples).guard);
    outcome.losses.push_back(loss.data<float>()[0]);
    if (watched == nullptr) continue;
    outcome.recordings.push_back(watched->calls().recordings);
    outcome.recorded_runs.push_back(watched->calls().recorded_runs - runs);
  }
  for (const std::string& name : names) {
    const auto value = variables.Read(name);
    ASSERT_TRUE(value.ok()) << value.status();
    outcome.variables[name] = *value;
  }
}

enum class Recording : bool { kNo, kYes };

RecordedOutcome OnEmulatedGpu(const std::vector<Step>& steps, int micro_batches,
                              Recording recording, Feeds feeds) {
  EmulatedDevice emulated({.seed = recording == Recording::kYes ? 2U : 1U});
  WatchedDeviceOptions options;
  options.records = recording == Recording::kYes;
  RecordedOutcome outcome;
  {
    WatchedDevice device(emulated, options);
    TakeSteps(steps, micro_batches, feeds, device, outcome);
  }
  EXPECT_TRUE(emulated.Verify().ok()) << emulated.Verify();
  return outcome;
}

void ExpectSameBits(const RecordedOutcome& outcome, const RecordedOutcome& plain) {
  EXPECT_EQ(outcome.losses, plain.losses);
  EXPECT_EQ(outcome.variables.size(), plain.variables.size());
  for (const auto& [name, value] : plain.variables) {
    EXPECT_TRUE(BitwiseEqual(outcome.variables.at(name), value)) << name;
  }
}

// Recorded steps against the same steps without recordings, bit by bit, and against the CPU, whose
// sums have another order: with other random numbers the losses would differ in the first digits.
// Rows that are copied ahead change neither bits nor what is recorded.
RecordedOutcome CheckSteps(const std::vector<Step>& steps, int micro_batches) {
  RecordedOutcome cpu;
  TakeSteps(steps, micro_batches, Feeds::kInTurn, CpuDevice(), cpu);
  const auto on_gpu = [&](Recording recording, Feeds feeds) {
    return OnEmulatedGpu(steps, micro_batches, recording, feeds);
  };
  const RecordedOutcome plain = on_gpu(Recording::kNo, Feeds::kInTurn);
  RecordedOutcome recorded = on_gpu(Recording::kYes, Feeds::kInTurn);
  const RecordedOutcome ahead = on_gpu(Recording::kYes, Feeds::kAhead);
  ExpectSameBits(recorded, plain);
  ExpectSameBits(ahead, plain);
  EXPECT_LE(LargestRelativeGap(recorded.losses, cpu.losses), 1e-5);
  for (const int64_t runs : plain.recorded_runs) EXPECT_EQ(runs, 0);
  EXPECT_EQ(ahead.recordings, recorded.recordings);
  EXPECT_EQ(ahead.recorded_runs, recorded.recorded_runs);
  return recorded;
}

std::vector<Step> StepsFrom(int64_t first, int64_t count, int64_t samples) {
  std::vector<Step> steps;
  for (int64_t i = 0; i < count; ++i) steps.push_back({first + i, samples});
  return steps;
}

// What Dropout has drawn is not what the losses would be without: else the checks below say little.
TEST(EmulatedRecordingsTest, TheLossesDependOnTheStepsNumber) {
  RecordedOutcome first, other;
  TakeSteps({{1, 4}}, 1, Feeds::kInTurn, CpuDevice(), first);
  TakeSteps({{1 + kVocabulary, 4}}, 1, Feeds::kInTurn, CpuDevice(), other);  // has the same data
  EXPECT_GT(LargestRelativeGap(first.losses, other.losses), 1e-3);
}

TEST(EmulatedRecordingsTest, AStepWithDropoutIsOneRecordingBeforeItsGuardAndOneBehindIt) {
  const RecordedOutcome recorded = CheckSteps(StepsFrom(1, 5, 4), 1);
  EXPECT_EQ(recorded.recordings, (std::vector<int64_t>{0, 2, 2, 2, 2}));
  EXPECT_EQ(recorded.recorded_runs, (std::vector<int64_t>{0, 2, 2, 2, 2}));
}

// Between two micro-batches the host fills the rows of the next one.
TEST(EmulatedRecordingsTest, EachMicroBatchIsARecordingWithItsOwnNumbers) {
  const RecordedOutcome recorded = CheckSteps(StepsFrom(1, 4, 6), 3);
  EXPECT_EQ(recorded.recordings, (std::vector<int64_t>{0, 4, 4, 4}));
  EXPECT_EQ(recorded.recorded_runs, (std::vector<int64_t>{0, 4, 4, 4}));
}

TEST(EmulatedRecordingsTest, AResumedJobHasTheNumbersOfItsSteps) {
  const RecordedOutcome recorded = CheckSteps(StepsFrom(1000007, 3, 2), 1);
  EXPECT_EQ(recorded.recorded_runs, (std::vector<int64_t>{0, 2, 2}));
}

// Each bucket's program records for itself, and has the step's number for itself.
TEST(EmulatedRecordingsTest, BucketsThatChangeHaveTheNumbersOfTheirSteps) {
  const RecordedOutcome recorded =
      CheckSteps({{1, 4}, {2, 4}, {3, 3}, {4, 4}, {5, 3}, {6, 3}, {7, 4}}, 1);
  EXPECT_EQ(recorded.recordings, (std::vector<int64_t>{0, 2, 2, 2, 4, 4, 4}));
  EXPECT_EQ(recorded.recorded_runs, (std::vector<int64_t>{0, 2, 0, 2, 2, 2, 2}));
}

}  // namespace
}  // namespace weft::testing
