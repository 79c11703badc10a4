// Adapters on small models in float64, evaluated by the reference kernels.
#include "training/adapters/lora.h"

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
#include "training/graph/training_graph.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

constexpr DType kDouble = DType::kFloat64;

std::string Message(const absl::Status& status) { return std::string(status.message()); }

ValueType DoubleType(std::vector<Dim> dims) {
  return {ValueKind::kTensor, kDouble, SymbolicShape(std::move(dims))};
}

// A model with every kind of weight that can have an adapter, and some that cannot:
//   y = Gemm(flatten(Conv(image, kernel)) MatMul w1, w2^T) + b, with names as in a network.
class LoraTest : public ::testing::Test {
 protected:
  LoraTest() : builder_(graph_) {
    const ValueId image = graph_.AddInput("image", DoubleType({Dim::Symbol("N"), 2, 5, 5}));
    const ValueId features =
        Op("Conv", {image, Weight("kernel", {3, 2, 3, 3})},
           {{"strides", std::vector<int64_t>{2, 2}}, {"pads", std::vector<int64_t>{1, 1, 1, 1}}},
           "stem/");
    const ValueId flat = Op("Reshape", {features, builder_.Ints({-1, 3, 9})}, {}, "stem/");
    const ValueId hidden = Op("MatMul", {flat, Weight("w1", {9, 4})}, {}, "block/attn/");
    const ValueId mean =
        Op("ReduceMean", {hidden, builder_.Ints({1})}, {{"keepdims", int64_t{0}}}, "head/");
    const ValueId scores = Op("Gemm", {mean, Weight("w2", {6, 4}), Weight("bias", {6})},
                              {{"transB", int64_t{1}}, {"alpha", 0.5f}}, "head/");
    builder_.Name(scores, "scores");
    graph_.AddOutput(scores);
    EXPECT_TRUE(builder_.status().ok()) << builder_.status();
  }

  ValueId Weight(const std::string& name, Shape shape) {
    return graph_.AddVariable(name, {ValueKind::kTensor, kDouble, shape},
                              testing::RandomTensor(shape, ++weights_, -1, 1, kDouble), true);
  }

  ValueId Op(const std::string& op, std::vector<ValueId> inputs, Attributes attributes,
             const std::string& place) {
    builder_.set_name_prefix(place);
    return builder_.Op(op, std::move(inputs), std::move(attributes));
  }

  static std::vector<double> Scores(const Graph& graph) {
    const Tensor image = testing::RandomTensor({3, 2, 5, 5}, 77, -1, 1, kDouble);
    std::map<ValueId, Tensor> feeds = {{*graph.FindValue("image"), image}};
    for (const Variable& variable : graph.variables()) {
      if (variable.initial.valid()) continue;
      const Shape shape = *graph.value(variable.value).type.shape.ToConcrete();
      feeds[variable.value] = Tensor::Zeros(kDouble, shape).value();
    }
    const auto values = testing::EvaluateGraph(graph, feeds, {*graph.FindValue("scores")},
                                               KernelRegistry::Reference());
    EXPECT_TRUE(values.ok()) << values.status();
    return values.ok() ? *ToDoubles(values->front()) : std::vector<double>();
  }

  // As if it had been trained: random values in all adapters. By name.
  static std::map<std::string, Tensor> Train(Graph& graph,
                                             const std::vector<LoraAdapter>& adapters) {
    std::map<std::string, Tensor> values;
    uint64_t seed = 100;
    for (const LoraAdapter& adapter : adapters) {
      for (const std::string& name : {adapter.a, adapter.b}) {
        for (Variable& variable : graph.mutable_variables()) {
          if (variable.name != name) continue;
          const Shape shape = *graph.value(variable.value).type.shape.ToConcrete();
          variable.initial = testing::RandomTensor(shape, ++seed, -1, 1, kDouble);
          values[name] = variable.initial;
        }
      }
    }
    return values;
  }

