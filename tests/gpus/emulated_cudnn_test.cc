// Training with --cudnn on, on an emulated GPU and a cuDNN that computes from definitions: what
// should go through the library does, and the losses are those of the CPU without it.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "graph/graph_builder.h"
#include "gtest/gtest.h"
#include "ops/kernels/cuda/dnn/testing/recording_dnn.h"
#include "ops/testing/emulator/emulated_device.h"
#include "ops/testing/test_tensors.h"
#include "tensor/device.h"
#include "tests/testing/equivalence_models.h"
#include "tests/testing/training_run.h"
#include "tools/models/gpt_model.h"
#include "training/graph/precision.h"
#include "training/graph/training_spec.h"

namespace weft::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr int64_t kSamples = 6;  // the emulator is slow
constexpr int64_t kSteps = 4;
constexpr int64_t kMicroBatches = 2;
constexpr int64_t kBlocks = 2;
constexpr int64_t kHeads = 2;
constexpr int64_t kHeadSize = 8;  // what cuDNN's attention takes
constexpr int64_t kTokens = 5;
constexpr int64_t kVocabulary = 11;

// Attention as exporters write it: two products, a mask and a softmax.
EquivalenceModel Gpt() {
  EquivalenceModel model;
  model.name = "gpt_for_cudnn";
  auto graph = GptLanguageModel(
      {.blocks = kBlocks, .width = kHeads * kHeadSize, .heads = kHeads, .tokens = kTokens},
      {.vocabulary = kVocabulary});
  EXPECT_TRUE(graph.ok()) << graph.status();
  if (graph.ok()) model.graph = *std::move(graph);
  const auto tokens = [](uint64_t seed) {
    return RandomTensor({kSamples, kTokens}, seed, 0, kVocabulary, DType::kInt64);
  };
  model.data["tokens"] = tokens(1);
  model.data["labels"] = tokens(2);
  return model;
}

// Two convolutions whose windows have the same padding on both sides.
EquivalenceModel ConvolutionNet() {
  EquivalenceModel model;
  model.name = "net_for_cudnn";
  Graph& graph = model.graph;
  GraphBuilder b(graph);
  const auto weight = [&graph](const std::string& name, const Shape& shape, uint64_t seed) {
    return graph.AddVariable(name, {ValueKind::kTensor, DType::kFloat32, shape},
                             RandomTensor(shape, seed, -0.5, 0.5), true);
  };
  const auto ints = [](int64_t a, int64_t c) { return std::vector<int64_t>{a, c}; };
  const ValueId x =
      graph.AddInput("x", {ValueKind::kTensor, DType::kFloat32,
                           SymbolicShape({Dim::Symbol("N"), Dim(2), Dim(7), Dim(7)})});
  ValueId h = b.Op("Conv", {x, weight("w1", {3, 2, 3, 3}, 1), weight("b1", {3}, 2)},
                   {{"kernel_shape", ints(3, 3)}, {"pads", std::vector<int64_t>{1, 1, 1, 1}}});
  h = b.Op("Conv", {b.Op("Relu", {h}), weight("w2", {4, 3, 3, 3}, 3), weight("b2", {4}, 4)},
           {{"kernel_shape", ints(3, 3)}, {"strides", ints(2, 2)}});
  h = b.Op("Flatten", {b.Op("Relu", {h})});
  h = b.Op("Gemm", {h, weight("w3", {36, 5}, 5), weight("b3", {5}, 6)});
  graph.AddOutput(h);
  EXPECT_TRUE(b.status().ok()) << b.status();
  model.data["x"] = RandomTensor({kSamples, 2, 7, 7}, 7);
  model.data["labels"] = RandomTensor({kSamples}, 8, 0, 5, DType::kInt64);
  return model;
}

// As `train --precision P --cudnn on|off` says it.
TrainingRun RunOf(const EquivalenceModel& model, Precision precision, bool uses_cudnn) {
  TrainingRun run;
  run.data = WriteDataFiles(model, ::testing::TempDir());
  run.optimizer.kind = "adamw";
  run.batch = kSamples;
  run.steps = kSteps;
  run.plan.micro_batches = kMicroBatches;
  run.plan.uses_cudnn = uses_cudnn;
  run.change = [precision, uses_cudnn](TrainingSpec& spec) {
    spec.precision = precision;
    spec.joins_attention = uses_cudnn;
    spec.loss_scale.initial = 256;
  };
  return run;
}

