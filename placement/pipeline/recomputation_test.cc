#include "placement/pipeline/recomputation.h"

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "graph/inference.h"
#include "graph/op_schema.h"
#include "graph/passes/pass.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

absl::Status InferSameAsInput(InferenceContext& context) {
  context.SetOutput(0, context.InputType(0));
  return absl::OkStatus();
}
WEFT_REGISTER_OP(
    OpSchema("test", "Random").Input("x").Output("y").Infer(InferSameAsInput).Stateful());

// Layers in a chain whose gradients read, as a matrix product's do, the gradient and what the layer
// read: node "a0" makes "a0/out", its gradient is "grad/a0".
class RecomputationTest : public ::testing::Test {
 protected:
  RecomputationTest() {
    x_ = graph_.AddInput("x", {ValueKind::kTensor, DType::kFloat32, Shape{2, 3}});
    seed_ = graph_.AddInput("dy", graph_.value(x_).type);
  }

  ValueId Add(const std::string& name, std::vector<ValueId> inputs, Phase phase,
              const std::string& forward, const std::string& op = "AddN",
              const std::string& domain = std::string(kWeftDomain)) {
    Graph::NodeSpec spec;
    spec.name = name;
    spec.domain = domain;
    spec.op = op;
    spec.inputs = std::move(inputs);
    spec.outputs = {name + "/out"};
    spec.phase = phase;
    spec.stage = StageId(0);
    if (phase == Phase::kBackward) spec.origin = {forward, forward + "/out", true};
    const NodeId node = graph_.AddNode(std::move(spec));
    EXPECT_TRUE(InferNode(graph_, node).ok()) << name;
    return graph_.node(node).outputs[0];
  }
  ValueId Forward(const std::string& name, std::vector<ValueId> inputs) {
    return Add(name, std::move(inputs), Phase::kForward, "");
  }
  ValueId Backward(const std::string& forward, std::vector<ValueId> inputs) {
    return Add("grad/" + forward, std::move(inputs), Phase::kBackward, forward);
  }
  void BuildChain(const std::vector<std::string>& layers) {
    std::vector<ValueId> inputs = {x_};
    for (const std::string& layer : layers) inputs.push_back(Forward(layer, {inputs.back()}));
    ValueId gradient = seed_;
    for (size_t i = layers.size(); i-- > 0;) {
      gradient = Backward(layers[i], {gradient, inputs[i]});
    }
    graph_.AddOutput(gradient);
  }

  static Plan PlanOf(std::map<std::string, std::string> recompute) {
    Plan plan;
    plan.recompute = std::move(recompute);
    return plan;
  }
  RecomputedSegments Segments(std::map<std::string, std::string> recompute) const {
    const auto segments = FindRecomputedSegments(graph_, PlanOf(std::move(recompute)));
    EXPECT_TRUE(segments.ok()) << segments.status();
    return *segments;
  }
  std::string SegmentsError(std::map<std::string, std::string> recompute) const {
    return std::string(
        FindRecomputedSegments(graph_, PlanOf(std::move(recompute))).status().message());
  }
  // Names of the nodes that run again.
  std::vector<std::string> Again(std::map<std::string, std::string> recompute) {
    const auto nodes = FindRecomputedNodes(graph_, Segments(std::move(recompute)));
    EXPECT_TRUE(nodes.ok()) << nodes.status();
    std::vector<std::string> names;
    for (const NodeId id : *nodes) names.push_back(graph_.node(id).name);
    return names;
  }
  void Recompute(std::map<std::string, std::string> recompute) {
    auto copies = AddRecomputation(graph_, Segments(std::move(recompute)));
    ASSERT_TRUE(copies.ok()) << copies.status();
    copies_ = *std::move(copies);
  }
  // Names of what a node reads.
  std::vector<std::string> ReadsOf(const std::string& node) const {
    std::vector<std::string> names;
    for (const ValueId input : graph_.node(*graph_.FindNode(node)).inputs) {
      names.push_back(graph_.value(input).name);
    }
    return names;
  }

  Graph graph_;
  ValueId x_;
  ValueId seed_;
  std::vector<RecomputedNode> copies_;
};

TEST_F(RecomputationTest, InsidesAreComputedAnewAndOutputsAreKept) {
  BuildChain({"a0", "a1", "a2", "b0", "b1"});
  Recompute({{"a*", "a"}, {"b*", "b"}});
  ASSERT_EQ(copies_.size(), 3u);  // a0, a1, b0
  EXPECT_THAT(ReadsOf("recompute/a0"), ElementsAre("x"));
  EXPECT_THAT(ReadsOf("recompute/a1"), ElementsAre("recompute/a0/out"));
  EXPECT_THAT(ReadsOf("recompute/b0"), ElementsAre("a2/out"));
  EXPECT_THAT(ReadsOf("grad/b1"), ElementsAre("dy", "recompute/b0/out"));
  EXPECT_THAT(ReadsOf("grad/b0"), ElementsAre("grad/b1/out", "a2/out"));
  EXPECT_THAT(ReadsOf("grad/a2"), ElementsAre("grad/b0/out", "recompute/a1/out"));
  EXPECT_THAT(ReadsOf("grad/a0"), ElementsAre("grad/a1/out", "x"));
}

