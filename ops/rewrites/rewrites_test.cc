// When a rewrite is made, when it is not, and what the new operator is called. Values and gradients
// are compared in training/graph/rewritten_gradients_test.cc.
#include "ops/rewrites/rewrites.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <numbers>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "graph/graph_builder.h"
#include "graph/node_bodies.h"
#include "graph/verifier.h"
#include "gtest/gtest.h"
#include "ops/rewrites/pattern.h"
#include "ops/testing/graph_evaluator.h"
#include "ops/testing/op_tester.h"
#include "ops/testing/test_tensors.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;
using weft::testing::Cast;
using weft::testing::EvaluateGraph;
using weft::testing::RandomTensor;
using weft::testing::TensorsNear;

class RewritesTest : public ::testing::Test {
 protected:
  ValueId Input(const std::string& name, std::vector<Dim> dims, DType dtype = DType::kFloat32) {
    return graph_.AddInput(name, {ValueKind::kTensor, dtype, SymbolicShape(std::move(dims))});
  }
  ValueId Parameter(const std::string& name, Shape shape, bool trains = true) {
    const Tensor initial = RandomTensor(shape, name.size(), 0.5, 1.5);
    return graph_.AddVariable(name, {ValueKind::kTensor, DType::kFloat32, shape}, initial, trains);
  }
  ValueId Op(const std::string& op, std::vector<ValueId> inputs, Attributes attributes = {}) {
    return builder_.Op(op, std::move(inputs), std::move(attributes));
  }
  ValueId Number(float number) { return builder_.Float(number); }
  ValueId Position(int64_t i) { return builder_.Constant(Tensor::Scalar<int64_t>(i)); }
  void Finish(ValueId y) {
    ASSERT_TRUE(builder_.status().ok()) << builder_.status();
    builder_.Name(y, "y");
    graph_.AddOutput(y);
  }

  RewriteCounts Rewritten(RewriteUse use = RewriteUse::kTraining) {
    const auto counts = RewritePatterns(graph_, use);
    EXPECT_TRUE(counts.ok()) << counts.status();
    EXPECT_TRUE(VerifyGraph(graph_).ok()) << VerifyGraph(graph_);
    return counts.ok() ? *counts : RewriteCounts();
  }
  std::vector<std::string> Ops() const {
    std::vector<std::string> ops;
    for (const NodeId id : graph_.node_ids()) ops.push_back(graph_.node(id).op);
    return ops;
  }

  // x sigmoid(x), and the sigmoid.
  ValueId Silu(ValueId x) {
    sigmoid_ = Op("Sigmoid", {x});
    return Op("Mul", {x, sigmoid_});
  }
  ValueId Centred(ValueId x) { return Op("Sub", {x, Op("ReduceMean", {x, builder_.Ints({-1})})}); }
  ValueId Normalized(ValueId centred, Attributes of_mean = {}) {
    const ValueId square = Op("Pow", {centred, Number(2)});
    const ValueId variance = Op("ReduceMean", {square, builder_.Ints({-1})}, of_mean);
    return Op("Div", {centred, Op("Sqrt", {Op("Add", {variance, Number(1e-5f)})})});
  }

  Graph graph_;
  GraphBuilder builder_{graph_};
  ValueId sigmoid_ = kNoValue;
};

TEST_F(RewritesTest, TheLastNodeBecomesTheOperatorAndKeepsItsName) {
  const ValueId x = Input("x", {Dim::Symbol("N"), 4});
  const ValueId y = Silu(x);
  Node& last = graph_.node(graph_.value(y).producer);
  const std::string name = last.name;
  last.origin.forward_node = "act";
  Finish(y);
  EXPECT_THAT(Rewritten(), ElementsAre(Pair("swish", 1)));
  EXPECT_THAT(Ops(), ElementsAre("Swish"));
  const auto found = graph_.FindNode(name);
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(graph_.node(*found).origin.forward_node, "act");
  EXPECT_THAT(graph_.node(*found).inputs, ElementsAre(x));
  EXPECT_EQ(graph_.value(graph_.outputs()[0]).name, "y");
}

TEST_F(RewritesTest, WhatAnotherNodeReadsStays) {
  const ValueId x = Input("x", {Dim::Symbol("N"), 4});
  const ValueId y = Silu(x);
  Finish(Op("Add", {y, Op("Tanh", {sigmoid_})}));
  EXPECT_THAT(Rewritten(), IsEmpty());
  EXPECT_THAT(Ops(), ElementsAre("Sigmoid", "Mul", "Tanh", "Add"));
}

// Llama of transformers casts to float32 within its normalization, whatever the type is.
TEST_F(RewritesTest, ACastToTheSameTypeIsNone) {
  const ValueId x = Input("x", {Dim::Symbol("N"), 4});
  const ValueId mean = Op("ReduceMean", {Op("Pow", {x, Number(2)}), builder_.Ints({-1})});
  const ValueId normal = Op("Div", {x, Op("Sqrt", {Op("Add", {mean, Number(1e-6f)})})});
  const ValueId cast = Op("Cast", {normal}, {{"to", static_cast<int64_t>(DType::kFloat32)}});
  Finish(Op("Mul", {Parameter("weight", {4}), cast}));
  EXPECT_THAT(Rewritten(), ElementsAre(Pair("needless_cast", 1), Pair("rms_normalization", 1)));
  EXPECT_THAT(Ops(), ElementsAre("RMSNormalization"));
}

