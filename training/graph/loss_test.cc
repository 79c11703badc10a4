#include "training/graph/loss.h"

#include <cmath>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ops/testing/graph_evaluator.h"
#include "ops/testing/test_tensors.h"

namespace weft {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

ValueType DoubleType(std::vector<Dim> dims) {
  return {ValueKind::kTensor, DType::kFloat64, SymbolicShape(std::move(dims))};
}

std::string Message(const absl::Status& status) { return std::string(status.message()); }

// Minus the log of the probability that softmax(scores) gives to `label`.
double CrossEntropy(const std::vector<double>& scores, int64_t label) {
  double sum = 0;
  for (double score : scores) sum += std::exp(score);
  return std::log(sum) - scores[label];
}

class LossTest : public ::testing::Test {
 protected:
  // A model that gives its input back.
  ValueId Scores(std::vector<Dim> dims) {
    const ValueId scores = graph_.AddInput("scores", DoubleType(std::move(dims)));
    graph_.AddOutput(scores);
    return scores;
  }

  ValueId Find(const std::string& name) { return *graph_.FindValue(name); }
  std::string TypeOf(const std::string& name) { return graph_.value(Find(name)).type.ToString(); }

  // Sum and weight for these inputs, by name.
  std::vector<double> Evaluate(const MeanParts& parts,
                               const std::map<std::string, Tensor>& inputs) {
    std::map<ValueId, Tensor> feeds;
    for (const auto& [name, tensor] : inputs) feeds[Find(name)] = tensor;
    const auto values = testing::EvaluateGraph(graph_, feeds, {parts.sum, parts.weight},
                                               KernelRegistry::Reference());
    EXPECT_TRUE(values.ok()) << values.status();
    if (!values.ok()) return {0, 0};
    EXPECT_EQ((*values)[0].num_elements(), 1);
    return {(*ToDoubles((*values)[0]))[0], (*ToDoubles((*values)[1]))[0]};
  }

