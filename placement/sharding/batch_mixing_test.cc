#include "placement/sharding/batch_mixing.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "graph/graph_builder.h"
#include "graph/node_bodies.h"
#include "gtest/gtest.h"
#include "ops/node_runner.h"

namespace weft {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

using Ints = std::vector<int64_t>;

ValueType TypeOf(std::vector<Dim> dims, DType dtype = DType::kFloat32) {
  return {ValueKind::kTensor, dtype, SymbolicShape(std::move(dims))};
}

// A model that ends in sums over its micro-batch, which are accumulated: the forward part of a
// training graph.
class BatchMixingTest : public ::testing::Test {
 protected:
  BatchMixingTest() : b_(graph_) {}

  ValueId Input(std::vector<Dim> sample, DType dtype = DType::kFloat32,
                Dim samples = Dim::Symbol("N")) {
    sample.insert(sample.begin(), samples);
    return graph_.AddInput("x", TypeOf(std::move(sample), dtype));
  }
  ValueId Weight(const Shape& shape) {
    return graph_.AddVariable("w", {ValueKind::kTensor, DType::kFloat32, shape}, Tensor(), true);
  }
  ValueId Op(const std::string& op, std::vector<ValueId> inputs, Attributes attributes = {}) {
    return b_.Op(op, std::move(inputs), std::move(attributes));
  }
  ValueId SumOf(ValueId value, Ints axes, int64_t keepdims = 0) {
    return Op("ReduceSum", {value, b_.Ints(std::move(axes))}, {{"keepdims", keepdims}});
  }
  ValueId Scalar(float value) { return b_.Float(value); }
  // How many samples `value` has, as int64 [1].
  ValueId SamplesOf(ValueId value) {
    return Op("Shape", {value}, {{"start", int64_t{0}}, {"end", int64_t{1}}});
  }
  // 0, 1, ... for the samples of `value`.
  ValueId NumbersOf(ValueId value) {
    const ValueId zero = b_.Constant(Tensor::Scalar<int64_t>(0));
    const ValueId one = b_.Constant(Tensor::Scalar<int64_t>(1));
    return Op("Range", {zero, Op("Squeeze", {SamplesOf(value), b_.Ints({0})}), one});
  }
  void Accumulate(ValueId sum) {
    GraphBuilder step(graph_);
    step.set_phase(Phase::kUpdate);
    graph_.AddOutput(step.WeftOp("Accumulate", {sum}));
    EXPECT_TRUE(step.status().ok()) << step.status();
  }
  // All elements of the values added up, as a loss does.
  void Finish(const std::vector<ValueId>& values) {
    for (const ValueId value : values) {
      Accumulate(Op("ReduceSum", {value}, {{"keepdims", int64_t{0}}}));
    }
    EXPECT_TRUE(b_.status().ok()) << b_.status();
  }

  BatchMixing Found(int64_t samples = 4) {
    BatchMixing mixing = FindBatchMixing(graph_, samples, CpuNodeEvaluator());
    EXPECT_EQ(mixing.unknown, "");
    return mixing;
  }
  // "Op: reason" of each node.
  std::vector<std::string> Texts(int64_t samples = 4) {
    std::vector<std::string> texts;
    for (const MixingNode& node : Found(samples).nodes)
      texts.push_back(node.op + ": " + node.reason);
    return texts;
  }

