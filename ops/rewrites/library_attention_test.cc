// Attention of training steps that a library computes: without a mask, or with one that says what
// is_causal says. All else keeps its products.
#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "graph/graph_builder.h"
#include "gtest/gtest.h"
#include "ops/rewrites/rewrites.h"
#include "ops/testing/graph_evaluator.h"
#include "ops/testing/op_tester.h"
#include "ops/testing/test_tensors.h"

namespace weft {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::Pair;

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

// `hidden` for the keys behind a query.
Tensor MaskOf(int64_t queries, int64_t keys, float hidden) {
  std::vector<float> mask;
  for (int64_t i = 0; i < queries * keys; ++i) mask.push_back(i % keys > i / keys ? hidden : 0);
  return Tensor::Of<float>({1, 1, queries, keys}, mask);
}

class LibraryAttentionTest : public ::testing::Test {
 protected:
  struct Sizes {
    int64_t queries = 5, keys = 5, size = 8;
    DType dtype = DType::kFloat32;
  };

  ValueId Input(const std::string& name, const Shape& shape, DType dtype = DType::kFloat32) {
    return graph_.AddInput(name, {ValueKind::kTensor, dtype, shape});
  }

  // As exporters write it. `mask`: kNoValue is none.
  void Build(const Sizes& s, ValueId mask) {
    GraphBuilder b(graph_);
    const ValueId q = Input("q", {2, 3, s.queries, s.size}, s.dtype);
    const ValueId k = Input("k", {2, s.keys, 3, s.size}, s.dtype);
    const ValueId v = Input("v", {2, 3, s.keys, 8}, s.dtype);
    const ValueId keys = b.Op("Transpose", {k}, {{"perm", std::vector<int64_t>{0, 2, 3, 1}}});
    ValueId scores = b.Op("Mul", {b.Op("MatMul", {q, keys}), b.Scalar(s.dtype, 0.4)});
    if (mask.valid()) scores = b.Op("Add", {scores, mask});
    graph_.AddOutput(b.Op("MatMul", {b.Op("Softmax", {scores}), v}));
    ASSERT_TRUE(b.status().ok()) << b.status();
  }
  ValueId Constant(const Tensor& value) { return graph_.AddConstant("mask", value); }

  RewriteCounts Rewritten(RewriteUse use = RewriteUse::kTrainingWithAttention) {
    auto counts = RewritePatterns(graph_, use);
    EXPECT_TRUE(counts.ok()) << counts.status();
    return counts.ok() ? *counts : RewriteCounts();
  }

  // Rewrites, and holds the result against that of before. The node.
  const Node* Changed() {
    std::map<ValueId, Tensor> feeds;
    for (const ValueId input : graph_.inputs()) {
      feeds[input] = testing::RandomTensor(*graph_.value(input).type.shape.ToConcrete(),
                                           static_cast<uint64_t>(input.value));
    }
    const auto before = testing::EvaluateGraph(graph_, feeds, graph_.outputs());
    EXPECT_TRUE(before.ok()) << before.status();
    EXPECT_THAT(Rewritten(), ElementsAre(Pair("attention", 1)));
    const auto after = testing::EvaluateGraph(graph_, feeds, graph_.outputs());
    EXPECT_TRUE(after.ok()) << after.status();
    if (!before.ok() || !after.ok()) return nullptr;
    EXPECT_TRUE(testing::TensorsNear(after->front(), before->front()));
    const Node& node = graph_.node(graph_.value(graph_.outputs()[0]).producer);
    EXPECT_EQ(node.op, "Attention");
    EXPECT_EQ(node.inputs.size(), 3u) << "a mask is left";
    return &node;
  }

  Graph graph_;
};

TEST_F(LibraryAttentionTest, AMaskOfLaterKeysBecomesAnAttribute) {
  for (const float hidden : {-1e4f, -1e9f, kMinusInfinity}) {
    graph_ = Graph();
    Build({}, Constant(MaskOf(5, 5, hidden)));
    const Node* const node = Changed();
    ASSERT_NE(node, nullptr);
    EXPECT_EQ(node->attributes.Int("is_causal", 0), 1) << hidden;
    EXPECT_FLOAT_EQ(node->attributes.Float("scale", 0), 0.4f);
  }
}

TEST_F(LibraryAttentionTest, AMaskThatNothingTrainsIsKnownToo) {
  const Tensor mask = MaskOf(5, 5, -1e4f);
  const ValueType type = {ValueKind::kTensor, DType::kFloat32, mask.shape()};
  Build({}, graph_.AddVariable("mask", type, mask, /*trainable=*/false));
  ASSERT_NE(Changed(), nullptr);
}

TEST_F(LibraryAttentionTest, NoMaskIsNotCausal) {
  Build({.queries = 4, .keys = 7}, kNoValue);
  const Node* const node = Changed();
  ASSERT_NE(node, nullptr);
  EXPECT_EQ(node->attributes.Int("is_causal", 0), 0);
}

TEST_F(LibraryAttentionTest, OtherMasksKeepTheirProducts) {
  Tensor window = MaskOf(5, 5, kMinusInfinity);
  window.mutable_data<float>()[20] = kMinusInfinity;  // the last query, the first key
  Tensor bias = MaskOf(5, 5, kMinusInfinity);
  bias.mutable_data<float>()[0] = 0.5f;
  for (const Tensor& mask : {window, bias, MaskOf(5, 5, -30.0f), MaskOf(5, 5, 0)}) {
    graph_ = Graph();
    Build({}, Constant(mask));
    EXPECT_THAT(Rewritten(), IsEmpty());
  }
  graph_ = Graph();
  Build({}, Input("mask", {5, 5}));
  EXPECT_THAT(Rewritten(), IsEmpty());
  graph_ = Graph();
  const Tensor trained = MaskOf(5, 5, -1e4f);
  Build({}, graph_.AddVariable("mask", {ValueKind::kTensor, DType::kFloat32, trained.shape()},
                               trained, /*trainable=*/true));
  EXPECT_THAT(Rewritten(), IsEmpty());
}

// is_causal counts from the first key: with fewer queries than keys a mask may mean another thing.
TEST_F(LibraryAttentionTest, AMaskThatIsNotSquareKeepsItsProducts) {
  Build({.queries = 4, .keys = 5}, Constant(MaskOf(4, 5, -1e4f)));
  EXPECT_THAT(Rewritten(), IsEmpty());
}

TEST_F(LibraryAttentionTest, WhatNoLibraryTakesKeepsItsProducts) {
  Build({.size = 12}, kNoValue);
  EXPECT_THAT(Rewritten(), IsEmpty());
  graph_ = Graph();
  Build({.dtype = DType::kFloat64}, kNoValue);
  EXPECT_THAT(Rewritten(), IsEmpty());
}

TEST_F(LibraryAttentionTest, IsForThisUseAlone) {
  Build({}, Constant(MaskOf(5, 5, -1e4f)));
  EXPECT_THAT(Rewritten(RewriteUse::kTraining), IsEmpty());
  EXPECT_THAT(RewriteNames(RewriteUse::kTraining), Not(Contains("attention")));
  EXPECT_THAT(RewriteNames(RewriteUse::kTrainingWithAttention), Contains("attention"));
}

}  // namespace
}  // namespace weft
