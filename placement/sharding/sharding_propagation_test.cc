#include "placement/sharding/sharding_propagation.h"

#include "gmock/gmock.h"
#include "graph/graph_builder.h"
#include "gtest/gtest.h"
#include "placement/conversions/conversion.h"

namespace weft {
namespace {

using ::testing::HasSubstr;

class ShardingPropagationTest : public testing::Test {
 protected:
  ShardingPropagationTest() : builder_(graph_) {}

  ValueId Input(const std::string& name, Shape shape) {
    return graph_.AddInput(name, {ValueKind::kTensor, DType::kFloat32, shape});
  }
  ValueId Weight(const std::string& name, Shape shape) {
    return graph_.AddVariable(name, {ValueKind::kTensor, DType::kFloat32, shape}, Tensor(), true);
  }
  ValueId Op(const std::string& op, std::vector<ValueId> inputs, Attributes attributes = {}) {
    const ValueId value = builder_.Op(op, std::move(inputs), std::move(attributes));
    EXPECT_TRUE(builder_.status().ok()) << builder_.status();
    return value;
  }

  void Propagate(int shards, std::map<std::string, AxisSharding> hints) {
    PropagationOptions options;
    options.shards = shards;
    options.hints = std::move(hints);
    ASSERT_TRUE(ExpandForHints(graph_, options).ok());
    const auto decisions = PropagateShardings(graph_, options);
    ASSERT_TRUE(decisions.ok()) << decisions.status();
    decisions_ = *decisions;
  }
  std::string ErrorOf(std::map<std::string, AxisSharding> hints) {
    PropagationOptions options;
    options.shards = 4;
    options.hints = std::move(hints);
    const absl::Status status = PropagateShardings(graph_, options).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  }
  std::string Of(ValueId value) const { return decisions_.values[value.value].ToString(); }
  std::string InputOf(ValueId output, int i) const {
    const NodeId producer = graph_.value(output).producer;
    return decisions_.nodes[producer.value].inputs[i].ToString();
  }

