// Training in bfloat16 and float16 on real data: near to float32's losses, and the same job however
// it is spread.
#include <cmath>
#include <iostream>
#include <numeric>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/testing/character_data.h"
#include "tests/testing/training_run.h"

namespace weft::testing {
namespace {

struct PrecisionCase {
  std::string name;
  void (*change)(TrainingSpec&);
};

const PrecisionCase kPrecisionCases[] = {
    {"bf16", [](TrainingSpec& spec) { spec.precision = Precision::kBfloat16; }},
    // A scale that need not settle first: of 50 steps, five would be missed.
    {"fp16", [](TrainingSpec& spec) {
       spec.precision = Precision::kFloat16;
       spec.loss_scale.initial = 64;
     }}};

class MixedPrecision : public ::testing::TestWithParam<PrecisionCase> {
 protected:
  void SetUp() override {
    if (!CorporaFolder()) GTEST_SKIP() << "WEFT_CORPORA is not set: no models to train";
  }

  static TrainingRun MnistRun(const std::string& model) {
    TrainingRun run;
    run.model = *CorporaFolder() + "/training-models/" + model + ".onnx";
    run.data = {{"x", *CorporaFolder() + "/mnist/train-images-idx3-ubyte"},
                {"labels", *CorporaFolder() + "/mnist/train-labels-idx1-ubyte"}};
    run.optimizer.kind = "adam";
    run.optimizer.learning_rate = 0.001;
    return run;
  }

  static TrainingRun TextRun() {
    constexpr int64_t kBatch = 16;
    TrainingRun run;
    run.model = *CorporaFolder() + "/training-models/gpt_char.onnx";
    run.data =
        WriteCharacterData(ReadCorpusText(*CorporaFolder()), kBatch * 20, ::testing::TempDir());
    run.batch = kBatch;
    run.steps = 20;
    run.optimizer.kind = "adamw";
    run.optimizer.learning_rate = 0.001;
    return run;
  }

  static TrainingOutcome MustRun(const TrainingRun& run) {
    auto outcome = weft::testing::Run(run);
    EXPECT_TRUE(outcome.ok()) << outcome.status();
    return outcome.ok() ? *std::move(outcome) : TrainingOutcome();
  }

  static double LastLosses(const TrainingOutcome& outcome) {
    if (outcome.losses.size() < 10) return NAN;
    return std::accumulate(outcome.losses.end() - 10, outcome.losses.end(), 0.0) / 10;
  }

  // The mean of the last ten losses against that in float32.
  void ExpectNear(TrainingRun run, double tolerance) {
    const double single = LastLosses(MustRun(run));
    run.change = GetParam().change;
    int64_t skipped = 0;
    run.progress = [&](const TrainProgress& done) { skipped = done.skipped_steps; };
    const TrainingOutcome lower = MustRun(run);
    for (const auto& [name, value] : lower.parameters) {
      EXPECT_EQ(value.dtype(), DType::kFloat32) << name;
    }
    std::cout << run.model << ": mean of the last ten losses " << LastLosses(lower)
              << ", in float32 " << single << ", skipped steps " << skipped << "\n";
    EXPECT_NEAR(LastLosses(lower), single, tolerance * single);
    EXPECT_LE(skipped, 1);
  }

  void ExpectSpread(const TrainingRun& single, Mesh mesh, double tolerance,
                    const std::map<std::string, AxisSharding>& shardings = {}) {
    TrainingRun run = single;
    run.workers = mesh.size();
    run.plan.mesh = mesh;
    run.plan.tensor_shardings = shardings;
    EXPECT_LE(LargestRelativeGap(MustRun(run).losses, MustRun(single).losses), tolerance)
        << mesh.ToString();
  }
};

TEST_P(MixedPrecision, MlpLearnsAsInFloat32) { ExpectNear(MnistRun("mlp_mnist"), 0.03); }
TEST_P(MixedPrecision, LenetLearnsAsInFloat32) { ExpectNear(MnistRun("lenet_mnist"), 0.03); }
TEST_P(MixedPrecision, LstmLearnsAsInFloat32) { ExpectNear(MnistRun("lstm_mnist"), 0.03); }
TEST_P(MixedPrecision, TheSmallGptLearnsAsInFloat32) { ExpectNear(TextRun(), 0.02); }

TEST_P(MixedPrecision, EveryAxisGivesTheLossesOfOneProcess) {
  TrainingRun run = MnistRun("mlp_mnist");
  run.change = GetParam().change;
  run.steps = 12;
  run.plan.micro_batches = 4;
  // The same micro-batches, summed in another order.
  ExpectSpread(run, {2, 1, 1}, 1e-4);
  ExpectSpread(run, {1, 1, 2}, 1e-4);
  // Halves of a sum are rounded before they are added.
  ExpectSpread(run, {1, 2, 1}, 0.05,
               {{"fc1.weight", AxisSharding::Split(0)},
                {"fc1.bias", AxisSharding::Split(0)},
                {"fc2.weight", AxisSharding::Split(1)}});
}

TEST_P(MixedPrecision, StrictGivesTheSameBits) {
  TrainingRun run = MnistRun("lenet_mnist");
  run.change = GetParam().change;
  run.steps = 6;
  run.plan.strict = true;
  run.plan.micro_batches = 4;
  const TrainingOutcome single = MustRun(run);
  ASSERT_FALSE(single.parameters.empty());
  run.workers = 2;
  for (const int zero : {0, 2}) {
    run.plan.zero = zero;
    const TrainingOutcome spread = MustRun(run);
    EXPECT_EQ(spread.losses, single.losses);
    for (const auto& [name, value] : single.parameters) {
      ASSERT_TRUE(spread.parameters.contains(name));
      EXPECT_TRUE(BitwiseEqual(spread.parameters.at(name), value)) << name << ", zero=" << zero;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Precisions, MixedPrecision, ::testing::ValuesIn(kPrecisionCases),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace weft::testing