  static std::vector<std::string> Trainable(const Graph& graph) {
    std::vector<std::string> names;
    for (const Variable& variable : graph.variables()) {
      if (variable.trainable) names.push_back(variable.name);
    }
    return names;
  }

  // The scores of the graph with adapters, and of the model with the merged weights.
  static void ExpectMergedIsTheSame(const Graph& model, const LoraSpec& spec) {
    Graph tuned = model.Clone();
    const auto adapters = AddAdapters(tuned, spec, 1);
    ASSERT_TRUE(adapters.ok()) << adapters.status();
    const auto merged = MergeAdapters(tuned, *adapters, Train(tuned, *adapters));
    ASSERT_TRUE(merged.ok()) << merged.status();
    Graph exported = model.Clone();
    for (Variable& variable : exported.mutable_variables()) {
      if (merged->contains(variable.name)) variable.initial = merged->at(variable.name);
    }
    EXPECT_EQ(merged->size(), adapters->size());
    const std::vector<double> before = Scores(model), with = Scores(tuned), as = Scores(exported);
    ASSERT_EQ(with.size(), as.size());
    double change = 0;
    for (size_t i = 0; i < as.size(); ++i) {
      EXPECT_NEAR(with[i], as[i], 1e-12);
      change += std::abs(with[i] - before[i]);
    }
    EXPECT_GT(change, 0.1);
  }

  std::string AddError(const LoraSpec& spec) {
    const auto adapters = AddAdapters(graph_, spec, 1);
    EXPECT_EQ(adapters.status().code(), absl::StatusCode::kInvalidArgument);
    return Message(adapters.status());
  }

  Graph graph_;
  GraphBuilder builder_;
  uint64_t weights_ = 0;
};

TEST_F(LoraTest, ScoresBeginAsTheModelsOwn) {
  const std::vector<double> before = Scores(graph_);
  const auto adapters = AddAdapters(graph_, {.rank = 2, .alpha = 16}, 1);
  ASSERT_TRUE(adapters.ok()) << adapters.status();
  EXPECT_EQ(adapters->size(), 3u);
  EXPECT_TRUE(VerifyGraph(graph_).ok()) << VerifyGraph(graph_);
  EXPECT_EQ(Scores(graph_), before);
}

TEST_F(LoraTest, MergedWeightsGiveTheScoresOfTheAdapters) {
  ExpectMergedIsTheSame(graph_, {.rank = 2, .alpha = 6});
  ExpectMergedIsTheSame(graph_, {.rank = 2, .match = {"kernel"}});
  ExpectMergedIsTheSame(graph_, {.rank = 1, .alpha = 3, .match = {"*attn*", "head/*"}});
}

TEST_F(LoraTest, ARankBeyondTheWeightIsThatOfTheWeight) {
  const auto adapters = AddAdapters(graph_, {.rank = 64}, 1);
  ASSERT_TRUE(adapters.ok()) << adapters.status();
  const auto type = [&](const std::string& name) {
    return graph_.value(graph_.FindVariable(name)->value).type.shape.ToString();
  };
  EXPECT_EQ(type("kernel/lora_A"), "[3,2,3,3]");
  EXPECT_EQ(type("kernel/lora_B"), "[3,3,1,1]");
  EXPECT_EQ(type("w1/lora_A"), "[9,4]");
  EXPECT_EQ(type("w1/lora_B"), "[4,4]");
  EXPECT_EQ(type("w2/lora_A"), "[4,4]");
  EXPECT_EQ(type("w2/lora_B"), "[6,4]");
}

TEST_F(LoraTest, AWeightOfARankBeyondItsAxesIsMergedToo) {
  ExpectMergedIsTheSame(graph_, {.rank = 64, .alpha = 128});
}

