// What an update reads beyond its own elements (norms of a parameter, of all gradients; averages;
// schedules) is the same however the job is spread: against the same job in one process.
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tensor/tensor.h"
#include "tests/testing/training_run.h"

namespace weft::testing {
namespace {

struct UpdateCase {
  std::string name;
  OptimizerSpec optimizer;
  void (*change)(TrainingSpec&) = nullptr;
};

const UpdateCase kCases[] = {
    {"clip_norm",
     {.kind = "sgd", .learning_rate = 0.1},
     [](TrainingSpec& spec) { spec.clip_norm = 0.5; }},
    {"lamb", {.kind = "lamb", .learning_rate = 0.01, .weight_decay = 0.01}},
    {"lars",
     {.kind = "lars",
      .learning_rate = 1,
      .weight_decay = 0.01,
      .options = {{"trust-coefficient", 0.02}}}},
    {"all_at_once",
     {.kind = "adamw", .learning_rate = 0.001, .weight_decay = 0.01},
     [](TrainingSpec& spec) {
       spec.clip_norm = 0.5;
       spec.average_decay = 0.9;
       spec.schedule = {.kind = "cosine", .warmup = 2, .total = 6};
       spec.groups.learning_rates = {{"fc2.*", 0.002}};
       spec.groups.decay_vectors = false;
     }},
    {"rmsprop",
     {.kind = "rmsprop", .learning_rate = 0.001, .options = {{"momentum", 0.9}, {"centered", 1}}},
     [](TrainingSpec& spec) { spec.clip_value = 0.01; }},
};

TrainingRun MlpRun(const UpdateCase& update) {
  TrainingRun run;
  run.model = *CorporaFolder() + "/training-models/mlp_mnist.onnx";
  run.data = {{"x", *CorporaFolder() + "/mnist/train-images-idx3-ubyte"},
              {"labels", *CorporaFolder() + "/mnist/train-labels-idx1-ubyte"}};
  run.optimizer = update.optimizer;
  run.change = update.change;
  run.steps = 6;
  return run;
}

TrainingOutcome MustRun(const TrainingRun& run) {
  auto outcome = weft::testing::Run(run);
  EXPECT_TRUE(outcome.ok()) << outcome.status();
  return outcome.ok() ? *std::move(outcome) : TrainingOutcome();
}

class UpdateEquivalence : public ::testing::TestWithParam<UpdateCase> {
 protected:
  void SetUp() override {
    if (!CorporaFolder()) GTEST_SKIP() << "WEFT_CORPORA is not set: no models to train";
  }

  static void ExpectLosses(TrainingRun run, const TrainingOutcome& single, Mesh mesh, int zero) {
    run.workers = mesh.size();
    run.plan.mesh = mesh;
    run.plan.zero = zero;
    run.plan.micro_batches = 4;
    if (mesh.tensor > 1) {
      // Gemm(transB=1): rows of the first weight, columns of the second.
      run.plan.tensor_shardings = {{"fc1.weight", AxisSharding::Split(0)},
                                   {"fc1.bias", AxisSharding::Split(0)},
                                   {"fc2.weight", AxisSharding::Split(1)}};
    }
    EXPECT_LE(LargestRelativeGap(MustRun(run).losses, single.losses), 1e-5)
        << mesh.ToString() << ", zero=" << zero;
  }
};

TEST_P(UpdateEquivalence, EveryAxisGivesTheLossesOfOneProcess) {
  const TrainingRun run = MlpRun(GetParam());
  const TrainingOutcome single = MustRun(run);
  ASSERT_EQ(single.losses.size(), 6u);
  ExpectLosses(run, single, {2, 1, 1}, 0);
  ExpectLosses(run, single, {2, 1, 1}, 2);
  ExpectLosses(run, single, {1, 2, 1}, 0);
  ExpectLosses(run, single, {1, 1, 2}, 0);
  ExpectLosses(run, single, {2, 2, 1}, 3);
  ExpectLosses(run, single, {2, 1, 2}, 1);
}

TEST_P(UpdateEquivalence, StrictGivesTheSameBits) {
  TrainingRun run = MlpRun(GetParam());
  run.plan.strict = true;
  run.plan.micro_batches = 4;
  const TrainingOutcome single = MustRun(run);
  ASSERT_FALSE(single.parameters.empty());
  for (const int zero : {0, 3}) {
    run.workers = 2;
    run.plan.zero = zero;
    const TrainingOutcome spread = MustRun(run);
    EXPECT_EQ(spread.losses, single.losses);
    for (const auto& [name, value] : single.parameters) {
      ASSERT_TRUE(spread.parameters.contains(name));
      EXPECT_TRUE(BitwiseEqual(spread.parameters.at(name), value)) << name << ", zero=" << zero;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Updates, UpdateEquivalence, ::testing::ValuesIn(kCases),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace weft::testing