  Graph graph_;
  GraphBuilder b_;
};

// ---- What keeps samples apart.

TEST_F(BatchMixingTest, ConvolutionsPoolingAndNormalizationOfFeaturesDoNot) {
  ValueId x = Op("Conv", {Input({3, 8, 8}), Weight({4, 3, 3, 3})});
  x = Op("Relu", {x});
  x = Op("MaxPool", {x}, {{"kernel_shape", Ints{2, 2}}, {"strides", Ints{2, 2}}});
  x = Op("GlobalAveragePool", {x});
  x = Op("Flatten", {x});
  x = Op("LayerNormalization", {x, Weight({4}), Weight({4})});
  x = Op("Softmax", {Op("Gemm", {x, Weight({4, 5}), Weight({5})})});
  Finish({x});
  EXPECT_THAT(Texts(), IsEmpty());
}

// As exporters write it: samples and heads in one axis, and back.
TEST_F(BatchMixingTest, AttentionWithFoldsOfTheBatchDoesNot) {
  constexpr int64_t kLength = 6, kHeads = 2, kWidth = 4;
  const ValueId ids = Input({kLength}, DType::kInt64);
  ValueId x = Op("Gather", {Weight({11, kHeads * kWidth}), ids});
  const ValueId rows = Op("Reshape", {x, b_.Ints({-1, kHeads * kWidth})});
  const ValueId projected = Op("MatMul", {rows, Weight({kHeads * kWidth, kHeads * kWidth})});
  x = Op("Reshape", {projected, b_.Ints({-1, kLength, kHeads, kWidth})});
  x = Op("Transpose", {x}, {{"perm", Ints{1, 0, 2, 3}}});
  x = Op("Reshape", {x, b_.Ints({kLength, -1, kWidth})});  // [T, N H, D]
  x = Op("Transpose", {x}, {{"perm", Ints{1, 0, 2}}});
  const ValueId scores = Op("MatMul", {x, Op("Transpose", {x}, {{"perm", Ints{0, 2, 1}}})});
  const ValueId of_heads = Op("Reshape", {scores, b_.Ints({-1, kHeads, kLength, kLength})});
  const ValueId mask = Op("Unsqueeze", {Op("Cast", {ids}, {{"to", int64_t{1}}}), b_.Ints({1, 2})});
  const ValueId weights = Op("Softmax", {Op("Add", {of_heads, mask})});
  const ValueId flat = Op("Reshape", {weights, b_.Ints({-1, kLength, kLength})});
  Finish({Op("MatMul", {flat, x})});
  EXPECT_THAT(Texts(), IsEmpty());
}

TEST_F(BatchMixingTest, WhatIsRepeatedForEachSampleDoesNot) {
  const ValueId x = Input({5, 4});
  const ValueId shape = Op("Concat", {SamplesOf(x), b_.Ints({1, 4})}, {{"axis", int64_t{0}}});
  const ValueId token = Op("Expand", {Weight({1, 1, 4}), shape});
  const ValueId positions =
      Op("Expand", {b_.Ints({0, 1, 2, 3, 4, 5}),
                    Op("Concat", {SamplesOf(x), b_.Ints({6})}, {{"axis", int64_t{0}}})});
  const ValueId sequence = Op("Concat", {token, x}, {{"axis", int64_t{1}}});
  Finish({Op("Add", {sequence, Op("Gather", {Weight({6, 4}), positions})})});
  EXPECT_THAT(Texts(), IsEmpty());
}

// The mean of a graph's own loss, times the number of samples: what `--loss output:NAME` adds up.
TEST_F(BatchMixingTest, AMeanTimesTheNumberOfSamplesIsASum) {
  const ValueId x = Input({4});
  const ValueId mean = Op("ReduceMean", {Op("Mul", {x, x})}, {{"keepdims", int64_t{0}}});
  const ValueId penalty = SumOf(Op("Abs", {Weight({4})}), {0});
  const ValueId loss = Op("Add", {mean, penalty});
  const ValueId count = Op("Squeeze", {Op("Cast", {SamplesOf(x)}, {{"to", int64_t{1}}})});
  Accumulate(Op("Mul", {loss, count}));
  Accumulate(count);
  EXPECT_THAT(Texts(), IsEmpty());
}

// The same where a shape allows four samples only. How many there are is then the constant 4, which
// no second graph tells from others: the sum was held to be a mean, and the batch was not cut.
TEST_F(BatchMixingTest, AMeanTimesAFixedNumberOfSamplesIsASum) {
  const ValueId x = Op("Reshape", {Input({6}), b_.Ints({4, 6})});
  const ValueId mean = Op("ReduceMean", {Op("Mul", {x, x})}, {{"keepdims", int64_t{0}}});
  const ValueId count = Op("Squeeze", {Op("Cast", {SamplesOf(x)}, {{"to", int64_t{1}}})});
  Accumulate(Op("Mul", {count, mean}));
  Accumulate(count);
  EXPECT_THAT(Texts(/*samples=*/4), IsEmpty());
}

// A mean times another number is none.
TEST_F(BatchMixingTest, AMeanOfAFixedBatchTimesAnotherNumber) {
  const ValueId x = Op("Reshape", {Input({6}), b_.Ints({4, 6})});
  const ValueId mean = Op("ReduceMean", {Op("Mul", {x, x})}, {{"keepdims", int64_t{0}}});
  Accumulate(Op("Mul", {mean, Scalar(3)}));
  EXPECT_THAT(Texts(/*samples=*/4), ElementsAre(HasSubstr("which is no sum over samples")));
}

// As the parts of a loss that is the quotient of two means.
TEST_F(BatchMixingTest, MeansTimesTheNumberOfSamplesAreAddedUp) {
  const ValueId x = Input({4});
  const ValueId count = Op("Squeeze", {Op("Cast", {SamplesOf(x)}, {{"to", int64_t{1}}})});
  for (const ValueId each : {Op("Mul", {x, x}), Op("Abs", {x})}) {
    const ValueId mean = Op("ReduceMean", {each}, {{"keepdims", int64_t{0}}});
    Accumulate(Op("Mul", {Op("Reshape", {mean, b_.Ints({})}), count}));
  }
  EXPECT_THAT(Texts(), IsEmpty());
}

TEST_F(BatchMixingTest, ASumInAnotherTypeIsASum) {
  const ValueId sum = SumOf(Input({4}), {0, 1});
  Accumulate(Op("Neg", {Op("Cast", {sum}, {{"to", int64_t{11}}})}));
  EXPECT_THAT(Texts(), IsEmpty());
}

TEST_F(BatchMixingTest, ALossWithItsWeightDoesNot) {
  const ValueId scores = Op("MatMul", {Input({4}), Weight({4, 3})});
  const ValueId labels = Input({}, DType::kInt64);
  Accumulate(Op("SoftmaxCrossEntropyLoss", {scores, labels}, {{"reduction", std::string("sum")}}));
  Accumulate(b_.WeftOp("LossWeight", {labels}));
  EXPECT_THAT(Texts(), IsEmpty());
}

// As the scores that an evaluation collects for its auc. They were taken for mixing: their axis may
// not be split.
TEST_F(BatchMixingTest, AListOfANumberForEachSampleDoesNot) {
  const ValueId scores = SumOf(Input({4}), {1});
  Accumulate(b_.WeftOp("PlaceSamples", {scores}, {{"samples", int64_t{16}}}));
  Accumulate(b_.WeftOp("ElementCount", {scores}));
  EXPECT_THAT(Texts(), IsEmpty());
}

// What quantization-aware training observes of a batch reaches its step's end, and no loss.
TEST_F(BatchMixingTest, ObservingARangeDoesNot) {
  const ValueId x = Input({4});
  Accumulate(b_.WeftOp("RangeOfBatch", {Op("MatMul", {x, Weight({4, 3})})}));
  Accumulate(SumOf(x, {0, 1}));
  EXPECT_THAT(Texts(), IsEmpty());
}

// No index notation: they are tried.
TEST_F(BatchMixingTest, OperatorsWithoutIndexNotationAreTried) {
  const ValueId x = Input({5, 4});
  const ValueId along_features = Op("CumSum", {x, b_.Constant(Tensor::Scalar<int64_t>(2))});
  const std::vector<ValueId> top =
      b_.Ops("", "TopK", {along_features, b_.Ints({2})}, {{"axis", int64_t{1}}}, {true, false});
  Finish({Op("Einsum", {top[0], top[0]}, {{"equation", std::string("nij,nkj->nik")}})});
  EXPECT_THAT(Texts(), IsEmpty());
}

TEST_F(BatchMixingTest, PickingFromTheOwnSampleByItsNumberDoesNot) {
  const ValueId x = Input({5, 4});
  const ValueId positions = Op("ArgMax", {SumOf(x, {2})}, {{"axis", int64_t{1}}});  // [N,1]
  const ValueId numbers = Op("Unsqueeze", {NumbersOf(x), b_.Ints({1})});
  // x[arange(N), positions]: as a list of pairs, and over samples and positions in one axis.
  const ValueId pairs = Op("Concat", {numbers, positions}, {{"axis", int64_t{1}}});
  const ValueId row = Op("Mul", {numbers, b_.Constant(Tensor::Scalar<int64_t>(5))});
  const ValueId flat = Op("Reshape", {x, b_.Ints({-1, 4})});
  Finish({Op("GatherND", {x, pairs}), Op("Gather", {flat, Op("Add", {row, positions})})});
  EXPECT_THAT(Texts(), IsEmpty());
}

// Positions that shapes alone decide are constants by then: a mask by the numbers of samples and
// tokens, over both in one axis and as a list of pairs. They were refused: sample 0 has others than
// zeros, and of the pairs only the first number counts.
TEST_F(BatchMixingTest, ConstantPositionsInTheOwnSampleDoNotMix) {
  constexpr int64_t kLength = 6;
  const ValueId mask = Input({kLength}, DType::kInt64);
  const ValueId tokens = b_.Ints({0, 1, 2, 3, 4, 5});
  const ValueId numbers = Op("Unsqueeze", {NumbersOf(mask), b_.Ints({1})});  // [N,1]
  const ValueId row = Op("Mul", {numbers, b_.Constant(Tensor::Scalar<int64_t>(kLength))});
  const ValueId flat = Op("Reshape", {mask, b_.Ints({-1})});
  const ValueId shape = Op("Concat", {SamplesOf(mask), b_.Ints({kLength})}, {{"axis", int64_t{0}}});
  const ValueId pairs = Op("Concat",
                           {Op("Unsqueeze", {Op("Expand", {numbers, shape}), b_.Ints({2})}),
                            Op("Unsqueeze", {Op("Expand", {tokens, shape}), b_.Ints({2})})},
                           {{"axis", int64_t{2}}});
  Finish({Op("Gather", {flat, Op("Add", {row, tokens})}), Op("GatherND", {mask, pairs})});
  EXPECT_THAT(Texts(), IsEmpty());
}

ValueId AddIf(GraphBuilder& b, ValueId condition, ValueId x, const std::string& op) {
  std::vector<std::shared_ptr<Graph>> branches;
  for (const std::string& each : {op, std::string("Neg")}) {
    auto branch = std::make_shared<Graph>();
    GraphBuilder inner(*branch);
    const ValueId captured = branch->AddInput("x", TypeOf({Dim(), Dim(4)}));
    Attributes attributes;
    if (each == "Softmax") attributes.Set("axis", int64_t{0});
    branch->AddOutput(inner.Op(each, {captured}, std::move(attributes)));
    EXPECT_TRUE(inner.status().ok()) << inner.status();
    branches.push_back(std::move(branch));
  }
  return b.Ops("", "If", {condition, x, x},
               {{"then_branch", branches[0]},
                {"else_branch", branches[1]},
                {CapturesAttribute("then_branch"), std::vector<std::string>{"x"}},
                {CapturesAttribute("else_branch"), std::vector<std::string>{"x"}}},
               {true})[0];
}

TEST_F(BatchMixingTest, ABranchThatAWeightChoosesDoesNot) {
  const ValueId x = Input({4});
  const ValueId condition = Op("Greater", {Weight({}), Scalar(0)});
  Finish({AddIf(b_, condition, x, "Abs")});
  EXPECT_THAT(Texts(), IsEmpty());
}

// ---- What mixes them.

TEST_F(BatchMixingTest, BatchNormalizationInTrainingSumsOverReplicas) {
  const std::vector<ValueId> parameters = {Weight({4}), Weight({4}), Weight({4}), Weight({4})};
  const ValueId x = Input({4, 6});
  std::vector<ValueId> inputs = {x};
  inputs.insert(inputs.end(), parameters.begin(), parameters.end());
  const ValueId given = Op("BatchNormalization", inputs);
  inputs[0] = given;
  Finish({Op("Relu", {Op("BatchNormalization", inputs, {{"training_mode", int64_t{1}}})})});
  const BatchMixing mixing = Found();
  ASSERT_EQ(mixing.nodes.size(), 1u);
  EXPECT_THAT(mixing.nodes[0].ToString(),
              AllOf(HasSubstr("(BatchNormalization) computes statistics over the samples of the "
                              "batch")));
  EXPECT_TRUE(mixing.all_sum_over_replicas());
}

TEST_F(BatchMixingTest, ASoftmaxOverTheBatch) {
  Finish({Op("Softmax", {Input({4})}, {{"axis", int64_t{0}}})});
  EXPECT_THAT(Texts(),
              ElementsAre("Softmax: takes all samples of the batch together: axis 0 of 'x'"));
  EXPECT_FALSE(Found().all_sum_over_replicas());
}

TEST_F(BatchMixingTest, LogitsOfAllPairs) {
  const ValueId x = Op("MatMul", {Input({4}), Weight({4, 3})});
  const ValueId y = Op("MatMul", {Input({6}), Weight({6, 3})});
  const ValueId logits = Op("MatMul", {x, Op("Transpose", {y}, {{"perm", Ints{1, 0}}})});
  Accumulate(
      Op("SoftmaxCrossEntropyLoss", {logits, NumbersOf(x)}, {{"reduction", std::string("sum")}}));
  EXPECT_THAT(Texts(), ElementsAre(AllOf(HasSubstr("MatMul: pairs each sample with all others: the "
                                                   "samples are on axis 0 of"),
                                         HasSubstr("and on axis 1 of"))));
}

// The list is a sum over micro-batches: what looks at the list of one sees other numbers.
TEST_F(BatchMixingTest, TheLargestOfAListOfAllSamples) {
  const ValueId scores = SumOf(Input({4}), {1});
  const ValueId list = b_.WeftOp("PlaceSamples", {scores}, {{"samples", int64_t{16}}});
  Accumulate(Op("ReduceMax", {list}, {{"keepdims", int64_t{0}}}));
  EXPECT_THAT(Texts(), ElementsAre(HasSubstr("ReduceMax: reads '")));
}

TEST_F(BatchMixingTest, ARunningSumOverTheBatch) {
  Finish({Op("CumSum", {Input({4}), b_.Constant(Tensor::Scalar<int64_t>(0))})});
  EXPECT_THAT(Texts(),
              ElementsAre("CumSum: takes all samples of the batch together: axis 0 of 'x'"));
}

TEST_F(BatchMixingTest, TheDistanceFromTheMeanOfTheBatch) {
  const ValueId x = Input({4});
  const ValueId mean = Op("ReduceMean", {x, b_.Ints({0})});
  Finish({Op("Sub", {x, mean})});
  EXPECT_THAT(Texts(), ElementsAre(AllOf(HasSubstr("Sub: reads"),
                                         HasSubstr("the mean over the samples of the batch"))));
}

TEST_F(BatchMixingTest, ABranchThatASumOverTheBatchChooses) {
  const ValueId x = Input({4});
  const ValueId condition = Op("Greater", {SumOf(x, {0, 1}), Scalar(0)});
  Finish({AddIf(b_, condition, x, "Abs")});
  EXPECT_THAT(Texts(),
              ElementsAre(HasSubstr("Greater: reads"), HasSubstr("If: chooses its branch by")));
}

TEST_F(BatchMixingTest, ANodeInABranch) {
  const ValueId x = Input({4});
  const ValueId condition = Op("Greater", {Weight({}), Scalar(0)});
  Finish({AddIf(b_, condition, x, "Softmax")});
  EXPECT_THAT(Texts(), ElementsAre(HasSubstr("Softmax: takes all samples")));
}

// All elements of [N,4] on one axis: sample by sample, or if `transposed` feature by feature.
std::shared_ptr<Graph> FoldedBranch(bool transposed) {
  auto branch = std::make_shared<Graph>();
  GraphBuilder inner(*branch);
  ValueId x = branch->AddInput("x", TypeOf({Dim(), Dim(4)}));
  if (transposed) x = inner.Op("Transpose", {x}, {{"perm", Ints{1, 0}}});
  branch->AddOutput(inner.Op("Reshape", {x, inner.Ints({-1})}));
  EXPECT_TRUE(inner.status().ok()) << inner.status();
  return branch;
}

// Nobody knew then where the samples are, and what mixes them afterwards was not seen.
TEST_F(BatchMixingTest, BranchesThatLayTheSamplesOutOtherwise) {
  const auto chosen = [&](bool other) {
    const ValueId x = Input({4});
    return b_.Ops("", "If", {Op("Greater", {Weight({}), Scalar(0)}), x, x},
                  {{"then_branch", FoldedBranch(false)},
                   {"else_branch", FoldedBranch(other)},
                   {CapturesAttribute("then_branch"), std::vector<std::string>{"x"}},
                   {CapturesAttribute("else_branch"), std::vector<std::string>{"x"}}},
                  {true})[0];
  };
  Finish({Op("Relu", {chosen(false)}), Op("Relu", {chosen(true)})});
  EXPECT_THAT(Texts(), ElementsAre(AllOf(HasSubstr("If: makes"),
                                         HasSubstr("lie otherwise from branch to branch"))));
}

// The state of [4N] elements, laid out feature by feature after a round if it was sample by sample.
TEST_F(BatchMixingTest, AStateInWhichTheSamplesMove) {
  auto body = std::make_shared<Graph>();
  GraphBuilder inner(*body);
  body->AddInput("round", TypeOf({}, DType::kInt64));
  const ValueId goes_on = body->AddInput("goes_on", TypeOf({}, DType::kBool));
  const ValueId state = body->AddInput("state", TypeOf({Dim()}));
  const ValueId rows = inner.Op("Reshape", {state, inner.Ints({-1, 4})});
  const ValueId columns = inner.Op("Transpose", {rows}, {{"perm", Ints{1, 0}}});
  body->AddOutput(inner.Op("Identity", {goes_on}));
  body->AddOutput(inner.Op("Reshape", {columns, inner.Ints({-1})}));
  ASSERT_TRUE(inner.status().ok()) << inner.status();
  const ValueId folded = Op("Reshape", {Input({4}), b_.Ints({-1})});
  const ValueId rounds = b_.Constant(Tensor::Scalar<int64_t>(3));
  Finish({b_.Ops("", "Loop", {rounds, kNoValue, folded}, {{"body", body}}, {true})[0]});
  EXPECT_THAT(Texts(), ElementsAre(HasSubstr("Loop: carries its state 0 from round to round")));
}

TEST_F(BatchMixingTest, AQuotientOfTwoSums) {
  const ValueId x = Input({4});
  const ValueId sum = SumOf(x, {0, 1});
  const ValueId weight = SumOf(Op("Abs", {x}), {0, 1});
  Accumulate(Op("Div", {sum, weight}));
  EXPECT_THAT(Texts(), ElementsAre(HasSubstr("Div: reads")));
}

TEST_F(BatchMixingTest, OtherSamplesByTheirPlace) {
  const ValueId x = Input({4});
  const ValueId next = Op("Slice", {x, b_.Ints({1}), b_.Ints({100}), b_.Ints({0})});
  const ValueId first = Op("Gather", {x, b_.Ints({0})});
  Finish({next, first});
  EXPECT_THAT(Texts(), ElementsAre(HasSubstr("Slice: takes all samples"),
                                   HasSubstr("Gather: takes all samples")));
}

// The samples in reverse order, by constants that shapes decide.
TEST_F(BatchMixingTest, ConstantPositionsInOtherSamples) {
  const ValueId x = Input({5, 4});
  const ValueId last = Op("Sub", {SamplesOf(x), b_.Ints({1})});
  const ValueId numbers = Op("Unsqueeze", {Op("Sub", {last, NumbersOf(x)}), b_.Ints({1})});
  const ValueId row = Op("Mul", {numbers, b_.Constant(Tensor::Scalar<int64_t>(5))});
  const ValueId flat = Op("Reshape", {x, b_.Ints({-1, 4})});
  Finish({Op("Gather", {flat, Op("Add", {row, b_.Ints({2, 3})})})});
  EXPECT_THAT(Texts(), ElementsAre(HasSubstr("Gather: uses how many samples there are")));
}

// Both are linear, but a negative position counts from the end. They were taken for positions in
// the own sample.
TEST_F(BatchMixingTest, NegativeNumbersOfSamples) {
  const ValueId x = Input({5, 4});
  const ValueId positions = Op("ArgMax", {SumOf(x, {2})}, {{"axis", int64_t{1}}});  // [N,1]
  const ValueId numbers = Op("Unsqueeze", {NumbersOf(x), b_.Ints({1})});
  const ValueId row = Op("Mul", {numbers, b_.Constant(Tensor::Scalar<int64_t>(5))});
  const ValueId flat = Op("Reshape", {x, b_.Ints({-1, 4})});
  Finish({Op("Gather", {flat, Op("Neg", {Op("Add", {row, positions})})}),
          Op("Gather", {flat, Op("Sub", {positions, row})})});
  EXPECT_THAT(Texts(), ::testing::IsSupersetOf({HasSubstr("Neg: uses"), HasSubstr("Sub: uses")}));
}

TEST_F(BatchMixingTest, NumbersOfSamplesAsValues) {
  const ValueId x = Input({4});
  Finish({Op("Gather", {Weight({100, 4}), NumbersOf(x)})});
  EXPECT_THAT(Texts(), ElementsAre(HasSubstr("Gather: uses")));
}

// Exporters bake the batch that they traced into a Reshape: only that size can be looked at.
TEST_F(BatchMixingTest, AModelOfAFixedBatchIsLookedAtInItsSize) {
  const ValueId x = Op("Reshape", {Input({6}), b_.Ints({4, 3, 2})});
  Finish({Op("Softmax", {x}, {{"axis", int64_t{0}}})});
  EXPECT_THAT(Texts(4), ElementsAre(HasSubstr("Softmax: takes all samples")));
  EXPECT_THAT(FindBatchMixing(graph_, 1, CpuNodeEvaluator()).unknown, HasSubstr("cannot reshape"));
}

// There is no batch that could be looked at, nor one whose samples could be mixed. A size that does
// not fit at all is something else.
TEST_F(BatchMixingTest, AModelOfSingleSamplesSaysSo) {
  Finish({Op("Reshape", {Input({6}), b_.Ints({1, 3, 2})})});
  const BatchMixing one = FindBatchMixing(graph_, 1, CpuNodeEvaluator());
  EXPECT_TRUE(one.one_sample);
  EXPECT_EQ(one.unknown, "shapes in the model fix the batch to one sample");
  const BatchMixing two = FindBatchMixing(graph_, 2, CpuNodeEvaluator());
  EXPECT_FALSE(two.one_sample);
  EXPECT_THAT(two.unknown, HasSubstr("cannot reshape"));
}

}  // namespace
}  // namespace weft