TEST_F(RewritesTest, ACastToAnotherTypeStays) {
  const ValueId x = Input("x", {Dim::Symbol("N"), 4});
  Finish(Op("Neg", {Op("Cast", {x}, {{"to", static_cast<int64_t>(DType::kFloat64)}})}));
  EXPECT_THAT(Rewritten(), IsEmpty());
}

TEST_F(RewritesTest, AnOutputOfTheGraphStays) {
  Finish(Silu(Input("x", {Dim::Symbol("N"), 4})));
  graph_.AddOutput(sigmoid_);
  EXPECT_THAT(Rewritten(), IsEmpty());
}

TEST_F(RewritesTest, AVariablesUpdateStays) {
  const ValueId x = Input("x", {4});
  Parameter("state", {4}, /*trains=*/false);
  Finish(Silu(x));
  graph_.SetVariableUpdate("state", sigmoid_);
  EXPECT_THAT(Rewritten(), IsEmpty());
}

TEST_F(RewritesTest, EveryPlaceIsRewritten) {
  ValueId x = Input("x", {Dim::Symbol("N"), 4});
  for (int i = 0; i < 3; ++i) x = Silu(x);
  Finish(x);
  EXPECT_THAT(Rewritten(), ElementsAre(Pair("swish", 3)));
  EXPECT_THAT(Ops(), ElementsAre("Swish", "Swish", "Swish"));
}

// What broadcasts over rows in the sum would not be taken as a bias.
TEST_F(RewritesTest, AScaleOfAnotherShapeStaysBehindTheNormalization) {
  const ValueId x = Input("x", {Dim::Symbol("N"), 3, 4});
  const ValueId normal = Normalized(Centred(x));
  Finish(Op("Mul", {normal, Parameter("gate", {3, 1})}));
  EXPECT_THAT(Rewritten(), ElementsAre(Pair("layer_normalization", 1)));
  EXPECT_THAT(Ops(), ElementsAre("LayerNormalization", "Mul"));
}

TEST_F(RewritesTest, AMeanOverOtherAxesIsNoLayerNormalization) {
  const ValueId x = Input("x", {Dim::Symbol("N"), 3, 4});
  const ValueId centred = Op("Sub", {x, Op("ReduceMean", {x, builder_.Ints({1})})});
  const ValueId square = Op("Mul", {centred, centred});
  const ValueId variance = Op("ReduceMean", {square, builder_.Ints({1})});
  Finish(Op("Div", {centred, Op("Sqrt", {Op("Add", {variance, Number(1e-5f)})})}));
  EXPECT_THAT(Rewritten(), IsEmpty());
}

TEST_F(RewritesTest, HalfPrecisionKeepsItsOperators) {
  const ValueId x = Input("x", {Dim::Symbol("N"), 4}, DType::kFloat16);
  const auto number = [&](double value) { return builder_.Scalar(DType::kFloat16, value); };
  const ValueId mean = Op("ReduceMean", {Op("Mul", {x, x}), builder_.Ints({-1})});
  Finish(Op("Div", {x, Op("Sqrt", {Op("Add", {mean, number(1e-3)})})}));
  EXPECT_THAT(Rewritten(), IsEmpty());
}

// Each would round once, where the file's operators round after each step: the last bits differed.
TEST_F(RewritesTest, ActivationsInHalfPrecisionKeepTheirOperators) {
  for (const DType dtype : {DType::kFloat16, DType::kBfloat16, DType::kFloat32}) {
    graph_ = Graph();
    const auto number = [&](double value) { return builder_.Scalar(dtype, value); };
    const ValueId x = Input("x", {Dim::Symbol("N"), 4}, dtype);
    const ValueId erf = Op("Erf", {Op("Div", {x, number(std::numbers::sqrt2)})});
    const ValueId gelu = Op("Mul", {Op("Mul", {x, Op("Add", {erf, number(1)})}), number(0.5)});
    const ValueId mish = Op("Mul", {gelu, Op("Tanh", {Op("Softplus", {gelu})})});
    const Attributes hard = {{"alpha", 1.0f / 6}, {"beta", 0.5f}};
    Finish(Silu(Op("Mul", {mish, Op("HardSigmoid", {mish}, hard)})));
    const std::vector<std::string> before = Ops();
    if (dtype == DType::kFloat32) {
      Rewritten();
      EXPECT_THAT(Ops(), ElementsAre("Gelu", "Mish", "HardSwish", "Swish"));
    } else {
      EXPECT_THAT(Rewritten(), IsEmpty());
      EXPECT_EQ(Ops(), before);
    }
  }
}

