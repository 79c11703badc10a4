// Steps in 16 bits on an emulated GPU, with the losses of the CPU, and in float16 with its scales.
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "ops/testing/emulator/emulated_device.h"
#include "tests/testing/equivalence_models.h"
#include "tests/testing/training_run.h"
#include "training/graph/precision.h"
#include "training/graph/training_spec.h"

namespace weft::testing {
namespace {

constexpr int64_t kSamples = 6;  // the emulator is slow
constexpr int64_t kSteps = 10;
// Gradients of 1/16 and more overflow with it, and those below 32 fit before the steps are over.
constexpr double kFirstScale = 1 << 20;

struct HalfOutcome {
  std::vector<double> losses;
  std::vector<double> scales;    // by step
  std::vector<int64_t> skipped;  // so far, by step
};

// `device`: null is the CPU.
HalfOutcome TrainInHalf(const EquivalenceModel& model, Precision precision, Device* device) {
  HalfOutcome outcome;
  TrainingRun run;
  run.data = WriteDataFiles(model, ::testing::TempDir());
  run.optimizer.kind = "adamw";
  run.batch = kSamples;
  run.steps = kSteps;
  run.plan.micro_batches = 2;
  if (device != nullptr) run.devices = {device};
  run.change = [precision](TrainingSpec& spec) {
    spec.precision = precision;
    spec.loss_scale.initial = kFirstScale;
  };
  run.progress = [&outcome](const TrainProgress& done) {
    outcome.losses.push_back(done.loss);
    outcome.scales.push_back(done.loss_scale);
    outcome.skipped.push_back(done.skipped_steps);
  };
  const auto trained = RunGraph(model.graph, run);
  EXPECT_TRUE(trained.ok()) << trained.status();
  EXPECT_EQ(outcome.losses.size(), static_cast<size_t>(kSteps));
  return outcome;
}

class EmulatedHalfTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto model = BuildEquivalenceModel("mlp", kSamples);
    ASSERT_TRUE(model.ok()) << model.status();
    model_ = *std::move(model);
  }

  EquivalenceModel model_;
};

TEST_F(EmulatedHalfTest, Float16ScalesItsLossAsOnTheCpu) {
  const HalfOutcome cpu = TrainInHalf(model_, Precision::kFloat16, nullptr);
  ASSERT_FALSE(cpu.skipped.empty());
  ASSERT_GT(cpu.skipped.back(), 0) << "no step overflows";
  ASSERT_LT(cpu.skipped.back(), kSteps) << "all steps overflow";
  for (const uint64_t seed : {1, 2}) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    EmulatedDevice device({.seed = seed});
    const HalfOutcome gpu = TrainInHalf(model_, Precision::kFloat16, &device);
    EXPECT_EQ(gpu.scales, cpu.scales);
    EXPECT_EQ(gpu.skipped, cpu.skipped);
    EXPECT_LE(LargestRelativeGap(gpu.losses, cpu.losses), 1e-2);
    EXPECT_TRUE(device.Verify().ok()) << device.Verify();
  }
}

TEST_F(EmulatedHalfTest, Bfloat16HasTheLossesOfTheCpu) {
  const HalfOutcome cpu = TrainInHalf(model_, Precision::kBfloat16, nullptr);
  EmulatedDevice device({.seed = 3});
  const HalfOutcome gpu = TrainInHalf(model_, Precision::kBfloat16, &device);
  EXPECT_LE(LargestRelativeGap(gpu.losses, cpu.losses), 3e-2);
  EXPECT_TRUE(device.Verify().ok()) << device.Verify();
}

}  // namespace
}  // namespace weft::testing