TEST_F(RecomputationTest, CopiesSayWhatTheyAreCopiesOf) {
  BuildChain({"a0", "a1"});
  Recompute({{"*", "all"}});
  ASSERT_EQ(copies_.size(), 1u);
  const Node& copy = graph_.node(copies_[0].copy);
  EXPECT_EQ(copy.phase, Phase::kBackward);
  EXPECT_EQ(copy.stage, StageId(0));
  EXPECT_EQ(copy.origin, (Origin{"a0", "a0/out", false}));
  EXPECT_EQ(graph_.value(copy.outputs[0]).origin, (Origin{"a0", "a0/out", false}));
  EXPECT_TRUE(IsRecomputed(copy));
  EXPECT_FALSE(IsRecomputed(graph_.node(*graph_.FindNode("grad/a0"))));
}

TEST_F(RecomputationTest, EachRunsJustBeforeItIsNeeded) {
  BuildChain({"a0", "a1", "b0", "b1"});
  const std::vector<NodeId> order = *graph_.TopologicalOrder();
  Recompute({{"a*", "a"}, {"b*", "b"}});
  std::vector<std::string> names;
  for (const NodeId id : PlaceRecomputed(graph_, order, copies_)) {
    names.push_back(graph_.node(id).name);
  }
  EXPECT_THAT(names, ElementsAre("a0", "a1", "b0", "b1", "recompute/b0", "grad/b1", "grad/b0",
                                 "recompute/a0", "grad/a1", "grad/a0"));
}

// b's second layer reads a's first: it is kept for b, so a need not compute it either.
TEST_F(RecomputationTest, WhatALaterSegmentKeepsIsNotComputedAnew) {
  const ValueId a0 = Forward("a0", {x_});
  const ValueId a1 = Forward("a1", {a0});
  const ValueId b0 = Forward("b0", {a1});
  const ValueId b1 = Forward("b1", {b0, a0});
  Forward("b2", {b1});
  const ValueId db2 = Backward("b2", {seed_, b1});
  graph_.AddOutput(Backward("a1", {db2, a0}));
  EXPECT_THAT(Again({{"a*", "a"}, {"b*", "b"}}), ElementsAre("b0", "b1"));
  Recompute({{"a*", "a"}, {"b*", "b"}});
  EXPECT_THAT(ReadsOf("recompute/b1"), ElementsAre("recompute/b0/out", "a0/out"));
  EXPECT_THAT(ReadsOf("grad/a1"), ElementsAre("grad/b2/out", "a0/out"));
}

TEST_F(RecomputationTest, WhatOtherBackwardNodesReadIsKept) {
  BuildChain({"a0", "a1", "a2"});
  const ValueId a0 = *graph_.FindValue("a0/out");
  graph_.AddOutput(Add("penalty", {a0}, Phase::kBackward, "elsewhere"));
  EXPECT_THAT(Again({{"a*", "a"}}), ElementsAre("a1"));
}

TEST_F(RecomputationTest, RandomNumbersAreKept) {
  const ValueId a0 = Forward("a0", {x_});
  const ValueId a1 = Add("a1", {a0}, Phase::kForward, "", "Random", "test");
  const ValueId a2 = Forward("a2", {a1});
  Forward("a3", {a2});
  graph_.AddOutput(Backward("a3", {seed_, a2, a1}));
  EXPECT_THAT(Again({{"*", "all"}}), ElementsAre("a2"));
  Recompute({{"*", "all"}});
  EXPECT_THAT(ReadsOf("recompute/a2"), ElementsAre("a1/out"));
}

// The gradient reads the saved statistics; the running ones belong to the forward pass alone.
TEST_F(RecomputationTest, RunningStatisticsAreNotMadeTwice) {
  const Shape channels{3};
  std::vector<ValueId> inputs = {Forward("a0", {x_})};
  for (const char* name : {"scale", "bias", "mean", "var"}) {
    inputs.push_back(graph_.AddConstant(name, *Tensor::Zeros(DType::kFloat32, channels)));
  }
  Graph::NodeSpec spec;
  spec.name = "norm";
  spec.op = "BatchNormalization";
  spec.attributes.Set("training_mode", int64_t{1});
  spec.inputs = inputs;
  spec.outputs = {"norm/out", "norm/running_mean", "norm/running_var"};
  spec.stage = StageId(0);
  const NodeId norm = graph_.AddNode(std::move(spec));
  ASSERT_TRUE(InferNode(graph_, norm).ok());
  const ValueId out = graph_.node(norm).outputs[0];
  Forward("a1", {out});
  graph_.AddOutput(Backward("a1", {seed_, out}));
  graph_.AddOutput(graph_.node(norm).outputs[1]);
  Recompute({{"*", "all"}});
  const Node& copy = graph_.node(*graph_.FindNode("recompute/norm"));
  ASSERT_EQ(copy.outputs.size(), 3u);
  EXPECT_TRUE(copy.outputs[0].valid());
  EXPECT_FALSE(copy.outputs[1].valid());
  EXPECT_FALSE(copy.outputs[2].valid());
}