  Graph graph_;
  GraphBuilder builder_{graph_};
};

TEST_F(LossTest, CrossEntropyIsASumAndACount) {
  Scores({Dim::Symbol("N"), 3});
  const auto parts = AddLoss(builder_, {});
  ASSERT_TRUE(parts.ok()) << parts.status();
  EXPECT_EQ(TypeOf("labels"), "int64[N]");
  const auto values = Evaluate(*parts, {{"scores", Tensor::Of<double>({2, 3}, {1, 2, 3, -1, 0, 5})},
                                        {"labels", Tensor::Of<int64_t>({2}, {0, 2})}});
  EXPECT_NEAR(values[0], CrossEntropy({1, 2, 3}, 0) + CrossEntropy({-1, 0, 5}, 2), 1e-12);
  EXPECT_EQ(values[1], 2);
}

TEST_F(LossTest, ASequenceHasALabelPerPosition) {
  Scores({Dim::Symbol("N"), 2, 3});  // [N,T,C]
  const auto parts = AddLoss(builder_, {});
  ASSERT_TRUE(parts.ok()) << parts.status();
  EXPECT_EQ(TypeOf("labels"), "int64[N,2]");
  const auto values =
      Evaluate(*parts, {{"scores", Tensor::Of<double>({1, 2, 3}, {1, 2, 3, 4, 0, 5})},
                        {"labels", Tensor::Of<int64_t>({1, 2}, {0, 1})}});
  EXPECT_NEAR(values[0], CrossEntropy({1, 2, 3}, 0) + CrossEntropy({4, 0, 5}, 1), 1e-12);
  EXPECT_EQ(values[1], 2);
}

TEST_F(LossTest, TheClassesMayBeOnAnotherAxis) {
  Scores({Dim::Symbol("N"), 3, 2});  // [N,C,T]
  const auto parts = AddLoss(builder_, {.class_axis = 1});
  ASSERT_TRUE(parts.ok()) << parts.status();
  EXPECT_EQ(TypeOf("labels"), "int64[N,2]");
  const auto values =
      Evaluate(*parts, {{"scores", Tensor::Of<double>({1, 3, 2}, {1, 4, 2, 0, 3, 5})},
                        {"labels", Tensor::Of<int64_t>({1, 2}, {0, 1})}});
  EXPECT_NEAR(values[0], CrossEntropy({1, 2, 3}, 0) + CrossEntropy({4, 0, 5}, 1), 1e-12);
}

TEST_F(LossTest, SquaredErrorsCountElements) {
  Scores({Dim::Symbol("N"), 2});
  const auto parts = AddLoss(builder_, {.kind = "mse"});
  ASSERT_TRUE(parts.ok()) << parts.status();
  EXPECT_EQ(TypeOf("labels"), "float64[N,2]");
  const auto values = Evaluate(*parts, {{"scores", Tensor::Of<double>({2, 2}, {1, 2, 3, 4})},
                                        {"labels", Tensor::Of<double>({2, 2}, {1, 0, 0, 5})}});
  EXPECT_EQ(values[0], 14);
  EXPECT_EQ(values[1], 4);
}

TEST_F(LossTest, TheModelsOwnLabelsAreUsed) {
  Scores({Dim::Symbol("N"), 3});
  graph_.AddInput("labels", {ValueKind::kTensor, DType::kInt32, SymbolicShape({Dim::Symbol("N")})});
  ASSERT_TRUE(AddLoss(builder_, {}).ok());
  EXPECT_EQ(graph_.inputs().size(), 2u);
  EXPECT_EQ(TypeOf("labels"), "int32[N]");
}

TEST_F(LossTest, ANamedOutputIsTheOneLookedAt) {
  Scores({Dim::Symbol("N"), 3});
  const ValueId other = builder_.Op("Tanh", {Find("scores")});
  builder_.Name(other, "other");
  graph_.AddOutput(other);
  const auto parts = AddLoss(builder_, {.output = "other"});
  ASSERT_TRUE(parts.ok()) << parts.status();
  EXPECT_EQ(graph_.node(graph_.value(parts->sum).producer).inputs[0], other);
}

TEST_F(LossTest, AMeanOfTheModelsOwnIsTakenApart) {
  Scores({Dim::Symbol("N"), 2});
  const ValueId loss = builder_.Op("ReduceMean", {Find("scores")}, {{"keepdims", int64_t{0}}});
  builder_.Name(loss, "own");
  const auto parts = AddLoss(builder_, {.kind = "output:own"});
  ASSERT_TRUE(parts.ok()) << parts.status();
  EXPECT_FALSE(graph_.FindValue("labels").has_value());
  const auto values =
      Evaluate(*parts, {{"scores", Tensor::Of<double>({3, 2}, {1, 2, 3, 4, 5, 6})}});
  EXPECT_NEAR(values[0] / values[1], 3.5, 1e-12);
  EXPECT_EQ(values[1], 6);
}

TEST_F(LossTest, AnyOtherScalarIsHeldToBeAMeanOverSamples) {
  Scores({Dim::Symbol("N"), 2});
  const ValueId mean = builder_.Op("ReduceMean", {Find("scores")}, {{"keepdims", int64_t{0}}});
  builder_.Name(builder_.Op("Mul", {mean, builder_.Scalar(DType::kFloat64, 2)}), "own");
  const auto parts = AddLoss(builder_, {.kind = "output:own"});
  ASSERT_TRUE(parts.ok()) << parts.status();
  const auto values =
      Evaluate(*parts, {{"scores", Tensor::Of<double>({3, 2}, {1, 2, 3, 4, 5, 6})}});
  EXPECT_NEAR(values[0], 7 * 3, 1e-12);
  EXPECT_EQ(values[1], 3);
}

// As exporters write a mean over the tokens that count: micro-batches may have them unequally.
TEST_F(LossTest, AMeanOverWhatCountsIsTakenApart) {
  const ValueId scores = Scores({Dim::Symbol("N"), 2});
  const ValueId zero = builder_.Scalar(DType::kFloat64, 0);
  const ValueId counts = builder_.Op("Greater", {scores, zero});
  const auto total = [&](ValueId x) {
    return builder_.Op("ReduceSum", {x}, {{"keepdims", int64_t{0}}});
  };
  const ValueId sum = total(builder_.Op("Where", {counts, scores, zero}));
  const ValueId count = total(builder_.Op("Cast", {counts}, {{"to", int64_t{11}}}));
  builder_.Name(builder_.Op("Identity", {builder_.Op("Div", {sum, count})}), "own");
  const auto parts = AddLoss(builder_, {.kind = "output:own"});
  ASSERT_TRUE(parts.ok()) << parts.status();
  const auto values =
      Evaluate(*parts, {{"scores", Tensor::Of<double>({3, 2}, {1, -2, 3, -4, -5, 6})}});
  EXPECT_NEAR(values[0], 10, 1e-12);
  EXPECT_EQ(values[1], 3);
}

// mean(x mask) / mean(mask): what micro-batches of two samples and of one make, added up, is the
// mean over what counts in all three. Parts that are means let the short one weigh as much.
TEST_F(LossTest, AQuotientOfMeansAddsUpOverUnequalMicroBatches) {
  const ValueId scores = Scores({Dim::Symbol("N"), 2});
  const ValueId zero = builder_.Scalar(DType::kFloat64, 0);
  const ValueId counts = builder_.Op("Greater", {scores, zero});
  const auto mean = [&](ValueId x) {
    return builder_.Op("ReduceMean", {x}, {{"keepdims", int64_t{0}}});
  };
  const ValueId above = mean(builder_.Op("Where", {counts, scores, zero}));
  const ValueId part = mean(builder_.Op("Cast", {counts}, {{"to", int64_t{11}}}));
  const ValueId twice = builder_.Op("Mul", {builder_.Scalar(DType::kFloat64, 2), above});
  builder_.Name(builder_.Op("Div", {twice, part}), "own");
  const auto parts = AddLoss(builder_, {.kind = "output:own"});
  ASSERT_TRUE(parts.ok()) << parts.status();
  const auto two = Evaluate(*parts, {{"scores", Tensor::Of<double>({2, 2}, {1, -2, 3, 5})}});
  const auto one = Evaluate(*parts, {{"scores", Tensor::Of<double>({1, 2}, {-4, 6})}});
  EXPECT_NEAR((two[0] + one[0]) / (two[1] + one[1]), 2 * (1 + 3 + 5 + 6) / 4.0, 1e-12);
}

// A sum over a mean is no mean of samples: nothing is multiplied.
TEST_F(LossTest, AQuotientOfASumAndAMeanStaysAsItIs) {
  const ValueId scores = Scores({Dim::Symbol("N"), 2});
  const Attributes whole = {{"keepdims", int64_t{0}}};
  const ValueId sum = builder_.Op("ReduceSum", {scores}, whole);
  const ValueId mean = builder_.Op("ReduceMean", {builder_.Op("Abs", {scores})}, whole);
  builder_.Name(builder_.Op("Div", {sum, mean}), "own");
  const auto parts = AddLoss(builder_, {.kind = "output:own"});
  ASSERT_TRUE(parts.ok()) << parts.status();
  const auto values = Evaluate(*parts, {{"scores", Tensor::Of<double>({2, 2}, {1, -2, 3, 4})}});
  EXPECT_NEAR(values[0], 6, 1e-12);
  EXPECT_NEAR(values[1], 2.5, 1e-12);
}

// The features' mean of sums over the samples adds up as it is. Held to be a mean over samples, it
// was multiplied by their number, and a micro-batch of two samples counted twice.
TEST_F(LossTest, AQuotientOfMeansOfSumsStaysAsItIs) {
  const ValueId scores = Scores({Dim::Symbol("N"), 2});
  const ValueId zero = builder_.Scalar(DType::kFloat64, 0);
  const ValueId counts = builder_.Op("Greater", {scores, zero});
  const Attributes whole = {{"keepdims", int64_t{0}}};
  const auto mean_of_sum = [&](ValueId x) {
    const ValueId sum = builder_.Op("ReduceSum", {x, builder_.Ints({0})}, whole);  // [2]
    return builder_.Op("ReduceMean", {sum}, whole);
  };
  const ValueId above = mean_of_sum(builder_.Op("Where", {counts, scores, zero}));
  const ValueId part = mean_of_sum(builder_.Op("Cast", {counts}, {{"to", int64_t{11}}}));
  builder_.Name(builder_.Op("Div", {above, part}), "own");
  const auto parts = AddLoss(builder_, {.kind = "output:own"});
  ASSERT_TRUE(parts.ok()) << parts.status();
  const auto two = Evaluate(*parts, {{"scores", Tensor::Of<double>({2, 2}, {1, -2, 3, 5})}});
  const auto one = Evaluate(*parts, {{"scores", Tensor::Of<double>({1, 2}, {-4, 6})}});
  EXPECT_NEAR((two[0] + one[0]) / (two[1] + one[1]), (1 + 3 + 5 + 6) / 4.0, 1e-12);
}

// First over the samples, then over the features: a mean over samples for all that.
TEST_F(LossTest, AQuotientOfMeansOfMeansAddsUpOverUnequalMicroBatches) {
  const ValueId scores = Scores({Dim::Symbol("N"), 2});
  const ValueId zero = builder_.Scalar(DType::kFloat64, 0);
  const ValueId counts = builder_.Op("Greater", {scores, zero});
  const Attributes whole = {{"keepdims", int64_t{0}}};
  const auto mean_of_mean = [&](ValueId x) {
    const ValueId mean = builder_.Op("ReduceMean", {x, builder_.Ints({0})}, whole);  // [2]
    return builder_.Op("ReduceMean", {mean}, whole);
  };
  const ValueId above = mean_of_mean(builder_.Op("Where", {counts, scores, zero}));
  const ValueId part = mean_of_mean(builder_.Op("Cast", {counts}, {{"to", int64_t{11}}}));
  builder_.Name(builder_.Op("Div", {above, part}), "own");
  const auto parts = AddLoss(builder_, {.kind = "output:own"});
  ASSERT_TRUE(parts.ok()) << parts.status();
  const auto two = Evaluate(*parts, {{"scores", Tensor::Of<double>({2, 2}, {1, -2, 3, 5})}});
  const auto one = Evaluate(*parts, {{"scores", Tensor::Of<double>({1, 2}, {-4, 6})}});
  EXPECT_NEAR((two[0] + one[0]) / (two[1] + one[1]), (1 + 3 + 5 + 6) / 4.0, 1e-12);
}

// A model for two samples has them everywhere: its micro-batches are alike, and means of them add
// up as well as sums.
TEST_F(LossTest, AQuotientOfMeansOfAFixedBatchStaysAsItIs) {
  const ValueId scores = Scores({2, 2});
  const Attributes whole = {{"keepdims", int64_t{0}}};
  const ValueId mean = builder_.Op("ReduceMean", {scores}, whole);
  const ValueId size = builder_.Op("ReduceMean", {builder_.Op("Abs", {scores})}, whole);
  builder_.Name(builder_.Op("Div", {mean, size}), "own");
  const auto parts = AddLoss(builder_, {.kind = "output:own"});
  ASSERT_TRUE(parts.ok()) << parts.status();
  const auto values = Evaluate(*parts, {{"scores", Tensor::Of<double>({2, 2}, {1, -2, 3, 4})}});
  EXPECT_NEAR(values[0], 1.5, 1e-12);
  EXPECT_NEAR(values[1], 2.5, 1e-12);
}

// What divides depends on something that trains: its gradient would be lost.
TEST_F(LossTest, AQuotientOfTrainedNumbersIsNotTakenApart) {
  const ValueId scores = Scores({Dim::Symbol("N"), 2});
  const ValueId w = graph_.AddVariable("w", DoubleType({}), Tensor::Scalar<double>(2), true);
  const auto mean = [&](ValueId x) {
    return builder_.Op("ReduceMean", {x}, {{"keepdims", int64_t{0}}});
  };
  builder_.Name(builder_.Op("Div", {mean(scores), mean(builder_.Op("Mul", {scores, w}))}), "own");
  const auto parts = AddLoss(builder_, {.kind = "output:own"});
  ASSERT_TRUE(parts.ok()) << parts.status();
  // The scalar times the number of samples.
  const auto values = Evaluate(*parts, {{"scores", Tensor::Of<double>({3, 2}, {1, 2, 3, 4, 5, 6})},
                                        {"w", Tensor::Scalar<double>(2)}});
  EXPECT_NEAR(values[0], 0.5 * 3, 1e-12);
  EXPECT_EQ(values[1], 3);
}

TEST_F(LossTest, ALossThatIsNotANumberIsRefused) {
  Scores({Dim::Symbol("N"), 2});
  EXPECT_EQ(Message(AddLoss(builder_, {.kind = "output:scores"}).status()),
            "the loss 'scores' is float64[N,2], expected one floating number");
  EXPECT_EQ(Message(AddLoss(builder_, {.kind = "output:nothing"}).status()),
            "the model has no value 'nothing'");
}

TEST_F(LossTest, AnUnknownOutputIsNamed) {
  Scores({Dim::Symbol("N"), 2});
  const auto parts = AddLoss(builder_, {.output = "logits"});
  EXPECT_EQ(parts.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(Message(parts.status()), HasSubstr("no output 'logits'"));
}

TEST_F(LossTest, AModelWithoutOutputsIsRefused) {
  EXPECT_EQ(Message(AddLoss(builder_, {}).status()), "the model has no outputs");
}

TEST_F(LossTest, ScoresNeedAnAxisForTheClasses) {
  Scores({Dim::Symbol("N")});
  EXPECT_THAT(Message(AddLoss(builder_, {}).status()),
              AllOf(HasSubstr("rank 2 or more"), HasSubstr("'scores' is float64[N]")));
}

TEST_F(LossTest, TheClassAxisIsChecked) {
  Scores({Dim::Symbol("N"), 2});
  EXPECT_THAT(Message(AddLoss(builder_, {.class_axis = 0}).status()),
              HasSubstr("must not be the sample axis"));
  EXPECT_EQ(AddLoss(builder_, {.class_axis = 2}).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_F(LossTest, ClassWeightsMustFitTheClasses) {
  Scores({Dim::Symbol("N"), 3});
  EXPECT_EQ(Message(AddLoss(builder_, {.class_weights = {1, 2}}).status()),
            "2 class weights were given for 3 classes");
}

TEST_F(LossTest, SmoothingNeedsToKnowTheClasses) {
  Scores({Dim::Symbol("N"), Dim::Symbol("C")});
  EXPECT_THAT(Message(AddLoss(builder_, {.label_smoothing = 0.5}).status()),
              HasSubstr("--label-smoothing needs to know the number of classes"));
}

TEST_F(LossTest, SmoothingIsAShare) {
  Scores({Dim::Symbol("N"), 3});
  EXPECT_EQ(Message(AddLoss(builder_, {.label_smoothing = 1}).status()),
            "label smoothing is 1, expected a number in [0, 1)");
}

TEST_F(LossTest, SoftLabelsNameNoClassToIgnore) {
  Scores({Dim::Symbol("N"), 3});
  EXPECT_THAT(Message(AddLoss(builder_, {.ignore_index = 0, .soft_labels = true}).status()),
              HasSubstr("none can be ignored"));
}

TEST_F(LossTest, ASequenceHasThreeAxes) {
  Scores({Dim::Symbol("N"), 3});
  EXPECT_THAT(
      Message(AddLoss(builder_, {.kind = "sequence_cross_entropy"}).status()),
      HasSubstr("needs scores [samples, positions, classes]; output 'scores' is float64[N,3]"));
}

TEST_F(LossTest, SmoothingReadsTheModelsOwnLabels) {
  Scores({Dim::Symbol("N"), 2});
  graph_.AddInput("labels", {ValueKind::kTensor, DType::kInt32, SymbolicShape({Dim::Symbol("N")})});
  const auto parts = AddLoss(builder_, {.ignore_index = 1, .label_smoothing = 0.5});
  ASSERT_TRUE(parts.ok()) << parts.status();
  const auto values = Evaluate(*parts, {{"scores", Tensor::Of<double>({2, 2}, {1, 2, 3, -1})},
                                        {"labels", Tensor::Of<int32_t>({2}, {0, 1})}});
  EXPECT_NEAR(values[0], 0.75 * CrossEntropy({1, 2}, 0) + 0.25 * CrossEntropy({1, 2}, 1), 1e-12);
  EXPECT_EQ(values[1], 1);
}

TEST(ParseLossTest, KnowsTheKinds) {
  EXPECT_EQ(ParseLoss("softmax_cross_entropy")->kind, "softmax_cross_entropy");
  EXPECT_EQ(ParseLoss("mse")->kind, "mse");
  EXPECT_EQ(ParseLoss("output:my/loss:0")->kind, "output:my/loss:0");
}

TEST(ParseLossTest, OthersAreRefusedNamingTheKinds) {
  for (const std::string text : {"", "hinge", "output:", "MSE"}) {
    const auto spec = ParseLoss(text);
    EXPECT_EQ(spec.status().code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(Message(spec.status()),
                HasSubstr("there are bce_with_logits, huber, kl_div, mae, mse, "
                          "sequence_cross_entropy, softmax_cross_entropy and output:NAME"));
  }
}

// ---- The output whose name says that it is the loss.

// A model with these outputs, all one number unless said otherwise.
std::string ChosenAmong(const std::vector<std::pair<std::string, ValueType>>& outputs) {
  Graph graph;
  for (const auto& [name, type] : outputs) graph.AddOutput(graph.AddInput(name, type));
  const auto chosen = LossOutputByName(graph);
  return chosen.ok() ? *chosen : Message(chosen.status());
}

const ValueType kOneNumber = {ValueKind::kTensor, DType::kFloat32, Shape{}};
const ValueType kScores = {ValueKind::kTensor, DType::kFloat32,
                           SymbolicShape({Dim::Symbol("N"), 3})};

TEST(LossByName, IsAWordAtAnEndOfTheName) {
  for (const char* name :
       {"loss", "Loss", "lm_loss", "loss.1", "/head/loss", "loss_d", "CE Loss"}) {
    EXPECT_EQ(ChosenAmong({{"logits", kScores}, {name, kOneNumber}}), name);
  }
  for (const char* name : {"lossless", "gloss", "my_loss_scale", "floss1", "", "_"}) {
    EXPECT_EQ(ChosenAmong({{name, kOneNumber}}), "") << name;
  }
}

TEST(LossByName, IsOneFloatingPointNumber) {
  const ValueType one = {ValueKind::kTensor, DType::kFloat32, Shape{1}};
  EXPECT_EQ(ChosenAmong({{"loss", one}}), "loss");
  const ValueType whole = {ValueKind::kTensor, DType::kInt64, Shape{}};
  const ValueType open = {ValueKind::kTensor, DType::kFloat32, SymbolicShape()};
  for (const ValueType& type : {kScores, whole, open}) {
    EXPECT_EQ(ChosenAmong({{"loss", type}}), "") << type.ToString();
  }
}

TEST(LossByName, AWordAloneWinsAndEqualsAreRefused) {
  EXPECT_EQ(ChosenAmong({{"aux_loss", kOneNumber}, {"loss", kOneNumber}}), "loss");
  EXPECT_EQ(ChosenAmong({{"loss_d", kOneNumber}, {"loss_g", kOneNumber}}),
            "the names of several outputs say that they are the loss: loss_d, loss_g; give one of "
            "them, as --loss output:loss_d, or another loss");
}

}  // namespace
}  // namespace weft
