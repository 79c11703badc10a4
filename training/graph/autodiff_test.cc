// Gradients of small graphs, in float64 with the reference kernels, against central differences.
#include "training/graph/autodiff.h"

#include <cmath>
#include <cstdint>
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

namespace weft {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// An op that nobody told how to differentiate.
WEFT_REGISTER_OP(
    OpSchema::Weft("AutodiffTestOp").Input("x").Output("y").Infer([](InferenceContext& context) {
      context.SetOutput(0, context.InputType(0));
      return absl::OkStatus();
    }));

class AutodiffTest : public ::testing::Test {
 protected:
  // A float64 input with a random value.
  ValueId Input(const std::string& name, const Shape& shape, uint64_t seed) {
    const ValueId value = graph_.AddInput(name, {ValueKind::kTensor, DType::kFloat64, shape});
    feeds_[value] = testing::RandomTensor(shape, seed, -1, 1, DType::kFloat64);
    return value;
  }

  ValueId Sum(ValueId x) { return builder_.Op("ReduceSum", {x}, {{"keepdims", int64_t{0}}}); }

  // The gradients of `loss` [] with respect to `wanted`.
  std::map<ValueId, ValueId> Differentiate(ValueId loss, const std::vector<ValueId>& wanted) {
    EXPECT_TRUE(builder_.status().ok()) << builder_.status();
    const ValueId one = builder_.Scalar(DType::kFloat64, 1);
    auto gradients = AddGradients(graph_, {{loss, one}}, wanted);
    EXPECT_TRUE(gradients.ok()) << gradients.status();
    return gradients.ok() ? *gradients : std::map<ValueId, ValueId>();
  }

  std::vector<double> Values(ValueId value) {
    const auto tensors =
        testing::EvaluateGraph(graph_, feeds_, {value}, KernelRegistry::Reference());
    EXPECT_TRUE(tensors.ok()) << tensors.status();
    if (!tensors.ok()) return {};
    const std::span<const double> data = tensors->front().data<double>();
    return {data.begin(), data.end()};
  }

  // (f(x + h) - f(x - h)) / 2h for each element of `wanted`.
  std::vector<double> Numeric(ValueId loss, ValueId wanted) {
    constexpr double kStep = 1e-5;
    const Tensor point = feeds_[wanted];
    std::vector<double> gradient;
    for (int64_t i = 0; i < point.num_elements(); ++i) {
      double values[2];
      for (const int side : {0, 1}) {
        Tensor moved = *point.Clone();
        moved.mutable_data<double>()[i] += side == 0 ? -kStep : kStep;
        feeds_[wanted] = moved;
        values[side] = Values(loss)[0];
      }
      gradient.push_back((values[1] - values[0]) / (2 * kStep));
    }
    feeds_[wanted] = point;
    return gradient;
  }

  void ExpectGradientsAreNumeric(ValueId loss, const std::vector<ValueId>& wanted) {
    const auto gradients = Differentiate(loss, wanted);
    for (ValueId value : wanted) {
      SCOPED_TRACE(graph_.value(value).name);
      ASSERT_TRUE(gradients.contains(value));
      const std::vector<double> symbolic = Values(gradients.at(value));
      const std::vector<double> numeric = Numeric(loss, value);
      ASSERT_EQ(symbolic.size(), numeric.size());
      for (size_t i = 0; i < numeric.size(); ++i) {
        EXPECT_NEAR(symbolic[i], numeric[i], 1e-8 * std::max(1.0, std::abs(numeric[i]))) << i;
      }
    }
  }

