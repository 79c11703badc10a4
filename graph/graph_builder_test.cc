#include "graph/graph_builder.h"

#include "gmock/gmock.h"
#include "graph/testing/test_ops.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using weft::testing::Floats;

class GraphBuilderTest : public ::testing::Test {
 protected:
  ValueId Op(const std::string& op, std::vector<ValueId> inputs, Attributes attributes = {}) {
    return builder_.Ops("test", op, std::move(inputs), std::move(attributes), {true}).front();
  }

  Graph graph_;
  GraphBuilder builder_{graph_};
  const ValueId x_ = graph_.AddInput("x", Floats({"N", 2}));
};

TEST_F(GraphBuilderTest, TypesAreKnownAtOnce) {
  const ValueId y = Op("Negate", {Op("Negate", {x_})});
  ASSERT_TRUE(builder_.status().ok()) << builder_.status();
  EXPECT_EQ(builder_.type(y).ToString(), "float32[N,2]");
}

TEST_F(GraphBuilderTest, SettingsGoIntoEveryNode) {
  builder_.set_phase(Phase::kBackward);
  builder_.set_stage(StageId(1));
  builder_.set_origin({"forward", "x", true});
  builder_.set_name_prefix("grad/");
  const ValueId y = Op("Negate", {x_});
  const Node& node = graph_.node(graph_.value(y).producer);
  EXPECT_EQ(node.name, "grad/Negate");
  EXPECT_EQ(graph_.value(y).name, "grad/Negate");
  EXPECT_EQ(node.phase, Phase::kBackward);
  EXPECT_EQ(node.stage, StageId(1));
  EXPECT_EQ(node.origin, (Origin{"forward", "x", true}));
  EXPECT_EQ(graph_.value(y).origin, node.origin);
}

TEST_F(GraphBuilderTest, NodesForANodeAreNamedAfterItAndKeepItsOrigin) {
  builder_.set_phase(Phase::kBackward);
  builder_.set_stage(StageId(1));
  builder_.set_name_prefix("a/");
  const NodeId id = graph_.value(Op("Negate", {x_})).producer;
  const auto made = [&] {
    GraphBuilder builder = BuilderFor(graph_, graph_.node(id));
    const ValueId y = builder.Ops("test", "Negate", {x_}, {}, {true}).front();
    return graph_.node(graph_.value(y).producer);
  };
  EXPECT_EQ(made().name, "a/Negate/Negate");
  EXPECT_EQ(made().phase, Phase::kBackward);
  EXPECT_EQ(made().stage, StageId(1));
  EXPECT_EQ(made().origin.forward_node, "a/Negate");
  graph_.node(id).origin = {"fused", "x", true};
  EXPECT_EQ(made().origin, (Origin{"fused", "x", true}));
}

TEST_F(GraphBuilderTest, UnwantedOutputsAreLeftOut) {
  const ValueId c = builder_.Constant(weft::testing::FloatsOf({4}, 0), "c");
  const std::vector<ValueId> halves = builder_.Ops("test", "Split", {c}, {}, {false, true});
  EXPECT_EQ(halves[0], kNoValue);
  EXPECT_EQ(graph_.value(halves[1]).name, "Split.second");
  EXPECT_EQ(builder_.type(halves[1]).ToString(), "float32[2]");
}

TEST_F(GraphBuilderTest, FirstErrorIsKeptAndLeavesNoNode) {
  EXPECT_EQ(Op("Negat", {x_}), kNoValue);
  EXPECT_EQ(
      builder_.status().ToString(),
      "INVALID_ARGUMENT: node 'Negat' (test::Negat): no op of this name is registered, did you "
      "mean Negate?");
  EXPECT_EQ(Op("Negate", {x_}), kNoValue);
  EXPECT_EQ(builder_.Float(1), kNoValue);
  EXPECT_EQ(builder_.Scalar(DType::kFloat32, 1), kNoValue);
  EXPECT_EQ(graph_.num_nodes(), 0);
}

// A rule that asked for the type of what an earlier call had not made read before the values.
TEST_F(GraphBuilderTest, TheTypeOfNothingIsUnknown) {
  EXPECT_EQ(Op("Add", {x_}), kNoValue);
  EXPECT_EQ(builder_.type(kNoValue).dtype, DType::kInvalid);
  EXPECT_FALSE(builder_.type(kNoValue).shape.has_rank());
}

TEST_F(GraphBuilderTest, MissingOperandIsAnError) {
  EXPECT_EQ(Op("Add", {x_}), kNoValue);
  EXPECT_EQ(builder_.status().message(),
            "node 'Add' (test::Add): lacks the required input 1 ('b')");
}

TEST_F(GraphBuilderTest, ConstantsOfEveryKind) {
  EXPECT_EQ(graph_.value(builder_.Ints({1, 2})).constant.ToString(), "int64[2]{1, 2}");
  EXPECT_EQ(graph_.value(builder_.Float(0.5f)).constant.ToString(), "float32[]{0.5}");
  EXPECT_EQ(graph_.value(builder_.Scalar(DType::kFloat64, 2)).constant.ToString(), "float64[]{2}");
}

TEST_F(GraphBuilderTest, ScalarOfAnImpossibleTypeIsAnError) {
  EXPECT_EQ(builder_.Scalar(DType::kString, 2), kNoValue);
  EXPECT_FALSE(builder_.status().ok());
}

TEST_F(GraphBuilderTest, NameIsAHint) {
  const ValueId y = Op("Negate", {x_});
  builder_.Name(y, "x");
  EXPECT_EQ(graph_.value(y).name, "x_1");
  builder_.Name(kNoValue, "nothing");  // after an error
}

}  // namespace
}  // namespace weft
