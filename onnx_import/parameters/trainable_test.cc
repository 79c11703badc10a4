#include "onnx_import/parameters/trainable.h"

#include <limits>
#include <map>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "graph/op_schema.h"
#include "gtest/gtest.h"
#include "onnx_import/testing/test_models.h"

namespace weft::testing {
namespace {

using ::testing::HasSubstr;

absl::Status NoGradientRule(GradientContext&) { return absl::OkStatus(); }

OpSchema TestOp(std::string name) { return OpSchema("test", std::move(name)); }

// y = scale * (x - mean), with a shape that is given as a value.
WEFT_REGISTER_OP(TestOp("Norm")
                     .Input("X")
                     .Input("scale")
                     .Learnable()
                     .OptionalInput("mean")
                     .NeverLearnable()
                     .OptionalInput("sizes")
                     .ValueInputs({3})
                     .Output("Y")
                     .Gradient(NoGradientRule));
WEFT_REGISTER_OP(TestOp("Plus").Input("A").Input("B").Output("Y").Gradient(NoGradientRule));
WEFT_REGISTER_OP(TestOp("Compare").Input("A").Input("B").Output("Y").NoGradient("truth values"));

class MarkTrainableTest : public ::testing::Test {
 protected:
  void Load(const std::string& body) {
    auto model = Import(ModelOf(17, body));
    ASSERT_TRUE(model.ok()) << model.status();
    graph_ = std::move(model->graph);
  }

  void Mark(const TrainableOptions& options = {}) {
    const auto decisions = MarkTrainable(graph_, options);
    ASSERT_TRUE(decisions.ok()) << decisions.status();
    for (const ParameterDecision& decision : *decisions) decisions_[decision.name] = decision;
  }

  bool Trains(const std::string& name) {
    const Variable* variable = graph_.FindVariable(name);
    const bool trains = variable != nullptr && variable->trainable;
    EXPECT_EQ(decisions_[name].trainable, trains) << name;
    return trains;
  }

