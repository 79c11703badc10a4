#include "graph/verifier.h"

#include <string>

#include "gmock/gmock.h"
#include "graph/testing/test_ops.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using weft::testing::AddOp;
using weft::testing::Floats;
using weft::testing::FloatsOf;
using weft::testing::Int64s;

// A small training step that keeps every invariant: loss = -(x + w), a backward node, Accumulate
// and an update.
class VerifierTest : public ::testing::Test {
 protected:
  VerifierTest() {
    x_ = graph_.AddInput("x", Floats({2}));
    rate_ = graph_.AddInput("rate", Floats({2}), InputRole::kStep);
    w_ = graph_.AddVariable("w", Floats({2}), FloatsOf({2}, 1), true);
    sum_ = AddOp(graph_, "sum", "Add", {x_, w_});
    loss_ = AddOp(graph_, "loss", "Negate", {sum_});
    gradient_ = AddOp(graph_, "gradient", "Negate", {loss_});
    NodeOf(gradient_).phase = Phase::kBackward;
    NodeOf(gradient_).origin.forward_node = "loss_node";
    total_ = AddOp(graph_, "total", "Accumulate", {gradient_});
    NodeOf(total_).phase = Phase::kUpdate;
    new_w_ = AddOp(graph_, "new_w", "Add", {total_, rate_});
    NodeOf(new_w_).phase = Phase::kUpdate;
    NodeOf(new_w_).origin.logical_value = "w";
    graph_.SetVariableUpdate("w", new_w_);
    graph_.AddOutput(loss_);
  }

  Node& NodeOf(ValueId value) { return graph_.node(graph_.value(value).producer); }
  std::string Verify() {
    VerifyOptions options;
    options.concrete_shapes = true;
    options.training = true;
    return VerifyGraph(graph_, options).ToString();
  }

  Graph graph_;
  ValueId x_, rate_, w_, sum_, loss_, gradient_, total_, new_w_;
};

TEST_F(VerifierTest, GoodGraphPasses) { EXPECT_EQ(Verify(), "OK"); }

TEST_F(VerifierTest, Invariant1InputBeyondTheGraph) {
  NodeOf(sum_).inputs[1] = ValueId(99);
  EXPECT_EQ(
      Verify(),
      "INTERNAL: invariant 1: node 'sum_node' (test::Add): input 1 (value 99) is no value of the "
      "graph");
}

TEST_F(VerifierTest, Invariant1RemovedInput) {
  const ValueId c = graph_.AddConstant("c", FloatsOf({2}, 1));
  NodeOf(sum_).inputs[1] = c;
  graph_.RemoveConstant(c);
  EXPECT_THAT(Verify(), HasSubstr("invariant 1: node 'sum_node'"));
}

TEST_F(VerifierTest, Invariant2TwoNodesDefineOneValue) {
  NodeOf(loss_).outputs[0] = sum_;
  graph_.SetOutputs({});
  EXPECT_THAT(Verify(), HasSubstr("invariant 2: value 'sum' has 2 definitions"));
}

TEST_F(VerifierTest, Invariant2NobodyDefinesAValue) {
  NodeOf(sum_).outputs[0] = kNoValue;
  EXPECT_THAT(Verify(), HasSubstr("invariant 2: value 'sum' has 0 definitions"));
}

TEST_F(VerifierTest, Invariant2WrongSourceOrPosition) {
  graph_.value(sum_).output_index = 1;
  EXPECT_THAT(Verify(), HasSubstr("invariant 2: node 'sum_node' (test::Add): value 'sum' says"));
  graph_.value(sum_).output_index = 0;
  graph_.value(sum_).source = ValueSource::kInput;
  EXPECT_THAT(Verify(), HasSubstr("invariant 2: node 'sum_node' (test::Add) defines value"));
}

TEST_F(VerifierTest, Invariant2ConstantWithoutATensor) {
  graph_.value(graph_.AddConstant("c", FloatsOf({1}, 1))).constant = Tensor();
  EXPECT_THAT(Verify(), HasSubstr("invariant 2: constant 'c' has no tensor"));
}

TEST_F(VerifierTest, Invariant3Cycle) {
  NodeOf(sum_).inputs[0] = loss_;
  EXPECT_THAT(Verify(),
              AllOf(HasSubstr("invariant 3: the graph has a cycle"), HasSubstr("'sum_node'")));
}

TEST_F(VerifierTest, Invariant4EmptyAndTakenNodeNames) {
  NodeOf(sum_).name = "loss_node";
  EXPECT_THAT(Verify(), HasSubstr("invariant 4: node 'loss_node' (test::Add)"));
  NodeOf(sum_).name = "";
  EXPECT_THAT(Verify(), HasSubstr("invariant 4: a node (test::Add) has no name"));
}

TEST_F(VerifierTest, Invariant4EmptyAndTakenValueNames) {
  graph_.value(sum_).name = "x";
  EXPECT_THAT(Verify(), HasSubstr("invariant 4: value 'x'"));
  graph_.value(sum_).name = "";
  EXPECT_THAT(Verify(), HasSubstr("has no name"));
}

TEST_F(VerifierTest, Invariant5TooFewAndTooManyInputs) {
  NodeOf(sum_).inputs = {x_};
  EXPECT_EQ(Verify(),
            "INTERNAL: invariant 5: node 'sum_node' (test::Add): lacks the required input 1 ('b')");
  NodeOf(sum_).inputs = {x_, w_, w_};
  EXPECT_EQ(Verify(),
            "INTERNAL: invariant 5: node 'sum_node' (test::Add): has 3 inputs, expected at most 2");
}