TEST_F(RecomputationTest, EachStageHasItsOwnPart) {
  BuildChain({"a0", "a1", "a2", "a3"});
  for (const char* name : {"a2", "a3", "grad/a2", "grad/a3"}) {
    graph_.node(*graph_.FindNode(name)).stage = StageId(1);
  }
  // a1, which the gradient of a2 reads, is kept where it is received.
  EXPECT_THAT(Again({{"*", "all"}}), ElementsAre("a0", "a2"));
  Recompute({{"*", "all"}});
  EXPECT_THAT(ReadsOf("recompute/a2"), ElementsAre("a1/out"));  // received
  EXPECT_EQ(graph_.node(*graph_.FindNode("recompute/a2")).stage, StageId(1));
}

// What the next stage keeps of it says nothing about the stage that sent it.
TEST_F(RecomputationTest, AStageNeedNotKeepWhatItSends) {
  const ValueId a0 = Forward("a0", {x_});
  const ValueId a1 = Forward("a1", {a0});
  const ValueId db = Backward("b", {seed_, a1});
  graph_.AddOutput(Backward("a1", {db, a1}));  // reads what a1 makes
  graph_.node(*graph_.FindNode("grad/b")).stage = StageId(1);
  EXPECT_THAT(Again({{"a*", "a"}}), ElementsAre("a0", "a1"));
  graph_.node(*graph_.FindNode("grad/b")).stage = StageId(0);
  EXPECT_THAT(Again({{"a*", "a"}}), IsEmpty());
}

// A node that sharding has taken apart belongs where the whole one did.
TEST_F(RecomputationTest, PartsOfANodeBelongToItsSegment) {
  BuildChain({"a0", "a1", "a2"});
  const RecomputedSegments segments = Segments({{"a*", "a"}});
  Graph apart;
  const ValueId x = apart.AddInput("x", graph_.value(x_).type);
  std::swap(apart, graph_);
  x_ = x;
  seed_ = graph_.AddInput("dy", graph_.value(x_).type);
  BuildChain({"a0", "a1/MatMul", "a1/Add", "a2"});
  graph_.node(*graph_.FindNode("grad/a1/MatMul")).origin.forward_node = "a1";
  const auto nodes = FindRecomputedNodes(graph_, segments);
  ASSERT_TRUE(nodes.ok()) << nodes.status();
  EXPECT_EQ(nodes->size(), 3u);
}

TEST_F(RecomputationTest, MergingLeavesTheCopiesAlone) {
  BuildChain({"a0", "a1"});
  Recompute({{"*", "all"}});
  const auto changed = NewMergeCommonSubexpressionsPass()->Run(graph_);
  ASSERT_TRUE(changed.ok()) << changed.status();
  EXPECT_FALSE(*changed);
  EXPECT_TRUE(graph_.FindNode("recompute/a0").has_value());
}

TEST_F(RecomputationTest, AStarInASegmentsNameIsThatOfThePattern) {
  BuildChain({"block0/a", "block0/b", "block1/a", "head/a"});
  const RecomputedSegments segments = Segments({{"block*", "block*"}, {"block0/b", ""}});
  EXPECT_EQ(segments.at("block0/a"), "block0");
  EXPECT_EQ(segments.at("block1/a"), "block1");
  EXPECT_EQ(segments.at("block0/b"), "");
  EXPECT_EQ(segments.at("head/a"), "");
}

TEST_F(RecomputationTest, NothingRunsAgainThatNobodyReads) {
  BuildChain({"a0"});
  EXPECT_THAT(Again({{"*", "all"}}), IsEmpty());
}

TEST_F(RecomputationTest, EntriesThatFitNoForwardNodeAreErrors) {
  BuildChain({"layer0", "layer1"});
  EXPECT_EQ(SegmentsError({{"layr0", "a"}}),
            "the plan recomputes 'layr0', but no forward node has this name, did you mean "
            "'layer0'?");
  EXPECT_THAT(SegmentsError({{"block*", "a"}}),
              HasSubstr("the plan recomputes 'block*', but no forward node has this name"));
  EXPECT_EQ(SegmentsError({{"grad/*", "a"}}),
            "the plan recomputes 'grad/*', but that is a node of the backward phase "
            "('grad/layer1'); only forward nodes can be recomputed");
}

}  // namespace
}  // namespace weft