  Graph graph_;
  std::map<std::string, ParameterDecision> decisions_;
};

TEST_F(MarkTrainableTest, TakesOrdinaryOperandsOfSeveralElements) {
  Load(
      "agraph (float[2] x) => (float[2] y) <float[2] w = {1, 2}, float[1] c = {3}> {"
      "  h = test.Plus (x, w)  y = test.Plus (h, c) }");
  Mark();
  EXPECT_TRUE(Trains("w"));
  EXPECT_EQ(decisions_["w"].reason, "reaches the loss at Plus.B (node 'Plus_0')");
  EXPECT_FALSE(Trains("c"));
  EXPECT_EQ(decisions_["c"].reason, "has one element at Plus.B (node 'Plus_1')");
  EXPECT_EQ(graph_.value(*graph_.FindValue("c")).source, ValueSource::kConstant);
}

TEST_F(MarkTrainableTest, AsksTheSchemaAboutPorts) {
  Load(
      "agraph (float[2] x) => (float[2] y) <float[1] s = {1}, float[2] m = {3, 4}, "
      "float[2] z = {1, 1}> { y = test.Norm (x, s, m, z) }");
  Mark();
  EXPECT_TRUE(Trains("s"));
  EXPECT_FALSE(Trains("m"));
  EXPECT_EQ(decisions_["m"].reason, "is never learnable at Norm.mean (node 'Norm_0')");
  EXPECT_NE(graph_.FindVariable("m"), nullptr) << "running statistics stay variables";
  EXPECT_FALSE(Trains("z"));
  EXPECT_THAT(decisions_["z"].reason, HasSubstr("decides a shape at Norm.sizes"));
  EXPECT_EQ(graph_.FindVariable("z"), nullptr);
}

// A causal mask of -inf trained: 0 x -inf made the exported file NaN after one step.
TEST_F(MarkTrainableTest, MasksNeverTrain) {
  Load(
      "agraph (float[2] x) => (float[2] y) <float[2] w = {1, 2}, float[2] mask = {0, 3}, "
      "float[2] low = {0, 3}, float[2] broken = {0, 3}> {"
      "  a = test.Plus (x, w)  b = test.Plus (a, mask)  c = test.Plus (b, low)"
      "  y = test.Plus (c, broken) }");
  const auto set = [&](const char* name, float value) {
    for (Variable& variable : graph_.mutable_variables()) {
      if (variable.name == name) variable.initial = Tensor::Of<float>({2}, {0, value});
    }
  };
  set("mask", -std::numeric_limits<float>::infinity());
  set("low", std::numeric_limits<float>::lowest());
  set("broken", std::numeric_limits<float>::quiet_NaN());
  const Graph given = graph_.Clone();
  Mark({.trainable = {"*"}});
  EXPECT_TRUE(Trains("w"));
  for (const char* const name : {"mask", "low", "broken"}) EXPECT_FALSE(Trains(name)) << name;
  EXPECT_EQ(decisions_["mask"].reason, "holds -inf (element 1), as masks do and parameters do not");
  Graph named = given.Clone();
  EXPECT_THAT(std::string(MarkTrainable(named, {.trainable = {"mask"}}).status().message()),
              HasSubstr("--trainable 'mask': the tensor holds -inf"));
}

TEST_F(MarkTrainableTest, FollowsGradientsThroughOperators) {
  Load(
      "agraph (float[2] x) => (float[2] y, float[2] side) <float[2] a = {1, 2}, "
      "float[2] b = {1, 2}, float[2] c = {1, 2}, float[2] d = {1, 2}> {"
      "  p = test.Plus (a, a)  q = test.Compare (b, b)  r = test.Plus (c, c)"
      "  y = test.Norm (x, p, r)  side = test.Plus (q, d) }");
  Mark({.loss = "y"});
  EXPECT_TRUE(Trains("a"));
  EXPECT_FALSE(Trains("b")) << "behind an operator without gradient";
  EXPECT_FALSE(Trains("c")) << "behind a port that is never learnable";
  EXPECT_FALSE(Trains("d")) << "on the way to another output";
  EXPECT_EQ(decisions_["d"].reason, "does not reach the loss");
}

TEST_F(MarkTrainableTest, LeavesConstNamesAndFrozenOnesAlone) {
  Load(
      "agraph (float[2] x) => (float[2] y) <float[2] const_mask = {1, 2}, float[2] w = {1, 2}> {"
      "  h = test.Plus (x, const_mask)  y = test.Plus (h, w) }");
  graph_.RenameValue(*graph_.FindValue("const_mask"), "const.mask");
  graph_.mutable_variables()[0].name = "const.mask";
  Mark({.freeze = {"w*"}});
  EXPECT_FALSE(Trains("const.mask"));
  EXPECT_FALSE(Trains("w"));
  EXPECT_EQ(decisions_["w"].reason, "frozen by 'w*'");
  EXPECT_NE(graph_.FindVariable("w"), nullptr) << "frozen weights stay variables";
}

TEST_F(MarkTrainableTest, AddsWhatIsAskedFor) {
  Load("agraph (float[2] x) => (float[2] y) <float[1] c = {3}> { y = test.Plus (x, c) }");
  Mark({.trainable = {"?"}});
  EXPECT_TRUE(Trains("c"));
  EXPECT_EQ(decisions_["c"].reason, "made trainable by '?'");
}

// A name was passed over in silence, unless the tensor held an infinity.
TEST_F(MarkTrainableTest, RefusesNamesOfTensorsThatCannotTrain) {
  Load(
      "agraph (float[2] x) => (float[2] y, float[2] side) <float[2] w = {1, 2}, "
      "float[2] other = {1, 2}, float[2] sizes = {1, 1}> {"
      "  h = test.Plus (x, w)  y = test.Norm (h, h, h, sizes)  side = test.Plus (x, other) }");
  const auto refusal = [this](TrainableOptions options) {
    Graph graph = graph_.Clone();
    return std::string(MarkTrainable(graph, options).status().message());
  };
  EXPECT_EQ(refusal({.freeze = {"w*"}, .trainable = {"w"}}),
            "--trainable 'w': the tensor is frozen by 'w*'; take it out of --freeze, or do not ask "
            "for it");
  EXPECT_EQ(refusal({.trainable = {"other"}, .loss = "y"}),
            "--trainable 'other': the tensor does not reach the loss; it cannot train. Leave it "
            "out, or take a loss that depends on it");
  EXPECT_EQ(refusal({.trainable = {"sizes"}}),
            "--trainable 'sizes': the tensor decides a shape at Norm.sizes (node 'Norm_1'); it "
            "cannot train. Leave it out");
  // A pattern may match such tensors among others.
  EXPECT_EQ(refusal({.freeze = {"w"}, .trainable = {"*"}, .loss = "y"}), "");
}

TEST_F(MarkTrainableTest, RefusesPatternsThatMatchNothing) {
  Load("agraph (float[2] x) => (float[2] y) <float[1] c = {3}> { y = test.Plus (x, c) }");
  EXPECT_EQ(
      MarkTrainable(graph_, {.freeze = {"fc*"}}).status().message(),
      "--freeze 'fc*' matches none of the model's 1 float tensors (such as 'c'); graph_runner "
      "inspect lists them");
}

TEST_F(MarkTrainableTest, RefusesUnknownLosses) {
  Load("agraph (float[2] x) => (float[2] y) { y = test.Plus (x, x) }");
  EXPECT_EQ(MarkTrainable(graph_, {.loss = "q"}).status().message(),
            "the loss 'q' is no value of the model, expected one of its outputs: 'y'");
}

}  // namespace
}  // namespace weft::testing