  Graph graph_;
  GraphBuilder builder_{graph_};
  std::map<ValueId, Tensor> feeds_;
};

TEST_F(AutodiffTest, ALayeredGraph) {
  const ValueId x = Input("x", {4, 3}, 1);
  const ValueId w1 = Input("w1", {3, 5}, 2);
  const ValueId b1 = Input("b1", {5}, 3);
  const ValueId w2 = Input("w2", {5, 2}, 4);
  const ValueId hidden =
      builder_.Op("Tanh", {builder_.Op("Add", {builder_.Op("MatMul", {x, w1}), b1})});
  const ValueId y = builder_.Op("MatMul", {hidden, w2});
  ExpectGradientsAreNumeric(Sum(builder_.Op("Mul", {y, y})), {x, w1, b1, w2});
}

TEST_F(AutodiffTest, EveryUseOfAValueCounts) {
  const ValueId w = Input("w", {3}, 1);
  const ValueId square = builder_.Op("Mul", {w, w});
  const ValueId loss =
      Sum(builder_.Op("Add", {builder_.Op("Add", {square, w}), builder_.Op("Tanh", {w})}));
  ExpectGradientsAreNumeric(loss, {w});
}

TEST_F(AutodiffTest, ABranchThatJoinsAgain) {
  const ValueId w = Input("w", {2, 3}, 5);
  const ValueId hidden = builder_.Op("Tanh", {w});
  const ValueId left = builder_.Op("Exp", {hidden});
  const ValueId right = builder_.Op("Reshape", {hidden, builder_.Ints({3, 2})});
  const ValueId joined = builder_.Op("MatMul", {left, right});
  ExpectGradientsAreNumeric(Sum(builder_.Op("Mul", {joined, joined})), {w});
}

// LayerNormalization's rule asks for two outputs that the model did not want.
TEST_F(AutodiffTest, ARuleMayAskForMoreOutputsOfTheForwardNode) {
  const ValueId x = Input("x", {3, 4}, 6);
  const ValueId scale = Input("scale", {4}, 7);
  const ValueId y = builder_.Op("LayerNormalization", {x, scale}, {{"axis", int64_t{-1}}});
  const NodeId node = graph_.value(y).producer;
  ASSERT_EQ(graph_.node(node).outputs.size(), 1u);
  const ValueId weights = Input("weights", {3, 4}, 8);
  ExpectGradientsAreNumeric(Sum(builder_.Op("Mul", {y, weights})), {x, scale});
  EXPECT_EQ(graph_.node(node).outputs.size(), 3u);
}

TEST_F(AutodiffTest, SeveralSeedsAddUp) {
  const ValueId w = Input("w", {2}, 1);
  const ValueId a = Sum(w);
  const ValueId b = Sum(builder_.Op("Mul", {w, w}));
  const ValueId one = builder_.Scalar(DType::kFloat64, 1);
  const ValueId two = builder_.Scalar(DType::kFloat64, 2);
  const auto gradients = AddGradients(graph_, {{a, one}, {b, two}}, {w});
  ASSERT_TRUE(gradients.ok()) << gradients.status();
  const std::vector<double> at = Values(w);
  const std::vector<double> gradient = Values(gradients->at(w));
  EXPECT_DOUBLE_EQ(gradient[0], 1 + 4 * at[0]);
  EXPECT_DOUBLE_EQ(gradient[1], 1 + 4 * at[1]);
}

TEST_F(AutodiffTest, OpsWithoutAGradientEndTheWalk) {
  const ValueId w = Input("w", {3}, 1);
  const ValueId count = builder_.Op("Cast", {builder_.Op("Shape", {w})},
                                    {{"to", static_cast<int64_t>(DType::kFloat64)}});
  const ValueId loss = Sum(builder_.Op("Mul", {w, count}));
  const auto gradients = Differentiate(loss, {w});
  ASSERT_TRUE(gradients.contains(w));
  EXPECT_THAT(Values(gradients.at(w)), ::testing::Each(3.0));
}

TEST_F(AutodiffTest, AValueThatTheLossDoesNotDependOnHasNoEntry) {
  const ValueId w = Input("w", {3}, 1);
  const ValueId other = Input("other", {3}, 2);
  builder_.Op("Tanh", {other});
  const auto gradients = Differentiate(Sum(w), {w, other});
  EXPECT_TRUE(gradients.contains(w));
  EXPECT_FALSE(gradients.contains(other));
}

TEST_F(AutodiffTest, NothingIsAddedForWhatIsNotWanted) {
  const ValueId frozen = Input("frozen", {3, 3}, 1);
  const ValueId w = Input("w", {3, 3}, 2);
  const ValueId before = builder_.Op("Tanh", {builder_.Op("MatMul", {frozen, frozen})});
  const ValueId loss = Sum(builder_.Op("MatMul", {before, w}));
  Differentiate(loss, {w});
  for (NodeId id : graph_.node_ids()) {
    EXPECT_NE(graph_.node(id).origin.forward_node, graph_.node(graph_.value(before).producer).name);
  }
}

TEST_F(AutodiffTest, AMissingRulePrintsThePathFromParameterToLoss) {
  const ValueId w = Input("w", {3}, 1);
  const ValueId hidden = builder_.Op("Tanh", {w});
  const ValueId odd = builder_.WeftOp("AutodiffTestOp", {hidden});
  const ValueId loss = Sum(odd);
  const auto gradients = AddGradients(graph_, {{loss, builder_.Scalar(DType::kFloat64, 1)}}, {w});
  EXPECT_EQ(gradients.status().code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(gradients.status().message()),
              AllOf(HasSubstr("node 'AutodiffTestOp' (AutodiffTestOp) has no gradient rule"),
                    HasSubstr("'w' -> Tanh (Tanh) -> AutodiffTestOp (AutodiffTestOp) -> loss"),
                    HasSubstr("--freeze")));
}

TEST_F(AutodiffTest, ARuleThatNeedsARankNamesTheValueWithoutOne) {
  const ValueType unranked = {ValueKind::kTensor, DType::kFloat64, SymbolicShape()};
  const ValueId x = graph_.AddInput("x", unranked);
  const ValueId w = Input("w", {3}, 2);
  const ValueId y = builder_.Op("RMSNormalization", {x, w});
  ASSERT_TRUE(builder_.status().ok()) << builder_.status();
  const auto gradients = AddGradients(graph_, {{y, graph_.AddInput("dy", unranked)}}, {w});
  EXPECT_EQ(gradients.status().code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(gradients.status().message()),
              AllOf(HasSubstr("node 'RMSNormalization'"),
                    HasSubstr("the gradient of RMSNormalization needs the rank of 'x'")));
}

TEST_F(AutodiffTest, AMissingRuleBesideThePathDoesNotMatter) {
  const ValueId data = Input("data", {3}, 1);
  const ValueId w = Input("w", {3}, 2);
  const ValueId odd = builder_.WeftOp("AutodiffTestOp", {data});
  const ValueId loss = Sum(builder_.Op("Mul", {odd, w}));
  EXPECT_TRUE(Differentiate(loss, {w}).contains(w));
}

TEST_F(AutodiffTest, WhatIsAddedIsBackwardNamesItsOriginAndVerifies) {
  const ValueId x = Input("x", {4, 3}, 1);
  const ValueId w = Input("w", {3, 2}, 2);
  const ValueId y = builder_.Op("Tanh", {builder_.Op("MatMul", {x, w})});
  const ValueId loss = Sum(builder_.Op("Mul", {y, y}));
  const int forward = graph_.node_capacity();
  const auto gradients = Differentiate(loss, {w});
  graph_.AddOutput(gradients.at(w));
  for (NodeId id : graph_.node_ids()) {
    const Node& node = graph_.node(id);
    if (id.value < forward) {
      EXPECT_EQ(node.phase, Phase::kForward) << node.name;
    } else {
      EXPECT_EQ(node.phase, Phase::kBackward) << node.name;
      EXPECT_TRUE(graph_.FindNode(node.origin.forward_node).has_value()) << node.name;
    }
  }
  const absl::Status verified = VerifyGraph(graph_);
  EXPECT_TRUE(verified.ok()) << verified;
}

}  // namespace
}  // namespace weft