TEST_F(RewritesTest, GroupsInHalfPrecisionKeepTheirOperators) {
  const auto same = [&](float number) {
    return builder_.Constant(Cast(Tensor::Of<float>({2}, {number, number}), DType::kFloat16));
  };
  const ValueId x = Input("x", {Dim::Symbol("N"), 4, 5}, DType::kFloat16);
  const ValueId rows = Op("Reshape", {x, builder_.Ints({0, 2, -1})});
  const ValueId normal = Op("InstanceNormalization", {rows, same(1), same(0)});
  Finish(Op("Reshape", {normal, Op("Shape", {x})}));
  EXPECT_THAT(Rewritten(), IsEmpty());
}

// Scales of the inner normalization that train are none that every group has alike.
TEST_F(RewritesTest, AGroupNormalizationWhoseInnerScalesTrainStays) {
  const ValueId x = Input("x", {Dim::Symbol("N"), 4, 5});
  const ValueId rows = Op("Reshape", {x, builder_.Ints({0, 2, -1})});
  const ValueId normal =
      Op("InstanceNormalization", {rows, Parameter("ones", {2}), Parameter("zeros", {2})});
  Finish(Op("Reshape", {normal, Op("Shape", {x})}));
  EXPECT_THAT(Rewritten(), IsEmpty());
}

TEST_F(RewritesTest, FrozenOnesAndZerosAreNumbers) {
  const ValueId x = Input("x", {Dim::Symbol("N"), 4, 5});
  const ValueType vector = {ValueKind::kTensor, DType::kFloat32, Shape{2}};
  const ValueId ones = graph_.AddVariable("ones", vector, Tensor::Of<float>({2}, {1, 1}), false);
  const ValueId zeros = graph_.AddVariable("zeros", vector, Tensor::Of<float>({2}, {0, 0}), false);
  const ValueId rows = Op("Reshape", {x, builder_.Ints({0, 2, -1})});
  const ValueId normal = Op("InstanceNormalization", {rows, ones, zeros});
  Finish(Op("Reshape", {normal, Op("Shape", {x})}));
  EXPECT_THAT(Rewritten(), ElementsAre(Pair("group_normalization", 1)));
}

// ---- Attention.

// How keys are transposed: as heads, from [batch, length, heads, size], or as rows of all heads.
enum class KeyForm : uint8_t { kHeads, kMerged, kRows };

class AttentionRewrites : public RewritesTest {
 protected:
  ValueId TransposedKeys(KeyForm form) {
    const bool merged = form == KeyForm::kMerged;
    const ValueId k =
        Input("k", merged ? std::vector<Dim>{2, 5, 3, 8} : std::vector<Dim>{2, 3, 5, 8});
    if (form != KeyForm::kRows) {
      return Op(
          "Transpose", {k},
          {{"perm", merged ? std::vector<int64_t>{0, 2, 3, 1} : std::vector<int64_t>{0, 1, 3, 2}}});
    }
    const ValueId rows = Op("Reshape", {k, builder_.Ints({-1, 5, 8})});
    const ValueId swapped = Op("Transpose", {rows}, {{"perm", std::vector<int64_t>{0, 2, 1}}});
    return Op("Reshape", {swapped, builder_.Ints({2, 3, 8, 5})});
  }

  // Of q, k, v [2,3,5,8] and a mask [5,5], an input where none is given.
  ValueId Attention(KeyForm form, bool guarded, bool scaled_operands, ValueId mask = kNoValue) {
    const ValueId q = Input("q", {2, 3, 5, 8});
    const ValueId keys = TransposedKeys(form);
    const ValueId v = Input("v", {2, 3, 5, 8});
    ValueId scores;
    if (scaled_operands) {
      scores = Op("MatMul", {Op("Mul", {q, Number(0.6f)}), Op("Mul", {keys, Number(0.6f)})});
    } else {
      scores = Op("Div", {Op("MatMul", {q, keys}), Number(2.5f)});
    }
    if (!mask.valid()) mask = Input("mask", {5, 5});
    scores = Op("Add", {scores, mask});
    ValueId weights = Op("Softmax", {scores}, {{"axis", int64_t{-1}}});
    if (guarded) weights = Op("Where", {Op("IsNaN", {weights}), Number(0), weights});
    return Op("MatMul", {weights, v});
  }

  // Of q [batch,3,5,8], k [batch,5,3,8], v as q and a mask that has 2 samples.
  ValueId AttentionOf(const std::string& name, int64_t batch, ValueId mask) {
    const ValueId q = Input("q of " + name, {batch, 3, 5, 8});
    const ValueId k = Input("k of " + name, {batch, 5, 3, 8});
    const ValueId v = Input("v of " + name, {batch, 3, 5, 8});
    const ValueId keys = Op("Transpose", {k}, {{"perm", std::vector<int64_t>{0, 2, 3, 1}}});
    const ValueId scores = Op("Add", {Op("MatMul", {q, keys}), mask});
    return Op("MatMul", {Op("Softmax", {scores}), v});
  }

