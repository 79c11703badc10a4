// Adapters over weights in few bits, against the same adapters over what these dequantize to.
#include "training/adapters/quantized_bases.h"

#include <cmath>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "graph/graph_builder.h"
#include "graph/verifier.h"
#include "gtest/gtest.h"
#include "ops/testing/graph_evaluator.h"
#include "ops/testing/test_tensors.h"
#include "training/adapters/dequantization_order.h"
#include "training/graph/training_graph.h"

namespace weft {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

constexpr int kLayers = 3;

// Gemm(flatten(Conv(image, kernel)) MatMul w0 Relu MatMul w1 Relu ..., head^T) + bias.
class QuantizedBasesTest : public ::testing::Test {
 protected:
  QuantizedBasesTest() : builder_(graph_) {
    const ValueId image = graph_.AddInput(
        "image", {ValueKind::kTensor, DType::kFloat32, SymbolicShape({Dim::Symbol("N"), 2, 5, 5})});
    builder_.set_name_prefix("stem/");
    const ValueId features = builder_.Op("Conv", {image, Weight("kernel", {3, 2, 2, 2})});
    ValueId hidden = builder_.Op("Reshape", {features, builder_.Ints({-1, 48})});
    for (int i = 0; i < kLayers; ++i) {
      builder_.set_name_prefix("block" + std::to_string(i) + "/");
      const int64_t width = i == 0 ? 48 : 70;
      const ValueId w = Weight("w" + std::to_string(i), {width, 70});
      hidden = builder_.Op("Relu", {builder_.Op("MatMul", {hidden, w})});
    }
    builder_.set_name_prefix("head/");
    const ValueId scores = builder_.Op(
        "Gemm", {hidden, Weight("head", {5, 70}), Weight("bias", {5})}, {{"transB", int64_t{1}}});
    builder_.Name(scores, "scores");
    graph_.AddOutput(scores);
    EXPECT_TRUE(builder_.status().ok()) << builder_.status();
  }

  ValueId Weight(const std::string& name, Shape shape) {
    return graph_.AddVariable(name, {ValueKind::kTensor, DType::kFloat32, shape},
                              testing::RandomTensor(shape, ++weights_, -0.3, 0.3), true);
  }

  // Values of `wanted` on a batch of three, with random values in place of missing ones.
  static std::vector<Tensor> Values(const Graph& graph, const std::vector<ValueId>& wanted) {
    std::map<ValueId, Tensor> feeds;
    for (const ValueId input : graph.inputs()) {
      const std::string& name = graph.value(input).name;
      if (name == "image") feeds[input] = testing::RandomTensor({3, 2, 5, 5}, 77, -1, 1);
      if (name == kLabelsInput) feeds[input] = Tensor::Of<int64_t>({3}, {0, 4, 1});
    }
    uint64_t seed = 100;
    for (const Variable& variable : graph.variables()) {
      const Shape shape = *graph.value(variable.value).type.shape.ToConcrete();
      const bool is_half = variable.name.find("/lora_") != std::string::npos;
      if (is_half) feeds[variable.value] = testing::RandomTensor(shape, ++seed, -0.1, 0.1);
    }
    const auto values = testing::EvaluateGraph(graph, feeds, wanted);
    EXPECT_TRUE(values.ok()) << values.status();
    return values.ok() ? *values : std::vector<Tensor>(wanted.size());
  }

  // What a micro-batch gives to the step, by the node that takes it.
  static std::map<std::string, Tensor> AccumulatedValues(const Graph& step) {
    std::vector<std::string> names;
    std::vector<ValueId> wanted;
    for (const NodeId id : step.node_ids()) {
      if (step.node(id).op != "Accumulate") continue;
      names.push_back(step.node(id).name);
      wanted.push_back(step.node(id).inputs.front());
    }
    const std::vector<Tensor> tensors = Values(step, wanted);
    std::map<std::string, Tensor> values;
    for (size_t i = 0; i < names.size(); ++i) values[names[i]] = tensors[i];
    return values;
  }

  // The model with what its weights dequantize to.
  Graph Dequantized(const BaseQuantization& spec) const {
    Graph graph = graph_.Clone();
    for (Variable& variable : graph.mutable_variables()) {
      if (variable.name == "bias") continue;
      const bool is_transposed = variable.name == "kernel" || variable.name == "head";
      const auto q = QuantizeWeight(variable.initial, spec, is_transposed ? 0 : 1);
      EXPECT_TRUE(q.ok()) << q.status();
      variable.initial = *DequantizeWeight(*q);
    }
    return graph;
  }

  static int64_t BytesOfVariables(const Graph& graph) {
    int64_t bytes = 0;
    for (const Variable& variable : graph.variables()) {
      const ValueType& type = graph.value(variable.value).type;
      bytes += DTypeBytes(type.dtype, type.shape.ToConcrete()->num_elements());
    }
    return bytes;
  }

