// What follows from a declaration: the update's nodes, and state under its names.
#include "ops/defs/optimizer/optimizer.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "graph/op_schema.h"
#include "gtest/gtest.h"
#include "ops/defs/optimizer/update_operands.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

OptimizerKind Example() {
  return {.name = "zz_example",
          .help = "of this test",
          .options = {Beta1(0.9),
                      {.name = "warm-start", .help = "what sums start with", .attribute = ""},
                      {.name = "look-ahead", .help = "of the velocity", .needs_step = true}},
          .slots = {{.name = "sum", .starts_at = "warm-start"},
                    {.name = "velocity", .only_with = "look-ahead"}},
          .op = "ZzUpdate"};
}
WEFT_REGISTER_OPTIMIZER(Example());
WEFT_REGISTER_OP(UpdateOp(Example(), /*flops_per_element=*/3).OptionalInput("step"));

class OptimizerKindTest : public ::testing::Test {
 protected:
  OptimizerKindTest() {
    const ValueType type{ValueKind::kTensor, DType::kFloat64, Shape{2}};
    graph_.AddVariable("w", type, Tensor(), /*trainable=*/true);
    request_.variable = "w";
    request_.gradient = graph_.AddInput("g", type);
    request_.learning_rate =
        graph_.AddInput("rate", {ValueKind::kTensor, DType::kFloat64, Shape{}});
    request_.step = graph_.AddInput("step", {ValueKind::kTensor, DType::kInt64, Shape{}});
    request_.weight_decay = 0.5;
  }

  const Node& Added(const OptimizerKind& kind) {
    GraphBuilder builder(graph_);
    const absl::Status added = AddOptimizerUpdate(builder, kind, request_);
    EXPECT_TRUE(added.ok()) << added;
    return graph_.node(graph_.node_ids().back());
  }

  std::vector<std::string> NamesOf(const std::vector<ValueId>& values) const {
    std::vector<std::string> names;
    for (const ValueId value : values) {
      names.push_back(value.valid() ? graph_.value(value).name : "-");
    }
    return names;
  }

  Graph graph_;
  UpdateRequest request_;
};

TEST_F(OptimizerKindTest, OperandsAndAttributesFollowFromTheDeclaration) {
  const Node& node = Added(*FindOptimizer("zz_example"));
  EXPECT_EQ(node.op, "ZzUpdate");
  EXPECT_THAT(NamesOf(node.inputs), ElementsAre("w", "g", "rate", "w/sum"));
  EXPECT_EQ(node.attributes.Float("beta1", 0), 0.9f);
  EXPECT_EQ(node.attributes.Float("weight_decay", 0), 0.5f);
  EXPECT_FALSE(node.attributes.Has("look_ahead"));
  EXPECT_FALSE(node.attributes.Has("warm_start"));
  EXPECT_FALSE(graph_.FindVariable("w/sum")->initial.valid());
  EXPECT_EQ(graph_.FindVariable("w/sum")->slot_of, "w");
  EXPECT_EQ(graph_.FindVariable("w/sum")->update, node.outputs[1]);
  EXPECT_EQ(graph_.FindVariable("w")->update, node.outputs[0]);
}

TEST_F(OptimizerKindTest, AnOptionBringsItsStateTheStepAndTheFirstValue) {
  request_.options = {{"look-ahead", 0.5}, {"warm-start", 0.25}};
  const Node& node = Added(*FindOptimizer("zz_example"));
  EXPECT_THAT(NamesOf(node.inputs), ElementsAre("w", "g", "rate", "w/sum", "w/velocity", "step"));
  EXPECT_EQ(node.attributes.Float("look_ahead", 0), 0.5f);
  const Tensor& initial = graph_.FindVariable("w/sum")->initial;
  ASSERT_TRUE(initial.valid());
  EXPECT_THAT(initial.data<double>(), ElementsAre(0.25, 0.25));
  EXPECT_EQ(graph_.FindVariable("w/velocity")->update, node.outputs[2]);
}

// The attribute of "look-ahead" is called look_ahead; it was looked for under the option's name.
TEST_F(OptimizerKindTest, AnAttributeThatNeedsStateIsRefusedWithoutIt) {
  GraphBuilder builder(graph_);
  const ValueId w = graph_.FindVariable("w")->value;
  builder.Ops("ai.weft", "ZzUpdate", {w, request_.gradient, request_.learning_rate, w},
              {{"look_ahead", 0.5f}}, {true, true});
  EXPECT_THAT(std::string(builder.status().message()),
              HasSubstr("look_ahead needs the input velocity"));
}

TEST_F(OptimizerKindTest, AnUpdateWhoseOpIsMissingSaysSo) {
  GraphBuilder builder(graph_);
  const absl::Status added =
      AddOptimizerUpdate(builder, {.name = "x", .op = "NoSuchUpdate"}, request_);
  EXPECT_THAT(std::string(added.message()), HasSubstr("no op NoSuchUpdate is declared"));
}

// What flags and documents are made of.
TEST(Optimizers, EachHasWhatItsUsersNeed) {
  ASSERT_GE(AllOptimizers().size(), 12u);
  for (const OptimizerKind* const kind : AllOptimizers()) {
    EXPECT_FALSE(kind->help.empty()) << kind->name;
    for (const OptimizerOption& option : kind->options) {
      EXPECT_FALSE(option.help.empty()) << kind->name << " " << option.name;
      EXPECT_TRUE(option.usual >= option.low && option.usual < option.high)
          << kind->name << " " << option.name;
    }
    for (const OptimizerSlot& slot : kind->slots) {
      for (const std::string& option : {slot.only_with, slot.starts_at}) {
        EXPECT_TRUE(option.empty() || kind->FindOption(option) != nullptr)
            << kind->name << " " << slot.name << " needs the option " << option;
      }
    }
  }
  EXPECT_EQ(FindOptimizer("newton"), nullptr);
}

TEST(OptimizersDeathTest, TwoMeaningsOfOneOptionAreABug) {
  EXPECT_DEATH(internal::RegisterOptimizerOrDie(
                   {.name = "zz_other", .options = {{.name = "beta1", .help = "another"}}}),
               "zz_other: its option beta1 is not that of ");
  EXPECT_DEATH(internal::RegisterOptimizerOrDie({.name = "adam"}), "the name is taken");
}

}  // namespace
}  // namespace weft
