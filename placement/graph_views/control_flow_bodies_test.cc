#include "placement/graph_views/control_flow_bodies.h"

#include <memory>

#include "gmock/gmock.h"
#include "graph/graph_builder.h"
#include "graph/inference.h"
#include "graph/op_schema.h"
#include "gtest/gtest.h"
#include "ops/node_runner.h"
#include "placement/completion/plan_completion.h"
#include "placement/partition/partitioner.h"

namespace weft {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Stands for If: reads the condition and what its body captures, makes what the body makes. It has
// a sharding rule, which its body must overrule.
WEFT_REGISTER_OP(OpSchema::Weft("TestIf")
                     .Input("condition")
                     .VariadicInput("captures")
                     .Output("y")
                     .Attr("body", AttributeType::kGraph, /*required=*/true)
                     .Infer([](InferenceContext& context) {
                       context.SetOutput(0, context.InputType(1));
                       return absl::OkStatus();
                     })
                     .NoGradient("of a test")
                     .Sharding([](const NodeView& view) -> absl::StatusOr<FactorRule> {
                       FactorRule rule;
                       rule.factors = {{view.InputShape(1).dim(0)}, {view.InputShape(1).dim(1)}};
                       rule.inputs = {{}, {{{0}, {1}}}};
                       rule.outputs = {{{{0}, {1}}}};
                       return rule;
                     }));

ValueType FloatType(const Shape& shape) { return {ValueKind::kTensor, DType::kFloat32, shape}; }

// y = MatMul(x, w), z = TestIf(condition, y) with body: inner = Relu(y), loss = sum of z.
class ControlFlowBodiesTest : public ::testing::Test {
 protected:
  ControlFlowBodiesTest() : body_(std::make_shared<Graph>()) {
    plan_.mesh = {1, 2, 1};
    plan_.micro_batches = 1;
  }

  void Build(const std::string& inner_op = "Relu", Attributes inner_attributes = {}) {
    const ValueId captured = body_->AddInput("y", FloatType({4, 6}));
    Graph::NodeSpec inner;
    inner.name = "inner_node";
    inner.domain = inner_op == "Relu" ? "" : std::string(kWeftDomain);
    inner.op = inner_op;
    inner.attributes = std::move(inner_attributes);
    inner.inputs = {captured};
    inner.outputs = {"inner"};
    body_->AddOutput(body_->node(body_->AddNode(std::move(inner))).outputs[0]);

    GraphBuilder builder(graph_);
    const ValueId x = graph_.AddInput(
        "x", {ValueKind::kTensor, DType::kFloat32, SymbolicShape({Dim::Symbol("N"), Dim(8)})});
    const ValueId condition = builder.Constant(Tensor::Scalar<bool>(true));
    const ValueId w = graph_.AddVariable("w", FloatType({8, 6}), Tensor(), true);
    builder.set_name_prefix("first/");
    const ValueId y = builder.Op("MatMul", {x, w});
    builder.Name(y, "y");
    builder.set_name_prefix("branch/");
    const ValueId z = builder.WeftOp("TestIf", {condition, y}, {{"body", body_}});
    builder.set_name_prefix("last/");
    const ValueId sum = builder.Op("ReduceSum", {z}, {{"keepdims", int64_t{0}}});
    builder.set_phase(Phase::kUpdate);
    graph_.AddOutput(builder.WeftOp("Accumulate", {sum}));
    ASSERT_TRUE(builder.status().ok()) << builder.status();
  }

  absl::StatusOr<std::vector<Partition>> Cut() const {
    return PartitionStep(graph_, plan_, {/*training=*/false, 4}, CpuNodeEvaluator());
  }
  // That of the partitioner, which CompletePlan gives, too.
  std::string Error() const {
    const absl::Status status = Cut().status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(CompletePlan(graph_, ClusterSpec::Local(plan_.mesh.size(), 1), plan_, 4).status(),
              status);
    return std::string(status.message());
  }