  Graph graph_;
  GraphBuilder builder_;
  ShardingDecisions decisions_;
};

TEST_F(ShardingPropagationTest, WithoutHintsNothingIsSharded) {
  const ValueId y = Op("MatMul", {Input("x", {8, 6}), Weight("w", {6, 4})});
  Propagate(2, {});
  EXPECT_EQ(Of(y), "R");
}

TEST_F(ShardingPropagationTest, ColumnsThenRowsNeedOneSum) {
  const ValueId h = Op("MatMul", {Input("x", {8, 6}), Weight("up", {6, 10})});
  const ValueId r = Op("Relu", {h});
  const ValueId y = Op("MatMul", {r, Weight("down", {10, 6})});
  const ValueId b = Op("Add", {y, Weight("bias", {6})});
  Propagate(2, {{"up", AxisSharding::Split(1)}, {"down", AxisSharding::Split(0)}});
  EXPECT_EQ(Of(h), "S(1)");
  EXPECT_EQ(Of(r), "S(1)");
  EXPECT_EQ(Of(y), "P");
  EXPECT_EQ(InputOf(b, 0), "R");
  EXPECT_EQ(Of(b), "R");
}

TEST_F(ShardingPropagationTest, BlocksOfAFusedWeightStayTogether) {
  const ValueId qkv = Op("MatMul", {Input("x", {2, 5, 12}), Weight("qkv", {12, 36})});
  const auto parts = builder_.Ops("", "Split", {qkv, builder_.Ints({12, 12, 12})},
                                  {{"axis", int64_t{2}}}, {true, true, true});
  const ValueId heads = Op("Reshape", {parts[0], builder_.Ints({2, 5, 4, 3})});
  Propagate(2, {{"qkv", AxisSharding::Split(1, 3)}});
  EXPECT_EQ(Of(qkv), "S(2,blocks=3)");
  EXPECT_EQ(Of(parts[0]), "S(2)");
  EXPECT_EQ(Of(heads), "S(2)");
}

TEST_F(ShardingPropagationTest, ASoftmaxAxisIsGatheredFirst) {
  const ValueId scores = Op("MatMul", {Input("x", {8, 6}), Weight("w", {6, 10})});
  const ValueId p = Op("Softmax", {scores}, {{"axis", int64_t{1}}});
  Propagate(2, {{"w", AxisSharding::Split(1)}});
  EXPECT_EQ(Of(scores), "S(1)");
  EXPECT_NE(InputOf(p, 0), "S(1)");
}

TEST_F(ShardingPropagationTest, AGemmWithBiasIsTakenApartForASplitSum) {
  const ValueId x = Input("x", {8, 6});
  Op("Gemm", {x, Weight("w", {6, 4}), Weight("bias", {4})});
  Propagate(2, {{"w", AxisSharding::Split(0)}});
  EXPECT_EQ(graph_.num_nodes(), 2);
  EXPECT_THAT(graph_.DebugString(), HasSubstr("ai.weft::MatMul(%x, %w)"));
}

TEST_F(ShardingPropagationTest, AGemmStaysWholeWhenItsRuleFits) {
  Op("Gemm", {Input("x", {8, 6}), Weight("w", {6, 4}), Weight("bias", {4})});
  Propagate(2, {{"w", AxisSharding::Split(1)}});
  EXPECT_EQ(graph_.num_nodes(), 1);
}

// A search sees that the weight can be split by rows too.
TEST_F(ShardingPropagationTest, AGemmIsTakenApartForASearchWhereItsRuleLacksASplit) {
  const ValueId x = Input("x", {8, 6});
  Op("Gemm", {x, Weight("w", {6, 4}), Weight("bias", {4})});
  const ValueId y = Op("Gemm", {x, Weight("free", {6, 4})});
  ASSERT_TRUE(ExpandForSplits(graph_, 2).ok());
  EXPECT_THAT(graph_.DebugString(), HasSubstr("ai.weft::MatMul(%x, %w)"));
  EXPECT_EQ(graph_.node(graph_.value(y).producer).op, "Gemm");
}

TEST_F(ShardingPropagationTest, AGemmThatIsTooNarrowToSplitStaysWhole) {
  Op("Gemm", {Input("x", {8, 3}), Weight("w", {3, 8}), Weight("bias", {8})});
  ASSERT_TRUE(ExpandForSplits(graph_, 4).ok());
  EXPECT_EQ(graph_.num_nodes(), 1);
}

TEST_F(ShardingPropagationTest, SumsOfPartsAddUpBeforeTheyAreMadeWhole) {
  const ValueId a = Op("MatMul", {Input("x", {8, 6}), Weight("a", {6, 4})});
  const ValueId b = Op("MatMul", {Input("y", {8, 6}), Weight("b", {6, 4})});
  const ValueId sum = Op("Add", {a, b});
  Propagate(2, {{"a", AxisSharding::Split(0)}, {"b", AxisSharding::Split(0)}});
  EXPECT_EQ(Of(sum), "P");
}

TEST_F(ShardingPropagationTest, SeveralReadersShareOneSum) {
  const ValueId y = Op("MatMul", {Input("x", {8, 6}), Weight("w", {6, 4})});
  const ValueId scale = Input("scale", {8, 4});
  const ValueId first = Op("Mul", {y, scale});
  const ValueId second = Op("Neg", {y});
  Propagate(2, {{"w", AxisSharding::Split(0)}});
  EXPECT_EQ(Of(y), "P");
  EXPECT_EQ(Of(first), "R");
  EXPECT_EQ(Of(second), "R");
}

// Cut out of the whole they would lie the same; no byte is sent either way.
TEST_F(ShardingPropagationTest, HintedShardsAreMadeNotCutOut) {
  const ValueId x = Input("x", {8, 6});
  const ValueId y = Op("Add", {x, Input("z", {8, 6})});
  const ValueId soft = Op("Softmax", {x}, {{"axis", int64_t{1}}});
  Propagate(2, {{graph_.value(y).name, AxisSharding::Split(1)},
                {graph_.value(soft).name, AxisSharding::Split(1)}});
  EXPECT_EQ(InputOf(y, 0), "S(1)");
  EXPECT_EQ(InputOf(y, 1), "S(1)");
  EXPECT_EQ(Of(y), "S(1)");
  EXPECT_EQ(InputOf(soft, 0), "R") << "a softmax needs its axis whole";
  EXPECT_EQ(Of(soft), "S(1)");
}

TEST_F(ShardingPropagationTest, PatternsNameVariables) {
  const ValueId y = Op("MatMul", {Input("x", {8, 6}), Weight("block0.up", {6, 4})});
  Propagate(2, {{"*.up", AxisSharding::Split(1)}});
  EXPECT_EQ(Of(y), "S(1)");
}

TEST_F(ShardingPropagationTest, StateLiesLikeItsParameter) {
  Op("MatMul", {Input("x", {8, 6}), Weight("w", {6, 4})});
  Weight("w/m", {6, 4});
  graph_.mutable_variables().back().slot_of = "w";
  Weight("w/count", {});
  graph_.mutable_variables().back().slot_of = "w";
  Propagate(2, {{"w", AxisSharding::Split(1)}});
  EXPECT_EQ(decisions_.variables.at("w/m").ToString(), "S(1)");
  EXPECT_EQ(decisions_.variables.at("w/count").ToString(), "R");
}

// A constant mask was to become a part of the sum, for which there is no conversion: the whole
// constant on each of two ranks would have counted twice.
TEST_F(ShardingPropagationTest, AConstantIsNoPartOfASum) {
  const ValueId sum = Op("MatMul", {Input("x", {8, 6}), Weight("w", {6, 4})});
  const ValueId mask = builder_.Constant(Tensor::Of<float>({4}, {0, 1, 2, 3}));
  const ValueId masked = Op("Add", {sum, mask});
  Propagate(2, {{"w", AxisSharding::Split(0)}});
  EXPECT_EQ(Of(sum), "P");
  EXPECT_EQ(InputOf(masked, 0), "R");
  EXPECT_EQ(InputOf(masked, 1), "R");
}

TEST_F(ShardingPropagationTest, HintsMustFitTheShape) {
  Op("MatMul", {Input("x", {8, 6}), Weight("w", {6, 3})});
  EXPECT_EQ(ErrorOf({{"w", AxisSharding::Split(1)}}),
            "the plan shards 'w', float32[6,3], as S(1) over 4 ranks, but there are only 3 rows to "
            "share");
  EXPECT_THAT(ErrorOf({{"w", AxisSharding::Split(2)}}),
              HasSubstr("the plan shards 'w', float32[6,3], as S(2) over 4 ranks: "));
  EXPECT_THAT(ErrorOf({{"w", AxisSharding::Partial()}}), HasSubstr("a hint is R or S(axis)"));
}

TEST_F(ShardingPropagationTest, HintsMustNameSomething) {
  Op("MatMul", {Input("x", {8, 6}), Weight("fc1.weight", {6, 3})});
  EXPECT_EQ(CheckShardingHints(graph_, {{"fc1.weigth", AxisSharding::Split(0)}}).message(),
            "the plan shards 'fc1.weigth' as S(0), but no variable and no node's output has this "
            "name, did you mean 'fc1.weight'?");
  EXPECT_TRUE(CheckShardingHints(graph_, {{"fc?.*", AxisSharding::Split(0)}}).ok());
  EXPECT_TRUE(CheckShardingHints(graph_, {{"MatMul", AxisSharding::Split(0)}}).ok());
}

TEST(ConversionTest, BytesAreThoseOfTheCollectives) {
  const AxisSharding whole = AxisSharding::Replicated();
  const AxisSharding parts = AxisSharding::Partial();
  const AxisSharding rows = AxisSharding::Split(0);
  const AxisSharding columns = AxisSharding::Split(1);
  EXPECT_EQ(ConversionBytes(100, 4, whole, whole), 0);
  EXPECT_EQ(ConversionBytes(100, 4, parts, whole), 150);
  EXPECT_EQ(ConversionBytes(100, 4, parts, rows), 75);
  EXPECT_EQ(ConversionBytes(100, 4, rows, whole), 75);
  EXPECT_EQ(ConversionBytes(100, 4, rows, columns), 25 * 0.75);
  EXPECT_EQ(ConversionBytes(100, 4, rows, AxisSharding::Split(0, 5)), 75);
  EXPECT_EQ(ConversionBytes(100, 4, whole, rows), 0);
}

TEST(ConversionTest, NothingBecomesPartial) {
  Graph graph;
  const ValueId x = graph.AddInput("x", {ValueKind::kTensor, DType::kFloat32, Shape{4}});
  ConversionSite site;
  site.graph = &graph;
  site.name = "y";
  site.group = {0, 1};
  EXPECT_EQ(FindConversion(AxisSharding::Replicated(), AxisSharding::Partial()), nullptr);
  const absl::Status status =
      ConvertSharding(site, {x, Shape{4}, AxisSharding::Replicated()}, AxisSharding::Partial())
          .status();
  EXPECT_EQ(status.message(), "value 'x': there is no conversion from R to P");
}

}  // namespace
}  // namespace weft