TEST_F(VerifierTest, Invariant5InputOfAWrongType) {
  const ValueId index = graph_.AddInput("index", Int64s({2}));
  const ValueId y = AddOp(graph_, "y", "Strict", {x_}, {{"level", int64_t{1}}});
  NodeOf(y).inputs[0] = index;
  EXPECT_EQ(
      Verify(),
      "INTERNAL: invariant 5: node 'y_node' (test::Strict): input 0 ('x') is int64, expected one "
      "of float32");
}

TEST_F(VerifierTest, Invariant5Attributes) {
  Attributes& attributes =
      NodeOf(AddOp(graph_, "y", "Strict", {x_}, {{"level", int64_t{1}}})).attributes;
  EXPECT_EQ(Verify(), "OK");
  attributes.Set("other", 1.0f);
  EXPECT_THAT(Verify(), HasSubstr("invariant 5: node 'y_node' (test::Strict): has the attribute "
                                  "'other', which test::Strict does not know"));
  attributes.Erase("other");
  attributes.Set("level", 1.0f);
  EXPECT_THAT(Verify(), HasSubstr("attribute 'level' is of type float, expected int"));
  attributes.Erase("level");
  EXPECT_THAT(Verify(), HasSubstr("lacks the required attribute 'level' (int)"));
}

TEST_F(VerifierTest, Invariant6OutputBeyondTheGraph) {
  graph_.SetOutputs({loss_, ValueId(99)});
  EXPECT_THAT(Verify(), HasSubstr("invariant 6: graph output 1 (value 99)"));
}

TEST_F(VerifierTest, Invariant7TypeOfAnOutput) {
  graph_.value(loss_).type.dtype = DType::kInt32;
  EXPECT_EQ(
      Verify(),
      "INTERNAL: invariant 7: node 'loss_node' (test::Negate): output 'loss' is int32[2], but its "
      "shape function says float32[2]");
}

TEST_F(VerifierTest, Invariant7ShapeFunctionRefuses) {
  graph_.value(x_).type = Floats({2, 2});
  EXPECT_THAT(Verify(),
              AllOf(HasSubstr("invariant 7: node 'sum_node'"), HasSubstr("the ranks differ")));
}

TEST_F(VerifierTest, Invariant7SaysNothingBeforeInference) {
  graph_.value(loss_).type = ValueType();
  EXPECT_EQ(VerifyGraph(graph_).ToString(), "OK");
}

TEST_F(VerifierTest, Invariant8UpdateOfAnotherShape) {
  graph_.value(new_w_).type = Floats({3});
  EXPECT_EQ(
      Verify(),
      "INTERNAL: invariant 8: variable 'w' is float32[2], but its update 'new_w' is float32[3]");
}

TEST_F(VerifierTest, Invariant8UpdateBeyondTheGraph) {
  graph_.SetVariableUpdate("w", ValueId(99));
  EXPECT_THAT(VerifyGraph(graph_).message(), HasSubstr("invariant 8: variable 'w'"));
}

TEST_F(VerifierTest, Invariant8TwoVariablesOfOneName) {
  graph_.AddVariable("v", Floats({2}), Tensor(), true);
  graph_.mutable_variables()[1].name = "w";
  EXPECT_THAT(Verify(), HasSubstr("invariant 8: variable 'w' is there twice"));
}

TEST_F(VerifierTest, Invariant9BackwardNodeWithoutOrigin) {
  NodeOf(gradient_).origin = Origin();
  EXPECT_EQ(
      Verify(),
      "INTERNAL: invariant 9: node 'gradient_node' (test::Negate): this backward node does not "
      "name the forward node it comes from");
}

TEST_F(VerifierTest, Invariant9UpdateWithoutOrigin) {
  NodeOf(new_w_).inputs = {total_, w_};
  NodeOf(new_w_).origin = Origin();
  EXPECT_THAT(Verify(), HasSubstr("invariant 9: node 'new_w_node'"));
}

TEST_F(VerifierTest, Invariant9SparesWhatBelongsToTheStep) {
  const ValueId seed = AddOp(graph_, "seed", "Negate", {rate_});
  const ValueId scaled = AddOp(graph_, "scaled", "Negate", {seed});
  NodeOf(seed).phase = Phase::kBackward;
  NodeOf(scaled).phase = Phase::kBackward;
  EXPECT_EQ(Verify(), "OK");
}

TEST_F(VerifierTest, Invariant10StepReadsAMicroBatchValue) {
  NodeOf(new_w_).inputs[0] = gradient_;
  EXPECT_EQ(Verify(),
            "INTERNAL: invariant 10: node 'new_w_node' (test::Add): reads the micro-batch value "
            "'gradient' in the update phase without Accumulate");
}

TEST_F(VerifierTest, Invariant10StepReadsAnInputThatIsPerSample) {
  NodeOf(new_w_).inputs[1] = x_;
  EXPECT_THAT(Verify(),
              HasSubstr("invariant 10: node 'new_w_node' (test::Add): reads the micro-batch "
                        "value 'x'"));
}

TEST_F(VerifierTest, Invariant11SymbolicShape) {
  graph_.value(sum_).type = Floats({"N"});
  EXPECT_EQ(
      Verify(),
      "INTERNAL: invariant 11: node 'sum_node' (test::Add): value 'sum' is float32[N], expected a "
      "concrete shape");
}

TEST_F(VerifierTest, TrainingAndConcretenessAreAskedFor) {
  graph_.value(sum_).type = Floats({"N"});
  NodeOf(gradient_).origin = Origin();
  NodeOf(new_w_).inputs[0] = gradient_;
  EXPECT_EQ(VerifyGraph(graph_).ToString(), "OK");
}

}  // namespace
}  // namespace weft
