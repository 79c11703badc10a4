#include "ops/custom/sharding_notation.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

// A node of the given shapes.
class FakeView final : public NodeView {
 public:
  FakeView(std::vector<Shape> inputs, std::vector<Shape> outputs)
      : inputs_(std::move(inputs)), outputs_(std::move(outputs)) {
    node_.name = "n";
    node_.op = "Op";
    node_.inputs.assign(inputs_.size(), ValueId(0));
    node_.outputs.assign(outputs_.size(), ValueId(0));
  }
  const Node& node() const override { return node_; }
  const Shape& InputShape(int i) const override { return inputs_[i]; }
  const Shape& OutputShape(int i) const override { return outputs_[i]; }
  DType InputDType(int) const override { return DType::kFloat32; }
  DType OutputDType(int) const override { return DType::kFloat32; }
  const Tensor* InputValue(int) const override { return nullptr; }

 private:
  Node node_;
  std::vector<Shape> inputs_;
  std::vector<Shape> outputs_;
};

// "0:2p 1:3s | 01,1 -> 0": the factors with size and first letter of their kind, then the operands'
// dimensions as factors.
std::string Text(const absl::StatusOr<FactorRule>& rule) {
  if (!rule.ok()) return std::string(rule.status().message());
  std::string text;
  for (size_t i = 0; i < rule->factors.size(); ++i) {
    const Factor& factor = rule->factors[i];
    absl::StrAppend(&text, i, ":", factor.size,
                    factor.kind == FactorKind::kParallel ? "p "
                    : factor.kind == FactorKind::kSum    ? "s "
                                                         : "w ");
  }
  absl::StrAppend(&text, "|");
  const auto append = [&](const std::vector<OperandFactors>& operands) {
    for (const OperandFactors& operand : operands) {
      absl::StrAppend(&text, " [");
      for (size_t d = 0; d < operand.dims.size(); ++d) {
        if (d > 0) absl::StrAppend(&text, ",");
        for (const int factor : operand.dims[d]) absl::StrAppend(&text, factor);
      }
      absl::StrAppend(&text, "]");
    }
  };
  append(rule->inputs);
  absl::StrAppend(&text, " ->");
  append(rule->outputs);
  return text;
}

std::string Bind(const std::string& notation, std::vector<Shape> inputs,
                 std::vector<Shape> outputs) {
  const auto parsed = ShardingNotation::Parse(notation);
  if (!parsed.ok()) return std::string(parsed.status().message());
  return Text(parsed->Bind(FakeView(std::move(inputs), std::move(outputs))));
}

TEST(ShardingNotation, ElementsStandAlone) {
  EXPECT_EQ(Bind("... -> ...", {{2, 3}}, {{2, 3}}), "0:2p 1:3p | [0,1] -> [0,1]");
}

TEST(ShardingNotation, LeadingDimensionsAreCountedFromTheRight) {
  EXPECT_EQ(Bind("..., ... -> ...", {{2, 3}, {3}}, {{2, 3}}), "0:2p 1:3p | [0,1] [1] -> [0,1]");
}

TEST(ShardingNotation, ASizeOfOneIsBroadcast) {
  EXPECT_EQ(Bind("..., ... -> ...", {{2, 3}, {2, 1}}, {{2, 3}}), "0:2p 1:3p | [0,1] [0,] -> [0,1]");
}

TEST(ShardingNotation, WhatOnlyInputsHaveIsSummed) {
  EXPECT_EQ(Bind("... m k, k n -> ... m n; linear 0; linear 1", {{5, 2, 3}, {3, 4}}, {{5, 2, 4}}),
            "0:5p 1:2p 2:3s 3:4p | [0,1,2] [2,3] -> [0,1,3]");
}

TEST(ShardingNotation, LinearSets) {
  const auto notation = ShardingNotation::Parse("n, n -> n; linear 0 1; linear 1");
  ASSERT_TRUE(notation.ok());
  const auto rule = notation->Bind(FakeView({{2}, {2}}, {{2}}));
  ASSERT_TRUE(rule.ok());
  EXPECT_EQ(rule->linear, (std::vector<std::vector<int>>{{0, 1}, {1}}));
}

TEST(ShardingNotation, AMarkedDimensionIsNeededWhole) {
  EXPECT_EQ(Bind("... c! -> ... c", {{2, 7}}, {{2, 7}}), "0:2p 1:7w | [0,1] -> [0,1]");
}

TEST(ShardingNotation, BlocksAreAFactorOfTheirOwn) {
  EXPECT_EQ(Bind("n (2 h) -> n h", {{3, 10}}, {{3, 5}}), "0:3p 1:2w 2:5p | [0,12] -> [0,2]");
}

TEST(ShardingNotation, ANumberAloneIsAnySizeThatIsNotSplit) {
  EXPECT_EQ(Bind("n 1 -> n", {{3, 9}}, {{3}}), "0:3p 1:9w | [0,1] -> [0]");
}

TEST(ShardingNotation, OperandsBeyondTheLastAreLikeIt) {
  EXPECT_EQ(Bind("n -> n", {{3}, {3}, {3}}, {{3}}), "0:3p | [0] [0] [0] -> [0]");
}

TEST(ShardingNotation, ShapesThatDoNotFit) {
  EXPECT_EQ(Bind("n, n -> n", {{3}, {4}}, {{3}}),
            "node 'n' (Op): the shape [4] does not fit the sharding notation: a dimension should "
            "have the size 3");
  EXPECT_EQ(Bind("n m -> n", {{3}}, {{3}}),
            "node 'n' (Op): the shape [3] does not fit the sharding notation: it names 2 "
            "dimensions");
  EXPECT_EQ(Bind("(2 n) -> n", {{7}}, {{3}}),
            "node 'n' (Op): the shape [7] does not fit the sharding notation: 7 is no multiple of "
            "2");
}

TEST(ShardingNotation, MistakesAreShownWhereTheyAre) {
  EXPECT_EQ(Bind("n m > n", {}, {}),
            "sharding notation 'n m > n': at character 5 is '>', expected '->'");
  EXPECT_EQ(Bind("(n m -> n", {}, {}),
            "sharding notation '(n m -> n': at character 6 is '->', expected a name or a number");
  EXPECT_EQ(Bind("n -> n; linear 3", {}, {}),
            "sharding notation 'n -> n; linear 3': at character 16 is '3', expected an input of "
            "the notation");
  EXPECT_EQ(Bind("n -> n; linear", {}, {}),
            "sharding notation 'n -> n; linear': at character 15 is the end, expected the number "
            "of an input");
}

TEST(ShardingNotation, MakesShapesThatFit) {
  const auto notation = ShardingNotation::Parse("... (2 h), h -> ... h");
  ASSERT_TRUE(notation.ok());
  const auto shapes = notation->InputShapes(
      2, 1, [](const std::string& name) -> int64_t { return name == "h" ? 5 : 3; });
  EXPECT_EQ(shapes, (std::vector<Shape>{{3, 10}, {5}}));
}

}  // namespace
}  // namespace weft
