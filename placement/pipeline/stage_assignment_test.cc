#include "placement/pipeline/stage_assignment.h"

#include "gmock/gmock.h"
#include "graph/graph_builder.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

using ::testing::HasSubstr;

// tokens -> embed -> body -> head -> loss, with the embedding's weight used again in the head, and
// its gradients, sums and update by hand.
class StageAssignmentTest : public testing::Test {
 protected:
  StageAssignmentTest() : builder_(graph_) {
    const ValueType matrix = {ValueKind::kTensor, DType::kFloat32, Shape{4, 4}};
    tied_ = graph_.AddVariable("tied", matrix, Tensor(), true);
    weight_ = graph_.AddVariable("weight", matrix, Tensor(), true);
    const ValueId state = graph_.AddVariable("weight/velocity", matrix, Tensor(), false);
    graph_.mutable_variables().back().slot_of = "weight";
    (void)state;
    const ValueId x = graph_.AddInput("x", matrix);
    const ValueId labels = graph_.AddInput("labels", matrix);
    const ValueId h = Add("embed", "MatMul", {x, tied_});
    const ValueId b = Add("body", "MatMul", {h, weight_});
    const ValueId transposed = Add("transpose", "Transpose", {tied_});
    const ValueId y = Add("head", "MatMul", {b, transposed});
    const ValueId cast = Add("labels_cast", "Identity", {labels});
    const ValueId loss = Add("loss", "Sub", {y, cast});
    count_ = Add("count", "Identity", {labels});
    builder_.set_phase(Phase::kBackward);
    const ValueId dy = Backward("grad/loss", "loss", "y", {loss});
    const ValueId dhead = Backward("grad/head", "head", "tied", {dy});
    const ValueId dbody = Backward("grad/body", "body", "weight", {dy});
    const ValueId dembed = Backward("grad/embed", "embed", "tied", {dbody});
    // Where the differentiator met the variable first, which is late.
    const ValueId dtied = Backward("grad/sum", "head", "tied", {dhead, dembed});
    builder_.set_phase(Phase::kUpdate);
    sum_tied_ = Step("sum/tied", "Accumulate", "ai.weft", {dtied});
    sum_weight_ = Step("sum/weight", "Accumulate", "ai.weft", {dbody});
    const ValueId sum_loss = Step("sum/loss", "Accumulate", "ai.weft", {loss});
    const ValueId sum_count = Step("sum/count", "Accumulate", "ai.weft", {count_});
    graph_.AddOutput(Step("mean", "Div", "", {sum_loss, sum_count}));
    const ValueId scale = Step("scale", "Reciprocal", "", {sum_count});
    graph_.SetVariableUpdate("tied", Step("update/tied", "Mul", "", {sum_tied_, scale}));
    graph_.SetVariableUpdate("weight", Step("update/weight", "Mul", "", {sum_weight_, scale}));
  }

  ValueId AddNode(const std::string& name, const std::string& op, const std::string& domain,
                  std::vector<ValueId> inputs, Phase phase, Origin origin) {
    Graph::NodeSpec spec;
    spec.name = name;
    spec.op = op;
    spec.domain = domain;
    spec.inputs = std::move(inputs);
    spec.outputs = {name + "/out"};
    spec.phase = phase;
    spec.origin = std::move(origin);
    return graph_.node(graph_.AddNode(std::move(spec))).outputs[0];
  }
  ValueId Add(const std::string& name, const std::string& op, std::vector<ValueId> inputs) {
    return AddNode(name, op, "", std::move(inputs), Phase::kForward, {});
  }
  ValueId Backward(const std::string& name, const std::string& forward, const std::string& value,
                   std::vector<ValueId> inputs) {
    return AddNode(name, "Sum", "", std::move(inputs), Phase::kBackward, {forward, value, true});
  }
  ValueId Step(const std::string& name, const std::string& op, const std::string& domain,
               std::vector<ValueId> inputs) {
    return AddNode(name, op, domain, std::move(inputs), Phase::kUpdate, {});
  }

  static Plan Stages(int pipeline, std::map<std::string, int> stages) {
    Plan plan;
    plan.mesh.pipeline = pipeline;
    plan.stages = std::move(stages);
    return plan;
  }
  int StageOf(const std::string& node) const {
    return graph_.node(*graph_.FindNode(node)).stage.value;
  }
  std::string ErrorOf(const Plan& plan) {
    const absl::Status status = AssignStages(graph_, plan).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  }

  Graph graph_;
  GraphBuilder builder_;
  ValueId tied_, weight_, count_, sum_tied_, sum_weight_;
};

TEST_F(StageAssignmentTest, ForwardNodesFollowThePlanThenWhatTheyRead) {
  ASSERT_TRUE(AssignStages(graph_, Stages(3, {{"embed", 0}, {"body", 1}, {"head", 2}})).ok());
  EXPECT_EQ(StageOf("embed"), 0);
  EXPECT_EQ(StageOf("body"), 1);
  EXPECT_EQ(StageOf("loss"), 2);
}

