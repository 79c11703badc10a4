// Steps on emulated GPUs in which an operator has no kernel for CUDA, so that it runs on the host,
// and steps over quantized weights: with the losses of the CPU, or refused.
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "graph/graph_builder.h"
#include "gtest/gtest.h"
#include "onnx_import/graph_wire.h"
#include "onnx_import/importer.h"
#include "ops/testing/emulator/emulated_device.h"
#include "ops/testing/test_tensors.h"
#include "tests/testing/equivalence_models.h"
#include "tests/testing/training_run.h"
#include "training/adapters/quantized_bases.h"
#include "training/job/job_spec.h"
#include "training/quantization/quantization.h"

namespace weft::testing {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int64_t kSamples = 6;  // the emulator is slow
constexpr int64_t kSteps = 3;
constexpr char kNormalizer[] = "ai.onnx.ml::Normalizer";  // no kernel for CUDA

// Two products with the rows between them normalized: the wider x, the smaller the latter's share.
EquivalenceModel NormalizedRows(int64_t width) {
  EquivalenceModel model;
  model.name = "normalized";
  Graph& graph = model.graph;
  GraphBuilder b(graph);
  const auto weight = [&graph](const std::string& name, const Shape& shape, uint64_t seed) {
    return graph.AddVariable(name, {ValueKind::kTensor, DType::kFloat32, shape},
                             RandomTensor(shape, seed), true);
  };
  const ValueId x = graph.AddInput(
      "x", {ValueKind::kTensor, DType::kFloat32, SymbolicShape({Dim::Symbol("N"), Dim(width)})});
  const ValueId hidden = b.Op("MatMul", {x, weight("w1", {width, 5}, 1)});
  const ValueId rows = b.Ops("ai.onnx.ml", "Normalizer", {hidden}, {{"norm", "L2"}}, {true})[0];
  b.Name(rows, "rows");
  const ValueId y = b.Op("MatMul", {rows, weight("w2", {5, 3}, 2)});
  b.Name(y, "y");
  graph.AddOutput(y);
  EXPECT_TRUE(b.status().ok()) << b.status();
  model.data["x"] = RandomTensor({kSamples, width}, 3);
  model.data["labels"] = Tensor::Of<int64_t>({kSamples}, std::vector<int64_t>{0, 1, 2, 2, 1, 0});
  return model;
}

TrainingRun RunOver(const EquivalenceModel& model) {
  TrainingRun run;
  run.data = WriteDataFiles(model, ::testing::TempDir());
  run.optimizer.kind = "adamw";
  run.batch = kSamples;
  run.steps = kSteps;
  run.plan.micro_batches = 2;
  return run;
}

class EmulatedFallbackTest : public ::testing::Test {
 protected:
  // The run on one emulated GPU, which the cluster says.
  absl::StatusOr<TrainingOutcome> OnGpu(const EquivalenceModel& model, CpuFallback fallback,
                                        uint64_t seed = 1) {
    EmulatedDevice device({.seed = seed});
    TrainingRun run = RunOver(model);
    run.devices = {&device};
    run.cluster_has_devices = true;
    run.cpu_fallback = fallback;
    auto outcome = RunGraph(model.graph, run);
    EXPECT_TRUE(device.Verify().ok()) << device.Verify();
    return outcome;
  }
  static std::vector<double> CpuLosses(const EquivalenceModel& model) {
    const auto outcome = RunGraph(model.graph, RunOver(model));
    EXPECT_TRUE(outcome.ok()) << outcome.status();
    return outcome.ok() ? outcome->losses : std::vector<double>();
  }
};

TEST_F(EmulatedFallbackTest, WhatIsAllowedTrainsToTheLossesOfTheCpu) {
  const EquivalenceModel model = NormalizedRows(7);
  const std::vector<double> expected = CpuLosses(model);
  ASSERT_EQ(expected.size(), static_cast<size_t>(kSteps));
  for (const uint64_t seed : {1, 2, 3}) {
    const auto trained = OnGpu(model, CpuFallback::kAllow, seed);
    ASSERT_TRUE(trained.ok()) << trained.status();
    EXPECT_LE(LargestRelativeGap(trained->losses, expected), 1e-5) << seed;
    EXPECT_THAT(trained->plan.host_ops, ElementsAre(kNormalizer));
    // Two micro-batches of [3,5] floats, there and back.
    EXPECT_THAT(trained->notes,
                Contains(AllOf(HasSubstr("1 node runs on the CPU of a GPU's worker"),
                               HasSubstr("240 B copied per step in 2 runs"))));
  }
}

TEST_F(EmulatedFallbackTest, MoreThanOnePercentIsRefusedUnlessItIsAllowed) {
  const absl::Status status = OnGpu(NormalizedRows(7), CpuFallback::kSmallShare).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("no kernel for CUDA computes ai.onnx.ml::Normalizer (node '"),
                    HasSubstr("% of the step's FLOPs are more than the 1 % that may run on the "
                              "CPU of a GPU's worker without a word; give --cpu-fallback allow, "
                              "which copies their operands to the host and back, or give the job "
                              "to CPU workers")));
}