TEST_F(LoraTest, OnlyAdaptersTrain) {
  ASSERT_TRUE(AddAdapters(graph_, {.rank = 2, .match = {"block/attn/*"}}, 1).ok());
  EXPECT_THAT(Trainable(graph_), UnorderedElementsAre("w1/lora_A", "w1/lora_B"));
}

TEST_F(LoraTest, AHeadMayTrainItself) {
  ASSERT_TRUE(AddAdapters(graph_, {.rank = 2, .match = {"*attn*"}, .train = {"head/*"}}, 1).ok());
  EXPECT_THAT(Trainable(graph_), UnorderedElementsAre("w1/lora_A", "w1/lora_B", "w2", "bias"));
}

TEST_F(LoraTest, NamesOfValuesStay) {
  const std::string output =
      graph_.value(graph_.node(*graph_.FindNode("block/attn/MatMul")).outputs.front()).name;
  ASSERT_TRUE(AddAdapters(graph_, {}, 1).ok());
  EXPECT_EQ(graph_.value(graph_.outputs().front()).name, "scores");
  // What goes on is the sum.
  const ValueId value = *graph_.FindValue(output);
  EXPECT_EQ(graph_.node(graph_.value(value).producer).op, "Add");
}

TEST_F(LoraTest, ATiedWeightHasOneAdapter) {
  // scores + (mean w2^T) w2 w2^T: the same weight as it is, and transposed.
  const ValueId w2 = graph_.FindVariable("w2")->value;
  const ValueId scores = graph_.outputs().front();
  const ValueId back = Op("MatMul", {scores, w2}, {}, "tied/");
  const ValueId again = Op("Gemm", {back, w2}, {{"transB", int64_t{1}}}, "tied/");
  graph_.RenameValue(scores, "first");
  const ValueId sum = Op("Add", {scores, again}, {}, "tied/");
  builder_.Name(sum, "scores");
  graph_.SetOutputs({sum});
  ASSERT_TRUE(builder_.status().ok()) << builder_.status();
  ExpectMergedIsTheSame(graph_, {.rank = 2, .alpha = 5, .match = {"w2"}});
  const auto adapters = AddAdapters(graph_, {.rank = 2, .match = {"tied/*"}}, 1);
  ASSERT_TRUE(adapters.ok()) << adapters.status();
  EXPECT_THAT(Trainable(graph_), UnorderedElementsAre("w2/lora_A", "w2/lora_B"));
}

TEST_F(LoraTest, AWeightThatIsAlsoReadOtherwiseHasNone) {
  const ValueId turned = Op("Transpose", {graph_.FindVariable("w1")->value}, {}, "embed/");
  graph_.AddOutput(turned);
  EXPECT_EQ(AddError({.match = {"w1"}}),
            "--lora match=w1: 'w1' can have no adapter, which needs a weight that only MatMul, "
            "Gemm or Conv of one group reads: Transpose node 'embed/Transpose' reads it");
  EXPECT_THAT(AddError({.match = {"bias"}}), HasSubstr("Gemm node 'head/Gemm' reads it"));
}

TEST_F(LoraTest, APatternThatFitsNothingNamesWhatIsNear) {
  const std::string error = AddError({.match = {"*atn*"}});
  EXPECT_THAT(error, HasSubstr("--lora match=*atn* fits no weight that trains"));
  EXPECT_THAT(error, HasSubstr("did you mean 'attn'?"));
  EXPECT_THAT(error, HasSubstr("'w1' (node 'block/attn/MatMul')"));
  EXPECT_THAT(AddError({.train = {"tail*"}}), HasSubstr("--lora train=tail* fits no weight"));
}

TEST_F(LoraTest, WhatTrainsItselfHasNoAdapter) {
  EXPECT_THAT(AddError({.match = {"w2"}, .train = {"w2"}}),
              HasSubstr("'w2' trains itself, by train="));
}