TEST_F(StageAssignmentTest, WhatReadsOnlyInputsAndWeightsFollowsItsReader) {
  ASSERT_TRUE(AssignStages(graph_, Stages(2, {{"embed", 0}, {"body", 0}, {"head", 1}})).ok());
  EXPECT_EQ(StageOf("transpose"), 1);
  EXPECT_EQ(StageOf("labels_cast"), 1);
  EXPECT_EQ(StageOf("count"), 1);
}

TEST_F(StageAssignmentTest, TheEarliestReaderOwnsAVariable) {
  const auto owner = *AssignStages(graph_, Stages(3, {{"embed", 0}, {"body", 1}, {"head", 2}}));
  EXPECT_EQ(owner.at("tied"), 0);
  EXPECT_EQ(owner.at("weight"), 1);
  EXPECT_EQ(owner.at("weight/velocity"), 1);
}

TEST_F(StageAssignmentTest, BackwardNodesFollowTheirForwardNodes) {
  ASSERT_TRUE(AssignStages(graph_, Stages(3, {{"embed", 0}, {"body", 1}, {"head", 2}})).ok());
  EXPECT_EQ(StageOf("grad/loss"), 2);
  EXPECT_EQ(StageOf("grad/head"), 2);
  EXPECT_EQ(StageOf("grad/body"), 1);
  EXPECT_EQ(StageOf("grad/embed"), 0);
  EXPECT_EQ(StageOf("grad/sum"), 0);  // never later than what it adds
}

TEST_F(StageAssignmentTest, TheStepRegionFollowsItsVariablesAndTheLoss) {
  ASSERT_TRUE(AssignStages(graph_, Stages(3, {{"embed", 0}, {"body", 1}, {"head", 2}})).ok());
  EXPECT_EQ(StageOf("sum/tied"), 0);
  EXPECT_EQ(StageOf("sum/weight"), 1);
  EXPECT_EQ(StageOf("sum/loss"), 2);
  EXPECT_EQ(StageOf("mean"), 2);
  EXPECT_EQ(StageOf("update/tied"), 0);
  EXPECT_EQ(StageOf("update/weight"), 1);
}

TEST_F(StageAssignmentTest, WhatNamesAVariableRunsWhereThatIsThoughOthersReadIt) {
  const auto of = [&](const std::string& name, const std::string& op, const std::string& variable,
                      std::vector<ValueId> inputs) {
    return AddNode(name, op, "", std::move(inputs), Phase::kUpdate, {"head", variable, true});
  };
  const ValueId tied = of("square/tied", "ReduceSumSquare", "tied", {sum_tied_});
  const ValueId weight = of("square/weight", "ReduceSumSquare", "weight", {sum_weight_});
  const ValueId norm = Step("norm", "Add", "", {tied, weight});
  graph_.SetVariableUpdate("tied", of("clip/tied", "Mul", "tied", {sum_tied_, norm}));
  graph_.SetVariableUpdate("weight", of("clip/weight", "Mul", "weight", {sum_weight_, norm}));
  ASSERT_TRUE(AssignStages(graph_, Stages(3, {{"embed", 0}, {"body", 1}, {"head", 2}})).ok());
  EXPECT_EQ(StageOf("square/tied"), 0);
  EXPECT_EQ(StageOf("square/weight"), 1);
  EXPECT_EQ(StageOf("clip/weight"), 1);
}

TEST_F(StageAssignmentTest, PatternsPlaceManyNodes) {
  ASSERT_TRUE(AssignStages(graph_, Stages(2, {{"*", 1}, {"embed", 0}, {"labels*", 1}})).ok());
  EXPECT_EQ(StageOf("embed"), 0);
  EXPECT_EQ(StageOf("body"), 1);
}

TEST_F(StageAssignmentTest, StagesMustNotDecrease) {
  EXPECT_EQ(ErrorOf(Stages(2, {{"embed", 1}, {"body", 0}, {"head", 1}})),
            "node 'body' (MatMul) is on stage 0 but reads 'embed/out' of node 'embed' (MatMul) on "
            "stage 1; stages must not decrease along the forward pass");
}

TEST_F(StageAssignmentTest, EveryStageNeedsANode) {
  EXPECT_THAT(ErrorOf(Stages(3, {{"embed", 0}, {"body", 2}, {"head", 2}})),
              HasSubstr("no forward node is on stage 1 of 3"));
}

TEST_F(StageAssignmentTest, EntriesMustFit) {
  EXPECT_EQ(ErrorOf(Stages(2, {{"embedd", 0}})),
            "the plan puts 'embedd' on stage 0, but no forward node has this name, did you mean "
            "'embed'?");
  EXPECT_EQ(ErrorOf(Stages(2, {{"embed", 2}})),
            "the plan puts 'embed' on stage 2, but the plan has 2 stages");
}

}  // namespace
}  // namespace weft