  // [5,5]: minus infinity in the row `without_keys`, and for the first key of each other one.
  static Tensor MaskWithout(int without_keys) {
    std::vector<float> mask(25, 0.25f);
    for (int i = 0; i < 25; ++i) {
      const bool is_hidden = i / 5 == without_keys || i % 5 == 0;
      if (is_hidden) mask[static_cast<size_t>(i)] = -std::numeric_limits<float>::infinity();
    }
    return Tensor::Of<float>({5, 5}, mask);
  }

  std::map<ValueId, Tensor> Feeds() const {
    std::map<ValueId, Tensor> feeds;
    for (const ValueId input : graph_.inputs()) {
      const Shape shape = *graph_.value(input).type.shape.ToConcrete();
      feeds[input] = RandomTensor(shape, static_cast<uint64_t>(input.value));
    }
    return feeds;
  }
};

TEST_F(AttentionRewrites, TakeTheFormsOfBothExporters) {
  for (const KeyForm form : {KeyForm::kHeads, KeyForm::kMerged, KeyForm::kRows}) {
    for (const bool guarded : {false, true}) {
      for (const bool scaled : {false, true}) {
        graph_ = Graph();
        Finish(Attention(form, guarded, scaled));
        const auto expected = EvaluateGraph(graph_, Feeds(), graph_.outputs());
        ASSERT_TRUE(expected.ok()) << expected.status();
        EXPECT_THAT(Rewritten(RewriteUse::kForward), ElementsAre(Pair("attention", 1)));
        const auto ops = Ops();
        // Without a guard, three nodes see to rows without any key.
        EXPECT_EQ(ops.size(), (form == KeyForm::kMerged ? 2u : 1u) + (guarded ? 0u : 3u))
            << graph_.DebugString();
        const auto actual = EvaluateGraph(graph_, Feeds(), graph_.outputs());
        ASSERT_TRUE(actual.ok()) << actual.status();
        EXPECT_TRUE(TensorsNear(actual->front(), expected->front()))
            << static_cast<int>(form) << guarded << scaled;
      }
    }
  }
}

// Attention gives zeros for a query without any key. The softmax of such a row is NaN, and a model
// without a guard lost its NaN by being rewritten.
TEST_F(AttentionRewrites, KeepWhatAQueryWithoutKeysGives) {
  for (const bool guarded : {false, true}) {
    graph_ = Graph();
    Finish(Attention(KeyForm::kHeads, guarded, false));
    std::map<ValueId, Tensor> feeds = Feeds();
    feeds[*graph_.FindValue("mask")] = MaskWithout(2);
    const auto before = EvaluateGraph(graph_, feeds, graph_.outputs());
    ASSERT_TRUE(before.ok()) << before.status();
    EXPECT_THAT(Rewritten(RewriteUse::kForward), ElementsAre(Pair("attention", 1)));
    const auto after = EvaluateGraph(graph_, feeds, graph_.outputs());
    ASSERT_TRUE(after.ok()) << after.status();
    ASSERT_EQ(after->front().shape(), (Shape{2, 3, 5, 8}));
    for (int i = 0; i < 2 * 3 * 5 * 8; ++i) {
      const float expected = before->front().data<float>()[i];
      const float actual = after->front().data<float>()[i];
      const bool has_keys = i / 8 % 5 != 2;
      ASSERT_EQ(std::isnan(expected), !has_keys && !guarded) << i;
      ASSERT_EQ(std::isnan(actual), !has_keys && !guarded) << i;
      if (has_keys) {
        ASSERT_NEAR(actual, expected, 1e-5) << i;
      } else if (guarded) {
        ASSERT_EQ(actual, 0) << i;
      }
    }
  }
}

TEST_F(AttentionRewrites, TakeAKnownMaskThatLeavesAKeyToEachQueryAsItIs) {
  Finish(Attention(KeyForm::kHeads, false, false, builder_.Constant(MaskWithout(-1))));
  EXPECT_THAT(Rewritten(RewriteUse::kForward), ElementsAre(Pair("attention", 1)));
  EXPECT_THAT(Ops(), ElementsAre("Attention"));
}

TEST_F(AttentionRewrites, SeeARowOfAKnownMaskWithoutKeys) {
  Finish(Attention(KeyForm::kHeads, false, false, builder_.Constant(MaskWithout(4))));
  EXPECT_THAT(Rewritten(RewriteUse::kForward), ElementsAre(Pair("attention", 1)));
  EXPECT_THAT(Ops(), ::testing::Contains("ReduceMax"));
}

// Products broadcast one sample over the two of a mask, Attention does not. That was found out
// after the keys had been transposed for it: nodes that nobody read stayed in the graph.
TEST_F(AttentionRewrites, GivenUpLeaveNothingBehind) {
  Finish(AttentionOf("one", 1, Input("mask", {2, 1, 5, 5})));
  const std::vector<std::string> ops = Ops();
  const size_t values = graph_.value_ids().size();
  EXPECT_THAT(Rewritten(RewriteUse::kForward), IsEmpty());
  EXPECT_EQ(Ops(), ops);
  EXPECT_EQ(graph_.value_ids().size(), values);
}