  Graph graph_;
  GraphBuilder builder_;
  uint64_t weights_ = 0;
};

TEST_F(QuantizedBasesTest, ForwardAndGradientsAreThoseOverTheDequantizedWeights) {
  for (const BaseQuantization& spec :
       {BaseQuantization{DType::kInt8, 64}, BaseQuantization{DType::kInt4, 32}}) {
    Graph quantized = graph_.Clone(), whole = Dequantized(spec);
    auto adapters = AddAdapters(quantized, {.rank = 2, .alpha = 6}, 1);
    ASSERT_TRUE(adapters.ok()) << adapters.status();
    ASSERT_EQ(adapters->size(), static_cast<size_t>(kLayers + 2));
    ASSERT_TRUE(QuantizeBases(quantized, spec, *adapters).ok());
    ASSERT_TRUE(VerifyGraph(quantized).ok()) << VerifyGraph(quantized);
    ASSERT_TRUE(AddAdapters(whole, {.rank = 2, .alpha = 6}, 1).ok());
    EXPECT_TRUE(BitwiseEqual(Values(quantized, quantized.outputs()).front(),
                             Values(whole, whole.outputs()).front()));

    const auto a = BuildTrainingGraph(quantized, {}), b = BuildTrainingGraph(whole, {});
    ASSERT_TRUE(a.ok()) << a.status();
    ASSERT_TRUE(b.ok()) << b.status();
    const auto left = AccumulatedValues(*a), right = AccumulatedValues(*b);
    // Loss, weight, and a gradient for each factor.
    ASSERT_EQ(left.size(), 2 + 2 * adapters->size());
    ASSERT_EQ(left.size(), right.size());
    for (const auto& [name, value] : left) {
      ASSERT_TRUE(right.contains(name)) << name;
      EXPECT_TRUE(BitwiseEqual(value, right.at(name))) << name;
    }
  }
}

TEST_F(QuantizedBasesTest, OnlyAdaptersTrainAndWeightsTakeAFractionOfTheBytes) {
  const int64_t before = BytesOfVariables(graph_);
  for (const auto& [spec, bits] : {std::pair(BaseQuantization{DType::kInt8, 64}, 8),
                                   std::pair(BaseQuantization{DType::kInt4, 64}, 4)}) {
    Graph graph = graph_.Clone();
    auto adapters = AddAdapters(graph, {.rank = 1, .match = {"w1"}}, 1);
    ASSERT_TRUE(QuantizeBases(graph, spec, *adapters).ok());
    std::vector<std::string> trainable, names;
    for (const Variable& variable : graph.variables()) {
      names.push_back(variable.name);
      if (variable.trainable) trainable.push_back(variable.name);
    }
    EXPECT_THAT(trainable, UnorderedElementsAre("w1/lora_A", "w1/lora_B"));
    EXPECT_THAT(names,
                AllOf(Contains("w1/codes"), Contains("w1/scales"), ::testing::Not(Contains("w1"))));
    const int64_t scales = bits == 8 ? 70 : 2 * 70;
    const int64_t adapter_bytes = 4 * 2 * 70;
    EXPECT_EQ(before - BytesOfVariables(graph),
              4 * 70 * 70 - (70 * 70 * bits / 8 + 4 * scales) - adapter_bytes);
  }
}

TEST_F(QuantizedBasesTest, AWeightBecomesFloatBeforeItsReaderAndAgainInTheBackwardPass) {
  auto adapters = AddAdapters(graph_, {.rank = 2}, 1);
  ASSERT_TRUE(QuantizeBases(graph_, {}, *adapters).ok());
  const auto step = BuildTrainingGraph(graph_, {});
  ASSERT_TRUE(step.ok()) << step.status();
  const std::vector<NodeId> order = *step->TopologicalOrder();
  const auto uses = step->BuildUses();
  int forward = 0, backward = 0;
  for (size_t i = 0; i < order.size(); ++i) {
    const Node& node = step->node(order[i]);
    if (node.op != "DequantizeLinear") continue;
    (node.phase == Phase::kForward ? forward : backward) += 1;
    const auto& readers = uses[node.outputs.front().value];
    ASSERT_EQ(readers.size(), 1u) << node.name;
    const Node& reader = step->node(readers.front().node);
    EXPECT_EQ(reader.phase, node.phase);
    EXPECT_EQ(order[i + 1], reader.id) << node.name << " and " << step->node(order[i + 1]).name;
  }
  EXPECT_EQ(forward, kLayers + 2);
  // The image has no gradient, so the kernel is not read again.
  EXPECT_EQ(backward, kLayers + 1);
}

TEST_F(QuantizedBasesTest, MergedIsTheDequantizedWeightAndTheProduct) {
  const BaseQuantization spec{DType::kInt4, 16};
  const Graph whole = Dequantized(spec);
  auto adapters = AddAdapters(graph_, {.rank = 1, .alpha = 2, .match = {"w0"}}, 1);
  ASSERT_TRUE(QuantizeBases(graph_, spec, *adapters).ok());
  const Tensor a = testing::RandomTensor({48, 1}, 5), b = testing::RandomTensor({1, 70}, 6);
  const auto merged = MergeAdapters(graph_, *adapters, {{"w0/lora_A", a}, {"w0/lora_B", b}});
  ASSERT_TRUE(merged.ok()) << merged.status();
  ASSERT_EQ(merged->size(), 1u);
  const Tensor& w = merged->at("w0");
  const Tensor& base = whole.FindVariable("w0")->initial;
  for (int64_t i = 0; i < 48 * 70; ++i) {
    const double product = 2.0 * a.data<float>()[i / 70] * b.data<float>()[i % 70];
    EXPECT_NEAR(w.data<float>()[i], base.data<float>()[i] + product, 1e-6);
  }
}

TEST_F(QuantizedBasesTest, WhatCannotBeQuantizedIsNamed) {
  graph_.mutable_variables()[1].initial = *Tensor::Zeros(DType::kFloat32, {48, 70});
  graph_.mutable_variables()[1].initial.mutable_data<float>()[7] = std::nanf("");
  auto adapters = AddAdapters(graph_, {}, 1);
  const absl::Status status = QuantizeBases(graph_, {}, *adapters);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("--qlora: the weight 'w0' cannot be quantized: its element 7 is nan"));
}

}  // namespace
}  // namespace weft