  Graph graph_;
  std::shared_ptr<Graph> body_;
  Plan plan_;
};

TEST_F(ControlFlowBodiesTest, ANodeWithABodyRunsWholeOnEveryRank) {
  Build();
  plan_.tensor_shardings = {{"w", AxisSharding::Split(1)}};
  const auto partitions = Cut();
  ASSERT_TRUE(partitions.ok()) << partitions.status();
  for (const Partition& partition : *partitions) {
    const Graph& micro = partition.micro[0];
    const Node& product = micro.node(*micro.FindNode("first/MatMul"));
    EXPECT_EQ(micro.value(product.outputs[0]).type.ToString(), "float32[4,3]");
    const Node& branch = micro.node(*micro.FindNode("branch/TestIf"));
    // What its body captures is gathered in front of it.
    EXPECT_EQ(micro.value(branch.inputs[1]).type.ToString(), "float32[4,6]");
    EXPECT_EQ(micro.node(micro.value(branch.inputs[1]).producer).op, "AllGather");
    EXPECT_TRUE(HasBody(branch));
    EXPECT_FALSE(HasBody(product));
  }
}

TEST_F(ControlFlowBodiesTest, EachRankHasABodyOfItsOwn) {
  Build();
  const auto partitions = Cut();
  ASSERT_TRUE(partitions.ok()) << partitions.status();
  std::vector<std::shared_ptr<Graph>> bodies = {body_};
  for (const Partition& partition : *partitions) {
    const Graph& micro = partition.micro[0];
    const Node& branch = micro.node(*micro.FindNode("branch/TestIf"));
    bodies.push_back(std::get<std::shared_ptr<Graph>>(*branch.attributes.Find("body")));
    EXPECT_EQ(bodies.back()->DebugString(), body_->DebugString());
  }
  EXPECT_NE(bodies[0], bodies[1]);
  EXPECT_NE(bodies[1], bodies[2]);
}

TEST_F(ControlFlowBodiesTest, ACollectiveInABodyIsRefused) {
  Build("AllReduce", {{"axis", std::string("tensor")},
                      {"group", std::vector<int64_t>{0, 1}},
                      {"algorithm", std::string("ring")}});
  EXPECT_THAT(
      Error(),
      AllOf(HasSubstr("node 'inner_node' (ai.weft::AllReduce)"),
            HasSubstr("stands in the body 'body' of node 'branch/TestIf' (ai.weft::TestIf)"),
            HasSubstr("no rank may wait for another in it")));
}

TEST_F(ControlFlowBodiesTest, AShardingOfAValueInABodyIsRefused) {
  Build();
  plan_.tensor_shardings = {{"inner", AxisSharding::Split(1)}};
  EXPECT_THAT(Error(),
              AllOf(HasSubstr("the plan shards 'inner' as S(1), but 'inner' is made in the body "
                              "'body' of node 'branch/TestIf' (ai.weft::TestIf)"),
                    HasSubstr("a conversion would have to stand there")));
}

TEST_F(ControlFlowBodiesTest, AStageForANodeInABodyIsRefused) {
  Build();
  plan_.mesh = {1, 1, 2};
  plan_.stages = {{"first/*", 0}, {"inner_*", 1}, {"last/*", 1}};
  EXPECT_THAT(Error(),
              AllOf(HasSubstr("the plan puts 'inner_*' on stage 1, but node 'inner_node' is "
                              "in the body 'body' of node 'branch/TestIf' (ai.weft::TestIf)"),
                    HasSubstr("a Send of 'inner' would have to stand there"),
                    HasSubstr("give the outer node a stage")));
}

TEST_F(ControlFlowBodiesTest, PatternsThatMeanOtherNodesTooAreFine) {
  Build();
  plan_.tensor_shardings = {{"w*", AxisSharding::Split(1)}, {"*", AxisSharding::Replicated()}};
  EXPECT_TRUE(CheckBodies(graph_, plan_).ok()) << CheckBodies(graph_, plan_);
}

}  // namespace
}  // namespace weft