TEST_F(LoraTest, FrozenWeightsHaveNoAdapter) {
  for (Variable& variable : graph_.mutable_variables()) {
    variable.trainable = variable.name != "kernel";
  }
  const auto adapters = AddAdapters(graph_, {}, 1);
  ASSERT_TRUE(adapters.ok()) << adapters.status();
  EXPECT_EQ(graph_.FindVariable("kernel/lora_A"), nullptr);
  EXPECT_EQ(adapters->size(), 2u);
}

TEST_F(LoraTest, WhatAdaptersBeginWithIsAFunctionOfSeedAndName) {
  const auto drawn = [&](uint64_t seed, const std::vector<std::string>& match) {
    Graph graph = graph_.Clone();
    EXPECT_TRUE(AddAdapters(graph, {.rank = 4, .match = match}, seed).ok());
    return *ToDoubles(graph.FindVariable("w1/lora_A")->initial);
  };
  EXPECT_EQ(drawn(1, {}), drawn(1, {"w1"}));
  EXPECT_NE(drawn(1, {}), drawn(2, {}));
  double squares = 0;
  const std::vector<double> values = drawn(3, {});
  for (const double value : values) squares += value * value;
  // 36 numbers of variance 1 / 9.
  EXPECT_NEAR(squares / static_cast<double>(values.size()), 1.0 / 9, 0.06);
}

TEST_F(LoraTest, BatchNormalizationOfAFrozenModelStaysInEvaluation) {
  const ValueId scores = graph_.outputs().front();
  graph_.RenameValue(scores, "raw");
  std::vector<ValueId> inputs = {scores};
  for (const char* name : {"scale", "shift"}) inputs.push_back(Weight(name, {6}));
  for (const char* name : {"running_mean", "running_variance"}) {
    inputs.push_back(graph_.AddVariable(name, {ValueKind::kTensor, kDouble, Shape{6}},
                                        testing::RandomTensor({6}, 50, 0.5, 1, kDouble), false));
  }
  const std::vector<ValueId> made = builder_.Ops(
      "", "BatchNormalization", inputs, {{"training_mode", int64_t{1}}}, {true, true, true});
  builder_.Name(made[0], "scores");
  graph_.SetOutputs({made[0]});
  ASSERT_TRUE(builder_.status().ok()) << builder_.status();
  ASSERT_TRUE(AddAdapters(graph_, {.rank = 2, .match = {"w1"}}, 1).ok());
  const auto step = BuildTrainingGraph(graph_, {});
  ASSERT_TRUE(step.ok()) << step.status();
  for (const Variable& variable : step->variables()) {
    const bool is_adapter = variable.name.starts_with("w1/lora_");
    EXPECT_EQ(variable.update.valid(), is_adapter) << variable.name;
  }
}

TEST(ParseLoraTest, ItemsAreKeysAndValues) {
  const auto spec = ParseLora({"rank=4", "alpha=16", "match=*attn*", "match=*mlp*", "train=head*"});
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->rank, 4);
  EXPECT_EQ(spec->scale(), 4);
  EXPECT_THAT(spec->match, ElementsAre("*attn*", "*mlp*"));
  EXPECT_THAT(spec->train, ElementsAre("head*"));
  EXPECT_EQ(ParseLora({"rank=4"})->scale(), 1);
}

TEST(ParseLoraTest, MistakesAreShown) {
  const auto error = [](const std::string& item) { return Message(ParseLora({item}).status()); };
  EXPECT_EQ(error("rank=0"), "--lora rank=0: expected a whole number from 1 to 65536 after rank=");
  EXPECT_EQ(error("alpha=-1"), "--lora alpha=-1: expected a number above 0 after alpha=");
  EXPECT_EQ(error("match="), "--lora match=: expected a pattern after match=");
  EXPECT_EQ(error("rnk=8"),
            "--lora rnk=8: unknown key 'rnk', did you mean 'rank'?; expected "
            "rank=N,alpha=X,match=PATTERN,train=PATTERN");
}

}  // namespace
}  // namespace weft