// The mask of a place that was given up is gone, and another place with the same mask makes its
// own.
TEST_F(AttentionRewrites, GivenUpLeaveNothingToOthers) {
  const ValueId mask = Input("mask", {2, 1, 5, 5});
  const ValueId one = AttentionOf("one", 1, mask);
  Finish(Op("Sub", {one, AttentionOf("two", 2, mask)}));
  const auto before = EvaluateGraph(graph_, Feeds(), graph_.outputs());
  ASSERT_TRUE(before.ok()) << before.status();
  EXPECT_THAT(Rewritten(RewriteUse::kForward), ElementsAre(Pair("attention", 1)));
  const std::vector<std::string> ops = Ops();
  EXPECT_EQ(std::count(ops.begin(), ops.end(), "ReduceMax"), 1) << graph_.DebugString();
  const auto after = EvaluateGraph(graph_, Feeds(), graph_.outputs());
  ASSERT_TRUE(after.ok()) << after.status();
  EXPECT_TRUE(TensorsNear(after->front(), before->front()));
}

TEST_F(AttentionRewrites, OfTheSameMaskShareIt) {
  const ValueId mask = Input("mask", {2, 1, 5, 5});
  const ValueId one = AttentionOf("one", 2, mask);
  Finish(Op("Sub", {one, AttentionOf("two", 2, mask)}));
  EXPECT_THAT(Rewritten(RewriteUse::kForward), ElementsAre(Pair("attention", 2)));
  const std::vector<std::string> ops = Ops();
  EXPECT_EQ(std::count(ops.begin(), ops.end(), "ReduceMax"), 1) << graph_.DebugString();
}

// A known mask that many places share was read once more for each of them. All masks of a graph are
// looked at up to 2^26 elements: 16 of this size, or one that 17 places share.
TEST_F(AttentionRewrites, LookAtAMaskOnce) {
  constexpr int kPlaces = 17;
  const Tensor zeros =
      Tensor::Of<float>({2048, 2048}, std::vector<float>(size_t{2048} * 2048, 0.0f));
  for (const bool is_shared : {true, false}) {
    graph_ = Graph();
    const ValueId shared = is_shared ? builder_.Constant(zeros) : kNoValue;
    ValueId sum;
    for (int i = 0; i < kPlaces; ++i) {
      const std::string number = std::to_string(i);
      const ValueId keys = Op("Transpose", {Input("k" + number, {1, 1, 2048, 8})},
                              {{"perm", std::vector<int64_t>{0, 1, 3, 2}}});
      const ValueId scores = Op("MatMul", {Input("q" + number, {1, 1, 2048, 8}), keys});
      const ValueId masked = Op("Add", {scores, is_shared ? shared : builder_.Constant(zeros)});
      const ValueId v = Input("v" + number, {1, 1, 2048, 8});
      const ValueId result = Op("MatMul", {Op("Softmax", {masked}), v});
      sum = sum.valid() ? Op("Sub", {sum, result}) : result;
    }
    Finish(sum);
    EXPECT_THAT(Rewritten(RewriteUse::kForward), ElementsAre(Pair("attention", kPlaces)));
    const std::vector<std::string> ops = Ops();
    EXPECT_EQ(std::count(ops.begin(), ops.end(), "ReduceMax"), is_shared ? 0 : 1);
  }
}

TEST_F(AttentionRewrites, AreForForwardPassesAlone) {
  Finish(Attention(KeyForm::kHeads, false, false));
  EXPECT_THAT(Rewritten(RewriteUse::kTraining), IsEmpty());
}

// ---- Sequences.

TEST_F(RewritesTest, APieceAtAPositionIsAnOutputOfASplit) {
  const ValueId x = Input("x", {Dim::Symbol("N"), 7});
  const ValueId pieces = Op("SplitToSequence", {x, Position(3)}, {{"axis", int64_t{1}}});
  Finish(Op("Neg", {Op("SequenceAt", {pieces, Position(-1)})}));
  EXPECT_THAT(Rewritten(), ElementsAre(Pair("sequences", 1)));
  EXPECT_THAT(Ops(), ::testing::UnorderedElementsAre("Split", "Neg"));
  EXPECT_EQ(graph_.value(graph_.outputs()[0]).type.ToString(), "float32[N,1]");
}

TEST_F(RewritesTest, ASequenceThatSomebodyElseReadsStays) {
  const ValueId x = Input("x", {Dim::Symbol("N"), 6});
  const ValueId pieces = Op("SplitToSequence", {x, Position(3)}, {{"axis", int64_t{1}}});
  Finish(Op("SequenceAt", {pieces, Position(0)}));
  graph_.AddOutput(pieces);
  EXPECT_THAT(Rewritten(), ElementsAre(Pair("sequences", 1)));
  EXPECT_THAT(Ops(), ::testing::UnorderedElementsAre("SplitToSequence", "Split", "Identity"));
  EXPECT_EQ(graph_.value(graph_.outputs()[0]).name, "y");
}

