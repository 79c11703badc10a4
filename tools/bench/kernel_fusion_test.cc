#include "tools/bench/kernel_fusion.h"

#include "graph/graph_builder.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

class KernelFusionTest : public ::testing::Test {
 protected:
  ValueId Input(const std::string& name, const Shape& shape) {
    return graph_.AddInput(name, {ValueKind::kTensor, DType::kFloat32, shape});
  }
  FusedNode Of(ValueId result) {
    EXPECT_TRUE(builder_.status().ok()) << builder_.status();
    const auto fused = FuseNodes(graph_, graph_.BuildUses());
    EXPECT_TRUE(fused.ok()) << fused.status();
    return (*fused)[graph_.value(result).producer.value];
  }

  Graph graph_;
  GraphBuilder builder_{graph_};
};

TEST_F(KernelFusionTest, AChainAfterAProductIsOneKernel) {
  const ValueId product = builder_.Op("MatMul", {Input("a", {64, 512}), Input("b", {512, 64})});
  const ValueId scaled = builder_.Op("Mul", {product, builder_.Float(0.5F)});
  const ValueId weights = builder_.Op("Softmax", {scaled});
  graph_.AddOutput(weights);
  EXPECT_EQ(Of(product), FusedNode());
  EXPECT_EQ(Of(scaled), (FusedNode{.unwritten = 1}));  // the product is read from memory
  EXPECT_EQ(Of(weights), (FusedNode{.unread = 1, .joins = true}));
}

TEST_F(KernelFusionTest, WhatTwoNodesReadIsInMemory) {
  const ValueId made = builder_.Op("Tanh", {Input("a", {64, 64})});
  const ValueId one = builder_.Op("Neg", {made});
  const ValueId other = builder_.Op("Abs", {made});
  graph_.AddOutput(builder_.Op("Add", {one, other}));
  EXPECT_EQ(Of(made), FusedNode());
  EXPECT_EQ(Of(one).unread, 0u);
  EXPECT_EQ(Of(graph_.outputs()[0]).unread, 3u);
}

TEST_F(KernelFusionTest, WhatTheBackwardPassReadsIsWrittenAllTheSame) {
  const ValueId made = builder_.Op("Tanh", {Input("a", {64, 64})});
  const ValueId next = builder_.Op("Neg", {made});
  builder_.set_phase(Phase::kBackward);
  const ValueId gradient = builder_.Op("Mul", {made, Input("g", {64, 64})});
  graph_.AddOutput(next);
  graph_.AddOutput(gradient);
  EXPECT_EQ(Of(made).unwritten, 0u);
  EXPECT_EQ(Of(next).unread, 1u);
  EXPECT_EQ(Of(gradient), FusedNode());  // its kernel runs at another time
}

TEST_F(KernelFusionTest, ATransposeIsFreeForProductsAlone) {
  const ValueId b = Input("b", {512, 64});
  const ValueId turned = builder_.Op("Transpose", {b}, {{"perm", std::vector<int64_t>{1, 0}}});
  const ValueId shown = builder_.Op("Transpose", {b}, {{"perm", std::vector<int64_t>{1, 0}}});
  graph_.AddOutput(builder_.Op("MatMul", {turned, Input("a", {512, 64})}));
  graph_.AddOutput(builder_.Op("MatMul", {shown, Input("c", {512, 64})}));
  graph_.AddOutput(builder_.Op("Tanh", {shown}));
  EXPECT_TRUE(Of(turned).is_free);
  EXPECT_FALSE(Of(shown).is_free);
}

TEST_F(KernelFusionTest, ACopyOfAParameterIsMadeOncePerStep) {
  const ValueId weight =
      graph_.AddVariable("w", {ValueKind::kTensor, DType::kFloat32, Shape{64, 64}}, Tensor(), true);
  const Attributes half = {{"to", static_cast<int64_t>(DType::kFloat16)}};
  const ValueId of_weight = builder_.Op("Cast", {weight}, half);
  const ValueId of_input = builder_.Op("Cast", {Input("x", {64, 64})}, half);
  graph_.AddOutput(builder_.Op("MatMul", {of_input, of_weight}));
  EXPECT_TRUE(Of(of_weight).is_once);
  EXPECT_FALSE(Of(of_input).is_once);
}

}  // namespace
}  // namespace weft