std::vector<double> LossesOf(const EquivalenceModel& model, const TrainingRun& run) {
  const auto trained = RunGraph(model.graph, run);
  EXPECT_TRUE(trained.ok()) << trained.status();
  return trained.ok() ? trained->losses : std::vector<double>();
}

// What went through the library.
struct DnnCalls {
  std::vector<RecordingDnn::Call> convolutions;
  std::vector<RecordingDnn::AttentionCall> attentions;
  std::vector<RecordingDnn::AttentionGradientCall> attention_gradients;
  std::vector<RecordingDnn::NormalizationCall> normalizations;
};
DnnCalls TakeAllCalls() {
  RecordingDnn& library = RecordingDnn::Get();
  return {library.TakeCalls(), library.TakeAttentions(), library.TakeAttentionGradients(),
          library.TakeNormalizations()};
}

// Launches whose body has `part` in its name.
int64_t LaunchesOf(const EmulatedDevice& device, const std::string& part) {
  const std::vector<EmulatedLaunchRecord> launches = device.launches();
  return std::count_if(launches.begin(), launches.end(), [&part](const auto& launch) {
    return launch.body.find(part) != std::string::npos;
  });
}

class EmulatedCudnnTest : public ::testing::Test {
 protected:
  void SetUp() override { TakeAllCalls(); }
  void TearDown() override { RecordingDnn::Get().Refuse({}); }
};

TEST_F(EmulatedCudnnTest, AttentionOfAGptAndItsGradientGoThroughItInSixteenBits) {
  const EquivalenceModel model = Gpt();
  for (const auto& [precision, dtype, tolerance] :
       {std::tuple(Precision::kBfloat16, DType::kBfloat16, 3e-2),
        std::tuple(Precision::kFloat16, DType::kFloat16, 5e-3)}) {
    SCOPED_TRACE(PrecisionName(precision));
    const std::vector<double> expected = LossesOf(model, RunOf(model, precision, false));
    ASSERT_EQ(expected.size(), static_cast<size_t>(kSteps));
    for (const uint64_t seed : {1, 2}) {
      SCOPED_TRACE(absl::StrCat("seed ", seed));
      EmulatedDevice device({.seed = seed});
      TrainingRun run = RunOf(model, precision, true);
      run.devices = {&device};
      EXPECT_LE(LargestRelativeGap(LossesOf(model, run), expected), tolerance);
      EXPECT_TRUE(device.Verify().ok()) << device.Verify();

      const DnnCalls calls = TakeAllCalls();
      // Each block's, once in each micro-batch of each step: nothing is computed again. Runs of a
      // recording are launches, and no calls.
      constexpr int64_t kTimes = kSteps * kMicroBatches * kBlocks;
      EXPECT_EQ(LaunchesOf(device, "RecordedAttentionBody"), kTimes);
      EXPECT_EQ(LaunchesOf(device, "RecordedGradientBody"), kTimes);
      EXPECT_FALSE(calls.attentions.empty());
      EXPECT_EQ(calls.attention_gradients.size(), calls.attentions.size());
      for (const auto& call : calls.attentions) {
        EXPECT_EQ(call.spec.dtype, dtype);
        EXPECT_TRUE(call.spec.causal) << call.spec.ToString();
        EXPECT_EQ(call.spec.query.dims, (std::vector<int64_t>{3, kHeads, kTokens, kHeadSize}));
        EXPECT_NE(call.operands.log_sums, nullptr);
      }
      for (const auto& call : calls.attention_gradients) EXPECT_TRUE(call.spec.causal);
      EXPECT_EQ(LaunchesOf(device, "Softmax"), 0) << "some attention is ours";
      std::set<bool> gradients;
      for (const auto& call : calls.normalizations) gradients.insert(call.spec.is_gradient);
      EXPECT_THAT(gradients, ElementsAre(false, true)) << "LayerNormalization";
    }
  }
}