TEST_F(RewritesTest, APositionThatDependsOnDataStays) {
  const ValueId x = Input("x", {Dim::Symbol("N"), 6});
  const ValueId at = graph_.AddInput("at", {ValueKind::kTensor, DType::kInt64, Shape{}});
  const ValueId pieces = Op("SplitToSequence", {x, Position(3)}, {{"axis", int64_t{1}}});
  Finish(Op("SequenceAt", {pieces, at}));
  EXPECT_THAT(Rewritten(), IsEmpty());
}

TEST_F(RewritesTest, APositionBeyondTheEndStays) {
  const ValueId x = Input("x", {Dim::Symbol("N"), 6});
  const ValueId pieces = Op("SplitToSequence", {x, Position(3)}, {{"axis", int64_t{1}}});
  Finish(Op("SequenceAt", {pieces, Position(2)}));
  EXPECT_THAT(Rewritten(), IsEmpty());
}

TEST_F(RewritesTest, SizesThatAreNoneStayASequence) {
  const ValueId x = Input("x", {Dim::Symbol("N"), 2});
  const ValueId pieces = Op("SplitToSequence", {x, builder_.Ints({3, -1})});
  Finish(Op("SequenceAt", {pieces, Position(0)}));
  EXPECT_THAT(Rewritten(), IsEmpty());
}