TEST_F(EmulatedFallbackTest, LessRunsAndIsSaid) {
  const EquivalenceModel model = NormalizedRows(307);
  const auto trained = OnGpu(model, CpuFallback::kSmallShare);
  ASSERT_TRUE(trained.ok()) << trained.status();
  EXPECT_LE(LargestRelativeGap(trained->losses, CpuLosses(model)), 1e-5);
  EXPECT_THAT(trained->notes,
              Contains(AllOf(HasSubstr("run on the CPU of a GPU's worker, with copies: "),
                             HasSubstr(kNormalizer))));
}

TEST_F(EmulatedFallbackTest, WhatIsRefusedIsRefusedHoweverLittleItIs) {
  const absl::Status status = OnGpu(NormalizedRows(307), CpuFallback::kRefuse).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(
      std::string(status.message()),
      AllOf(HasSubstr("no kernel for CUDA computes ai.onnx.ml::Normalizer (node '"),
            HasSubstr("--cpu-fallback refuse lets nothing run on the CPU of a GPU's worker; "
                      "give --cpu-fallback allow, which copies their operands to the host "
                      "and back, or give the job to CPU workers")));
}

// An evaluation has a graph of its own, and shares of its own.
TEST_F(EmulatedFallbackTest, EvaluationsSettleItToo) {
  const EquivalenceModel model = NormalizedRows(7);
  const auto expected = EvaluateGraph(model.graph, RunOver(model), {"loss"});
  ASSERT_TRUE(expected.ok()) << expected.status();
  EmulatedDevice device({.seed = 1});
  TrainingRun run = RunOver(model);
  run.devices = {&device};
  run.cluster_has_devices = true;
  EXPECT_EQ(EvaluateGraph(model.graph, run, {"loss"}).status().code(),
            absl::StatusCode::kUnimplemented);
  run.cpu_fallback = CpuFallback::kAllow;
  const auto evaluated = EvaluateGraph(model.graph, run, {"loss"});
  ASSERT_TRUE(evaluated.ok()) << evaluated.status();
  EXPECT_THAT(evaluated->plan.host_ops, ElementsAre(kNormalizer));
  EXPECT_NEAR(evaluated->metrics.at("loss"), expected->metrics.at("loss"),
              1e-5 * expected->metrics.at("loss"));
  EXPECT_TRUE(device.Verify().ok()) << device.Verify();
}

// ---- Quantized weights

// Adapters over weights of few bits: DequantizeLinear and all else runs on the GPU.
TEST_F(EmulatedFallbackTest, AdaptersOverQuantizedWeightsHaveTheLossesOfTheCpu) {
  auto model = BuildEquivalenceModel("mlp", kSamples);
  ASSERT_TRUE(model.ok()) << model.status();
  for (const BaseQuantization& spec :
       {BaseQuantization{DType::kInt8, 64}, BaseQuantization{DType::kInt4, 5}}) {
    EquivalenceModel quantized = {model->name, model->graph.Clone(), model->data};
    auto adapters = AddAdapters(quantized.graph, LoraSpec{.rank = 3, .alpha = 12}, 1);
    ASSERT_TRUE(adapters.ok()) << adapters.status();
    const absl::Status status = QuantizeBases(quantized.graph, spec, *adapters);
    ASSERT_TRUE(status.ok()) << status;
    const auto trained = OnGpu(quantized, CpuFallback::kRefuse);
    ASSERT_TRUE(trained.ok()) << trained.status();
    EXPECT_THAT(trained->plan.host_ops, IsEmpty());
    EXPECT_LE(LargestRelativeGap(trained->losses, CpuLosses(quantized)), 1e-5);
  }
}

// The graph as a file, imported, with the same parameters.
absl::StatusOr<ImportedModel> ImportedCopy(const Graph& graph) {
  auto bytes = GraphToOnnx(graph, {.annotations = false, .opset = 21});
  if (!bytes.ok()) return bytes.status();
  auto file = ModelFile::Parse(*std::move(bytes), "test.onnx");
  if (!file.ok()) return file.status();
  auto model = ImportModel(*file);
  if (!model.ok()) return model;
  for (Variable& variable : model->graph.mutable_variables()) {
    const Variable* const original = graph.FindVariable(variable.name);
    variable.trainable = original != nullptr && original->trainable;
  }
  return model;
}

// Fake quantization and its ranges. A number that rounds to the other side of a step moves by a
// whole step, so the gap may be larger than of floats.
TEST_F(EmulatedFallbackTest, QuantizationAwareStepsHaveTheLossesOfTheCpu) {
  auto model = BuildEquivalenceModel("mlp", kSamples);
  ASSERT_TRUE(model.ok()) << model.status();
  for (const QuantizationKind kind :
       {QuantizationKind::kInt8, QuantizationKind::kInt4, QuantizationKind::kFp8}) {
    auto imported = ImportedCopy(model->graph);
    ASSERT_TRUE(imported.ok()) << imported.status();
    QuantizationSpec spec;
    spec.kind = kind;
    spec.block = 4;
    const auto quantization = AddQuantization(*imported, spec);
    ASSERT_TRUE(quantization.ok()) << quantization.status();
    const EquivalenceModel quantized = {model->name, std::move(imported->graph), model->data};
    const auto trained = OnGpu(quantized, CpuFallback::kRefuse);
    ASSERT_TRUE(trained.ok()) << trained.status();
    EXPECT_LE(LargestRelativeGap(trained->losses, CpuLosses(quantized)), 2e-3);
  }
}

}  // namespace
}  // namespace weft::testing
