// Steps on an emulated GPU whose products take biases, Gelu and the gradients of both: the losses
// of the CPU, in fewer launches.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "graph/graph_builder.h"
#include "gtest/gtest.h"
#include "ops/fusion/fusion_rules.h"
#include "ops/kernels/cuda/linear/testing/recording_blas_lt.h"
#include "ops/testing/emulator/emulated_device.h"
#include "ops/testing/test_tensors.h"
#include "tests/testing/equivalence_models.h"
#include "tests/testing/training_run.h"
#include "training/graph/precision.h"
#include "training/graph/training_spec.h"

namespace weft::testing {
namespace {

constexpr int64_t kSamples = 6;  // the emulator is slow
constexpr int64_t kSteps = 3;
constexpr int64_t kMicroBatches = 2;

// Regions would be compiled when the program is prepared; products alone are looked at here.
FusedRole NoRole(const Graph& /*graph*/, const Node& /*node*/) { return FusedRole::kNone; }

// Two layers with Gelu by tanh between, whose columns are multiples of eight, and 11 classes.
EquivalenceModel GeluModel() {
  EquivalenceModel model;
  model.name = "gelu";
  model.graph.name = "gelu";
  model.graph.opsets[""] = 20;
  GraphBuilder builder(model.graph);
  uint64_t seed = 0;
  const auto linear = [&](ValueId x, const std::string& name, int64_t from, int64_t to) {
    const auto weight = [&](const std::string& of, const Shape& shape) {
      return model.graph.AddVariable(absl::StrCat(name, of),
                                     {ValueKind::kTensor, DType::kFloat32, shape},
                                     RandomTensor(shape, ++seed, -0.5, 0.5), true);
    };
    builder.set_name_prefix(name + "/");
    const ValueId product = builder.Op("MatMul", {x, weight(".weight", {from, to})});
    return builder.Op("Add", {product, weight(".bias", {to})});
  };
  const ValueId x =
      model.graph.AddInput("x", {ValueKind::kTensor, DType::kFloat32,
                                 SymbolicShape(std::vector<Dim>{Dim::Symbol("N"), Dim(7)})});
  ValueId h = linear(x, "up", 7, 24);
  h = builder.Op("Gelu", {h}, {{"approximate", std::string("tanh")}});
  h = linear(h, "middle", 24, 16);
  h = builder.Op("Gelu", {h}, {{"approximate", std::string("tanh")}});
  model.graph.AddOutput(linear(h, "head", 16, 11));
  EXPECT_TRUE(builder.status().ok()) << builder.status();
  model.data["x"] = RandomTensor(Shape{kSamples, 7}, 1001);
  model.data["labels"] = RandomTensor(Shape{kSamples}, 1002, 0, 11, DType::kInt64);
  return model;
}

struct EpilogueOutcome {
  std::vector<double> losses;
  size_t launches = 0;
  std::vector<RecordingBlasLt::Call> products;
};

class EmulatedEpiloguesTest : public ::testing::Test {
 protected:
  EmulatedEpiloguesTest() { RegisterFusionRules(DeviceKind::kCuda, {.role_of = NoRole}); }

  void SetModel(const std::string& name) {
    auto model = BuildEquivalenceModel(name, kSamples);
    ASSERT_TRUE(model.ok()) << model.status();
    model_ = *std::move(model);
  }
  // `device`: null is the CPU.
  EpilogueOutcome Train(EmulatedDevice* device, bool fuses,
                        Precision precision = Precision::kFloat32, bool strict = false) const {
    TrainingRun run;
    run.data = WriteDataFiles(model_, ::testing::TempDir());
    run.optimizer.kind = "adamw";
    run.batch = kSamples;
    run.steps = kSteps;
    run.plan.micro_batches = kMicroBatches;
    run.plan.fuses_nodes = fuses;
    run.plan.strict = strict;
    if (device != nullptr) run.devices = {device};
    run.change = [precision](TrainingSpec& spec) { spec.precision = precision; };
    RecordingBlasLt::Get().TakeCalls();
    EpilogueOutcome outcome;
    const auto trained = RunGraph(model_.graph, run);
    EXPECT_TRUE(trained.ok()) << trained.status();
    if (trained.ok()) outcome.losses = trained->losses;
    EXPECT_EQ(outcome.losses.size(), static_cast<size_t>(kSteps));
    outcome.products = RecordingBlasLt::Get().TakeCalls();
    if (device == nullptr) return outcome;
    EXPECT_TRUE(device->Verify().ok()) << device->Verify();
    outcome.launches = device->launches().size();
    return outcome;
  }
  // Of a step's micro-batch; the same of each.
  template <typename Is>
  static int64_t PerMicroBatch(const EpilogueOutcome& outcome, Is is) {
    const auto count = std::count_if(outcome.products.begin(), outcome.products.end(),
                                     [&](const auto& call) { return is(call.spec); });
    EXPECT_EQ(count % (kSteps * kMicroBatches), 0);
    return count / (kSteps * kMicroBatches);
  }
  int64_t Biases() const {
    const auto variables = model_.graph.variables();
    return std::count_if(variables.begin(), variables.end(),
                         [](const Variable& variable) { return variable.name.ends_with(".bias"); });
  }
  static bool HasBias(const cuda::MatrixProductSpec& spec) { return spec.has_bias; }
  static bool HasSums(const cuda::MatrixProductSpec& spec) {
    return spec.sums != cuda::SummedOperand::kNone;
  }