// A small file: each of many nodes would become as many as the sequence has pieces.
TEST_F(RewritesTest, OnlySoManyPiecesAreMade) {
  const ValueId pieces = Op("SplitToSequence", {Input("x", {4096, 2})});
  ValueId sum = kNoValue;
  for (int i = 0; i < 20; ++i) {
    const ValueId stack =
        Op("ConcatFromSequence", {pieces}, {{"axis", int64_t{0}}, {"new_axis", int64_t{1}}});
    sum = sum.valid() ? Op("Add", {sum, stack}) : stack;
  }
  Finish(sum);
  Rewritten();
  const std::vector<std::string> ops = Ops();
  EXPECT_GT(std::count(ops.begin(), ops.end(), "ConcatFromSequence"), 0);
  EXPECT_LT(ops.size(), 200'000u);
}

TEST_F(RewritesTest, AnAxisOfAnyDeclaredSizeGetsNoScale) {
  const ValueId x = Input("x", {Dim::Symbol("N"), int64_t{1} << 40});
  const ValueId centred = Centred(x);
  Finish(Normalized(centred));
  EXPECT_THAT(Rewritten(), IsEmpty());
}

TEST_F(RewritesTest, LengthsAreNumbers) {
  const ValueId x = Input("x", {Dim::Symbol("N"), 7});
  const ValueId pieces = Op("SplitToSequence", {x, Position(3)}, {{"axis", int64_t{1}}});
  const ValueId shorter = Op("SequenceErase", {pieces, Position(0)});
  const ValueId length = Op("SequenceLength", {Op("SequenceInsert", {shorter, x, Position(1)})});
  Finish(Op("Add", {length, Op("SequenceLength", {shorter})}));
  // Both lengths.
  EXPECT_THAT(Rewritten(), ElementsAre(Pair("sequences", 2)));
  const auto sum = EvaluateGraph(graph_, {}, graph_.outputs());
  ASSERT_TRUE(sum.ok()) << sum.status();
  EXPECT_THAT(ToInt64s(sum->front()).value(), ElementsAre(5));
}

// ---- Bags of embeddings, as the TorchScript exporter writes them.

class EmbeddingBags : public RewritesTest {
 protected:
  EmbeddingBags() {
    table_ = Input("table", {5, 3});
    go_ = builder_.Constant(Tensor::Scalar<bool>(true));
    axes_ = Vector({0});
  }

  ValueId Vector(const std::vector<int64_t>& values) { return builder_.Ints(values); }
  ValueId Slice(ValueId value, int64_t first, int64_t last = INT64_MAX, int64_t step = 1) {
    return Op("Slice", {value, Vector({first}), Vector({last}), Vector({0}), Vector({step})});
  }

  // A round for each bag: the rows of indices from starts[round] to ends[round], reduced.
  std::shared_ptr<Graph> Body(const std::string& reduction, ValueId starts, ValueId ends,
                              ValueId indices) {
    auto body = std::make_shared<Graph>();
    const auto input = [&](const char* name, const ValueType& type) {
      return body->AddInput(name, type);
    };
    const auto scalar = [](DType dtype) {
      return ValueType{ValueKind::kTensor, dtype, SymbolicShape(Shape{})};
    };
    GraphBuilder inner(*body);
    const ValueId round = input("round", scalar(DType::kInt64));
    input("go", scalar(DType::kBool));
    const ValueId first = input("starts", graph_.value(starts).type);
    const ValueId last = input("ends", graph_.value(ends).type);
    const ValueId all = input("indices", graph_.value(indices).type);
    const ValueId table = input("table", graph_.value(table_).type);
    const ValueId condition = input("condition", scalar(DType::kBool));
    const ValueId axes = input("axes", graph_.value(axes_).type);
    const auto at = [&](ValueId offsets) {
      const ValueId element = inner.Op("Gather", {offsets, round}, {{"axis", int64_t{0}}});
      return inner.Op("Unsqueeze", {element, inner.Ints({0})});
    };
    const ValueId row = inner.Op("Slice", {all, at(first), at(last), axes});
    const ValueId rows = inner.Op("Gather", {table, row}, {{"axis", int64_t{0}}});
    const ValueId reduced =
        inner.Op(reduction, {rows, inner.Ints({0})}, {{"keepdims", int64_t{0}}});
    body->AddOutput(inner.Op("Cast", {condition}, {{"to", static_cast<int64_t>(DType::kBool)}}));
    body->AddOutput(reduced);
    EXPECT_TRUE(inner.status().ok()) << inner.status();
    return body;
  }

  ValueId Bags(const std::string& reduction, ValueId rounds, ValueId starts, ValueId ends,
               ValueId indices) {
    return Op(
        "Loop", {rounds, go_, starts, ends, indices, table_, go_, axes_},
        {{"body", Body(reduction, starts, ends, indices)},
         {CapturesAttribute("body"),
          std::vector<std::string>{"starts", "ends", "indices", "table", "condition", "axes"}}});
  }

  // Bags of `length` rows each, reduced by hand.
  static std::vector<double> Expected(const std::string& reduction, const Tensor& table,
                                      const std::vector<int64_t>& indices, int64_t length) {
    const std::vector<double> rows = ToDoubles(table).value();
    std::vector<double> bags;
    for (size_t bag = 0; bag < indices.size(); bag += static_cast<size_t>(length)) {
      for (size_t e = 0; e < 3; ++e) {
        double sum = 0;
        double max_value = -1e300;
        for (size_t i = bag; i < bag + static_cast<size_t>(length); ++i) {
          const double value = rows[static_cast<size_t>(indices[i]) * 3 + e];
          sum += value;
          max_value = std::max(max_value, value);
        }
        bags.push_back(reduction == "ReduceMax"    ? max_value
                       : reduction == "ReduceMean" ? sum / static_cast<double>(length)
                                                   : sum);
      }
    }
    return bags;
  }

  // Means of the bags of a table [N, 2] of indices, which is returned. The ends are the offsets
  // from 1 up to `last`.
  ValueId TableOfIndices(int64_t last, int64_t step) {
    const ValueId indices = Input("indices", {Dim::Symbol("N"), 2}, DType::kInt64);
    const ValueId flat = Op("Reshape", {indices, Vector({-1})});
    const ValueId count = Op("ReduceProd", {Op("Shape", {indices})}, {{"keepdims", int64_t{0}}});
    const ValueId range = Op("Range", {Position(0), count, Position(2)});
    const ValueId end =
        Op("Unsqueeze", {Op("Gather", {Op("Shape", {flat}), Position(0)}), Vector({0})});
    const ValueId offsets = Op("Concat", {range, end}, {{"axis", int64_t{0}}});
    const ValueId ends = Slice(offsets, 1, last, step);
    const ValueId rounds = Op("Gather", {Op("Shape", {ends}), Position(0)});
    Finish(Bags("ReduceMean", rounds, offsets, ends, flat));
    return indices;
  }

  ValueId table_ = kNoValue;
  ValueId go_ = kNoValue;
  ValueId axes_ = kNoValue;
};

TEST_F(EmbeddingBags, OfOneLengthAreAGatherAndAReduction) {
  const std::vector<int64_t> indices = {4, 0, 2, 1, 1, 3};
  for (const std::string reduction : {"ReduceSum", "ReduceMean", "ReduceMax"}) {
    graph_ = Graph();
    table_ = Input("table", {5, 3});
    go_ = builder_.Constant(Tensor::Scalar<bool>(true));
    axes_ = Vector({0});
    Finish(Bags(reduction, Position(2), Vector({0, 3, 6}), Vector({3, 6}), Vector(indices)));
    EXPECT_THAT(Rewritten(), ElementsAre(Pair("embedding_bag", 1)));
    EXPECT_THAT(Ops(), ::testing::UnorderedElementsAre("Reshape", "Gather", reduction));
    const Tensor table = RandomTensor({5, 3}, 7);
    const auto y = EvaluateGraph(graph_, {{table_, table}}, graph_.outputs());
    ASSERT_TRUE(y.ok()) << y.status();
    EXPECT_EQ(y->front().shape(), (Shape{2, 3}));
    EXPECT_THAT(
        ToDoubles(y->front()).value(),
        ::testing::Pointwise(::testing::DoubleNear(1e-6), Expected(reduction, table, indices, 3)));
  }
}

// EmbeddingBag of indices [N,2] for any N: offsets are 0, 2, 4, ... below their number.
TEST_F(EmbeddingBags, OfATableOfIndicesAreOfOneLength) {
  const ValueId indices = TableOfIndices(INT64_MAX, 1);
  EXPECT_THAT(Rewritten(), ElementsAre(Pair("embedding_bag", 1)));
  EXPECT_EQ(graph_.value(graph_.outputs()[0]).type.ToString(), "float32[N,3]");
  const Tensor table = RandomTensor({5, 3}, 8);
  const std::vector<int64_t> rows = {1, 4, 0, 0, 3, 2};
  const auto y = EvaluateGraph(
      graph_, {{table_, table}, {indices, Tensor::Of<int64_t>({3, 2}, rows)}}, graph_.outputs());
  ASSERT_TRUE(y.ok()) << y.status();
  EXPECT_THAT(
      ToDoubles(y->front()).value(),
      ::testing::Pointwise(::testing::DoubleNear(1e-6), Expected("ReduceMean", table, rows, 2)));
}

TEST_F(EmbeddingBags, OfSeveralLengthsStayALoop) {
  Finish(Bags("ReduceSum", Position(2), Vector({0, 2, 6}), Vector({2, 6}),
              Vector({4, 0, 2, 1, 1, 3})));
  EXPECT_THAT(Rewritten(), IsEmpty());
}

TEST_F(EmbeddingBags, ThatLeaveIndicesOutStayALoop) {
  Finish(
      Bags("ReduceSum", Position(1), Vector({0, 3}), Vector({3, 6}), Vector({4, 0, 2, 1, 1, 3})));
  EXPECT_THAT(Rewritten(), IsEmpty());
}

// It had a bag for each row of the table then.
TEST_F(EmbeddingBags, WithoutTheLastStayALoop) {
  TableOfIndices(-1, 1);
  EXPECT_THAT(Rewritten(), IsEmpty());
}

TEST_F(EmbeddingBags, EverySecondStayALoop) {
  TableOfIndices(INT64_MAX, 2);
  EXPECT_THAT(Rewritten(), IsEmpty());
}

TEST_F(EmbeddingBags, WithOffsetsWhoseMultiplesOverflowStayALoop) {
  constexpr int64_t kHuge = int64_t{1} << 62;
  Finish(Bags("ReduceSum", Position(2), Vector({0, kHuge}), Vector({kHuge, kHuge}),
              Vector({4, 0, 2, 1, 1, 3})));
  EXPECT_THAT(Rewritten(), IsEmpty());
}

TEST_F(EmbeddingBags, WhoseOffsetsAreDataStayALoop) {
  const ValueId starts = Input("starts", {2}, DType::kInt64);
  const ValueId ends = Input("ends", {2}, DType::kInt64);
  Finish(Bags("ReduceSum", Position(2), starts, ends, Vector({4, 0, 2, 1, 1, 3})));
  EXPECT_THAT(Rewritten(), IsEmpty());
}

// ---- Patterns.

TEST_F(RewritesTest, ANameIsOneValue) {
  const ValueId x = Input("x", {4});
  const ValueId other = Input("other", {4});
  const Pattern same =
      Pattern::Op("Mul", {Pattern::Value("x"), Pattern::Op("Abs", {Pattern::Value("x")})});
  const ValueId yes = Op("Mul", {Op("Abs", {x}), x});
  const ValueId no = Op("Mul", {Op("Abs", {x}), other});
  EXPECT_EQ(same.MatchesAt(graph_, graph_.value(yes).producer).size(), 1u);
  EXPECT_THAT(same.MatchesAt(graph_, graph_.value(no).producer), IsEmpty());
}

TEST_F(RewritesTest, NumbersAreConstantsOfOneValue) {
  const ValueId x = Input("x", {3});
  const Pattern plus_two = Pattern::Op("Add", {Pattern::Value("x"), Pattern::Number(2)});
  const auto matches = [&](ValueId y) {
    return plus_two.MatchesAt(graph_, graph_.value(y).producer).size();
  };
  EXPECT_EQ(matches(Op("Add", {x, Number(2)})), 1u);
  EXPECT_EQ(matches(Op("Add", {builder_.Constant(Tensor::Of<float>({3}, {2, 2, 2})), x})), 1u);
  EXPECT_EQ(matches(Op("Add", {x, builder_.Constant(Tensor::Of<float>({3}, {2, 2, 1}))})), 0u);
  EXPECT_EQ(matches(Op("Add", {x, Number(2.00001f)})), 0u);
  EXPECT_EQ(matches(Op("Add", {x, Parameter("two", {3})})), 0u);
}

TEST_F(RewritesTest, OrderCountsWhereAnOperatorHasOne) {
  const ValueId x = Input("x", {3});
  const Pattern minus_one = Pattern::Op("Sub", {Pattern::Value("x"), Pattern::Number(1)});
  const auto matches = [&](ValueId y) {
    return minus_one.MatchesAt(graph_, graph_.value(y).producer).size();
  };
  EXPECT_EQ(matches(Op("Sub", {x, Number(1)})), 1u);
  EXPECT_EQ(matches(Op("Sub", {Number(1), x})), 0u);
}

TEST(RewriteNamesTest, AreEachThereOnce) {
  EXPECT_THAT(RewriteNames(RewriteUse::kForward),
              ElementsAre("sequences", "needless_cast", "embedding_bag", "layer_normalization",
                          "rms_normalization", "group_normalization", "gelu", "gelu_tanh", "swish",
                          "hard_swish", "mish", "rotary_embedding", "attention"));
}

}  // namespace
}  // namespace weft