TEST_F(EmulatedCudnnTest, AttentionStaysApartInFloat32) {
  const EquivalenceModel model = Gpt();
  EmulatedDevice device({.seed = 3});
  TrainingRun run = RunOf(model, Precision::kFloat32, true);
  run.devices = {&device};
  const std::vector<double> expected = LossesOf(model, RunOf(model, Precision::kFloat32, false));
  EXPECT_LE(LargestRelativeGap(LossesOf(model, run), expected), 1e-5);
  EXPECT_TRUE(device.Verify().ok()) << device.Verify();
  const DnnCalls calls = TakeAllCalls();
  EXPECT_THAT(calls.attentions, IsEmpty());
  EXPECT_THAT(calls.attention_gradients, IsEmpty());
  EXPECT_GT(LaunchesOf(device, "Softmax"), 0);
}

TEST_F(EmulatedCudnnTest, WhatItHasNoPlanForOurKernelsTrain) {
  RecordingDnn::Get().Refuse({.all = true});
  const EquivalenceModel model = Gpt();
  EmulatedDevice device({.seed = 4});
  TrainingRun run = RunOf(model, Precision::kBfloat16, true);
  run.devices = {&device};
  const std::vector<double> expected = LossesOf(model, RunOf(model, Precision::kBfloat16, false));
  EXPECT_LE(LargestRelativeGap(LossesOf(model, run), expected), 3e-2);
  EXPECT_TRUE(device.Verify().ok()) << device.Verify();
  EXPECT_THAT(TakeAllCalls().attentions, IsEmpty());
}

// A card beside the CPU: both compute the same nodes, one of them through the library.
TEST_F(EmulatedCudnnTest, ACpuBesideTheCardComputesAttentionItself) {
  const EquivalenceModel model = Gpt();
  EmulatedDevice device({.seed = 5, .checks_copies_to_host = false});
  TrainingRun run = RunOf(model, Precision::kBfloat16, true);
  run.workers = 2;
  run.devices = {&device, &CpuDevice()};
  run.stall_timeout_seconds = 20;
  const std::vector<double> expected = LossesOf(model, RunOf(model, Precision::kBfloat16, false));
  EXPECT_LE(LargestRelativeGap(LossesOf(model, run), expected), 3e-2);
  EXPECT_TRUE(device.Verify().ok()) << device.Verify();
  // Of one of the two micro-batches.
  EXPECT_EQ(LaunchesOf(device, "RecordedGradientBody"), kSteps * kBlocks);
}

TEST_F(EmulatedCudnnTest, ConvolutionsAndTheirGradientsGoThroughIt) {
  const EquivalenceModel model = ConvolutionNet();
  const std::vector<double> expected = LossesOf(model, RunOf(model, Precision::kFloat32, false));
  ASSERT_EQ(expected.size(), static_cast<size_t>(kSteps));
  for (const uint64_t seed : {1, 2}) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    EmulatedDevice device({.seed = seed});
    TrainingRun run = RunOf(model, Precision::kFloat32, true);
    run.devices = {&device};
    EXPECT_LE(LargestRelativeGap(LossesOf(model, run), expected), 1e-5);
    EXPECT_TRUE(device.Verify().ok()) << device.Verify();
    std::map<cuda::ConvolutionResult, int64_t> computed;
    for (const auto& call : TakeAllCalls().convolutions) ++computed[call.spec.result];
    // Nobody wants the gradient of the images.
    const int64_t gradients = computed[cuda::ConvolutionResult::kLargeImage];
    EXPECT_GT(gradients, 0);
    EXPECT_EQ(computed[cuda::ConvolutionResult::kSmallImage], 2 * gradients);
    EXPECT_EQ(computed[cuda::ConvolutionResult::kWeights], 2 * gradients);
    EXPECT_EQ(LaunchesOf(device, "::ConvolutionBody<"), kSteps * kMicroBatches * 5);
  }
}

}  // namespace
}  // namespace weft::testing