  EquivalenceModel model_;
};

// Every linear layer: MatMul and Add are one launch, so are the gradients of weight and bias. Two
// residuals of each block are added by their products.
TEST_F(EmulatedEpiloguesTest, TheGptHasTheLossesOfTheCpuInFewerLaunches) {
  SetModel("gpt");
  const EpilogueOutcome cpu = Train(nullptr, /*fuses=*/true);
  EXPECT_TRUE(cpu.products.empty()) << "CPUs have no such products";
  EmulatedDevice plain_device({.seed = 1});
  const EpilogueOutcome plain = Train(&plain_device, /*fuses=*/false);
  EXPECT_EQ(PerMicroBatch(plain, HasBias), 0);
  for (const uint64_t seed : {1, 2}) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    EmulatedDevice device({.seed = seed});
    const EpilogueOutcome joined = Train(&device, /*fuses=*/true);
    EXPECT_LE(LargestRelativeGap(joined.losses, cpu.losses), 1e-5);
    EXPECT_GE(Biases(), 9);
    EXPECT_EQ(PerMicroBatch(joined, HasBias), Biases());
    EXPECT_EQ(PerMicroBatch(joined, HasSums), Biases());
    const int64_t matrices = PerMicroBatch(joined, [](const auto& spec) { return spec.beta == 1; });
    EXPECT_GE(matrices, 4);
    EXPECT_EQ(joined.products.size(), plain.products.size());
    EXPECT_LE(joined.launches + (2 * Biases() + matrices) * kSteps * kMicroBatches, plain.launches);
  }
}

TEST_F(EmulatedEpiloguesTest, GeluAndItsGradientGoWithTheirProducts) {
  model_ = GeluModel();
  const EpilogueOutcome cpu = Train(nullptr, /*fuses=*/false);
  EmulatedDevice plain_device({.seed = 1});
  const EpilogueOutcome plain = Train(&plain_device, /*fuses=*/false);
  EmulatedDevice device({.seed = 2});
  const EpilogueOutcome joined = Train(&device, /*fuses=*/true);
  EXPECT_LE(LargestRelativeGap(joined.losses, cpu.losses), 1e-5);
  EXPECT_EQ(PerMicroBatch(joined, HasBias), 3);
  EXPECT_EQ(PerMicroBatch(joined, HasSums), 3);
  EXPECT_EQ(PerMicroBatch(joined,
                          [](const auto& spec) {
                            return spec.epilogue == cuda::ProductEpilogue::kTanhGelu &&
                                   spec.has_aux && spec.has_bias;
                          }),
            2);
  EXPECT_EQ(PerMicroBatch(joined,
                          [](const auto& spec) {
                            return spec.epilogue == cuda::ProductEpilogue::kTanhGeluGrad;
                          }),
            2);
  // 3 Adds, 2 Gelus, 2 of its gradients, 3 sums.
  EXPECT_LE(joined.launches + 10 * kSteps * kMicroBatches, plain.launches);
}

// Rounded once instead of at each step: nearer to float32, and other bits.
TEST_F(EmulatedEpiloguesTest, Bfloat16StaysNearTheCpu) {
  model_ = GeluModel();
  const EpilogueOutcome cpu = Train(nullptr, /*fuses=*/false, Precision::kBfloat16);
  EmulatedDevice device({.seed = 1});
  const EpilogueOutcome joined = Train(&device, /*fuses=*/true, Precision::kBfloat16);
  EXPECT_EQ(PerMicroBatch(joined, HasBias), 3);
  EXPECT_LE(LargestRelativeGap(joined.losses, cpu.losses), 3e-2);
}

TEST_F(EmulatedEpiloguesTest, WhatTheLibraryRefusesRunsAsBefore) {
  model_ = GeluModel();
  const EpilogueOutcome cpu = Train(nullptr, /*fuses=*/false);
  RecordingBlasLt::Get().RefuseEpilogues(true);
  EmulatedDevice device({.seed = 1});
  const EpilogueOutcome joined = Train(&device, /*fuses=*/true);
  RecordingBlasLt::Get().RefuseEpilogues(false);
  EXPECT_LE(LargestRelativeGap(joined.losses, cpu.losses), 1e-5);
  EXPECT_EQ(PerMicroBatch(joined, HasBias), 3) << "without Gelu";
}

TEST_F(EmulatedEpiloguesTest, StrictStepsJoinNothing) {
  model_ = GeluModel();
  EmulatedDevice device({.seed = 1});
  const EpilogueOutcome strict =
      Train(&device, /*fuses=*/true, Precision::kFloat32, /*strict=*/true);
  EXPECT_EQ(PerMicroBatch(strict, HasBias), 0);
  EXPECT_EQ(PerMicroBatch(strict, HasSums), 0);
}

}  // namespace
}  // namespace weft::testing
