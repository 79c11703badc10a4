#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "graph/inference.h"
#include "graph/testing/test_ops.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;
using weft::testing::AddInts;
using weft::testing::AddOp;
using weft::testing::Floats;
using weft::testing::FloatsOf;
using weft::testing::Int64s;
using weft::testing::TestEvaluator;

class SpecializeTest : public ::testing::Test {
 protected:
  // The specialized graph as text, or the error.
  std::string Specialized(const Specialization& specialization) {
    const absl::StatusOr<Graph> result = Specialize(graph_, specialization, evaluator_);
    return result.ok() ? result->DebugString() : result.status().ToString();
  }
  std::string SpecializedTo(const std::map<std::string, Shape>& shapes) {
    Specialization specialization;
    specialization.input_shapes = shapes;
    return Specialized(specialization);
  }

  Graph graph_;
  TestEvaluator evaluator_;
};

// x -> [N, 3, 4] flattened to [N, 12] by Shape, Gather, Concat and Reshape, as exporters write it.
ValueId AddFlatten(Graph& graph, ValueId x) {
  const ValueId shape = AddOp(graph, "shape", "Shape", {x});
  const ValueId batch = AddOp(graph, "batch", "Gather", {shape, AddInts(graph, "zero", {0})});
  const ValueId rest = AddInts(graph, "rest", {12});
  const ValueId target = AddOp(graph, "target", "Concat", {batch, rest});
  return AddOp(graph, "flat", "Reshape", {x, target});
}

TEST_F(SpecializeTest, ShapeArithmeticVanishes) {
  const ValueId x = graph_.AddInput("x", Floats({"N", 3, 4}));
  const ValueId flat = AddFlatten(graph_, x);
  graph_.AddOutput(AddOp(graph_, "y", "Negate", {flat}));
  EXPECT_EQ(graph_.value(flat).type.ToString(), "float32[N,12]");

  EXPECT_EQ(SpecializedTo({{"x", {2, 3, 4}}}),
            "input %x: float32[2,3,4]\n"
            "constant %target = int64[2]{2, 12}\n"
            "%flat: float32[2,12] = test::Reshape(%x, %target)  # flat_node\n"
            "%y: float32[2,12] = test::Negate(%flat)  # y_node\n"
            "output %y\n");
  EXPECT_EQ(evaluator_.calls, 0);  // inference alone knew it all
}

TEST_F(SpecializeTest, SourceGraphIsUntouched) {
  graph_.AddOutput(AddFlatten(graph_, graph_.AddInput("x", Floats({"N", 3, 4}))));
  const std::string before = graph_.DebugString();
  SpecializedTo({{"x", {2, 3, 4}}});
  EXPECT_EQ(graph_.DebugString(), before);
}

TEST_F(SpecializeTest, ShapesOutsideInferenceAreEvaluated) {
  const ValueId one = graph_.AddConstant("one", FloatsOf({3}, 1));
  const ValueId found = AddOp(graph_, "found", "Find", {one});  // 0, 1, 2
  graph_.AddOutput(AddOp(graph_, "filled", "Fill", {found}));
  EXPECT_EQ(SpecializedTo({}),
            "constant %filled = float32[0,1,2]{}\n"
            "output %filled\n");
  EXPECT_EQ(evaluator_.calls, 2);
}

TEST_F(SpecializeTest, VariablesAreNotConstants) {
  const ValueId w = graph_.AddVariable("w", Floats({2}), FloatsOf({2}, 1), true);
  graph_.AddOutput(AddOp(graph_, "y", "Negate", {w}));
  EXPECT_THAT(SpecializedTo({}), HasSubstr("%y: float32[2] = test::Negate(%w)"));
  EXPECT_EQ(evaluator_.calls, 0);
}

TEST_F(SpecializeTest, StatefulNodesStay) {
  graph_.AddOutput(AddOp(graph_, "y", "Random", {graph_.AddConstant("seed", FloatsOf({1}, 1))}));
  EXPECT_THAT(SpecializedTo({}), HasSubstr("test::Random(%seed)"));
}

TEST_F(SpecializeTest, NodeWithoutKernelStays) {
  evaluator_.missing = {"Negate"};
  graph_.AddOutput(AddOp(graph_, "y", "Negate", {graph_.AddConstant("c", FloatsOf({1}, 1))}));
  EXPECT_THAT(SpecializedTo({}), HasSubstr("test::Negate(%c)"));
}

TEST_F(SpecializeTest, BombIsNotFolded) {
  const ValueId size = AddInts(graph_, "size", {int64_t{1} << 30});
  graph_.AddOutput(AddOp(graph_, "y", "Fill", {size}));
  EXPECT_THAT(SpecializedTo({}), HasSubstr("%y: float32[1073741824] = test::Fill(%size)"));
  EXPECT_EQ(evaluator_.calls, 0);
}

TEST_F(SpecializeTest, UncountableShapeIsAnError) {
  const int64_t big = int64_t{1} << 40;
  const ValueId size = AddInts(graph_, "size", {1, 1});
  graph_.AddOutput(AddOp(graph_, "y", "Fill", {size}));
  graph_.value(size).constant = Tensor::Of<int64_t>({2}, std::vector<int64_t>{big, big});
  EXPECT_THAT(SpecializedTo({}),
              AllOf(HasSubstr("INVALID_ARGUMENT"), HasSubstr("'y_node' (test::Fill)")));
}

TEST_F(SpecializeTest, AliasesOfTheSameShapeVanish) {
  const ValueId x = graph_.AddInput("x", Floats({"N"}));
  const ValueId same = AddOp(graph_, "same", "Same", {x});
  const ValueId again = AddOp(graph_, "again", "Same", {same});
  graph_.AddOutput(AddOp(graph_, "y", "Negate", {again}));
  EXPECT_EQ(SpecializedTo({{"x", {2}}}),
            "input %x: float32[2]\n"
            "%y: float32[2] = test::Negate(%x)  # y_node\n"
            "output %y\n");
}

TEST_F(SpecializeTest, AliasOfAnotherShapeStays) {
  const ValueId x = graph_.AddInput("x", Floats({2, 3}));
  graph_.AddOutput(AddOp(graph_, "y", "Relabel", {x}, {{"shape", std::vector<int64_t>{6}}}));
  EXPECT_THAT(SpecializedTo({{"x", {2, 3}}}), HasSubstr("%y: float32[6] = test::Relabel(%x)"));
}

TEST_F(SpecializeTest, ReductionToTheSameShapeVanishes) {
  const ValueId x = graph_.AddInput("x", Floats({"N", 3}));
  const ValueId shape = AddOp(graph_, "shape", "Shape", {x});
  const ValueId folded = AddOp(graph_, "folded", "FoldTo", {x, shape});
  graph_.AddOutput(AddOp(graph_, "y", "Negate", {folded}));
  EXPECT_EQ(SpecializedTo({{"x", {2, 3}}}),
            "input %x: float32[2,3]\n"
            "%y: float32[2,3] = test::Negate(%x)  # y_node\n"
            "output %y\n");
}

TEST_F(SpecializeTest, ReductionToAnotherShapeStays) {
  const ValueId x = graph_.AddInput("x", Floats({2, 3}));
  const ValueId shape = AddInts(graph_, "shape", {3, 2});
  graph_.AddOutput(AddOp(graph_, "y", "FoldTo", {x, shape}));
  EXPECT_THAT(SpecializedTo({}), HasSubstr("test::FoldTo(%x, %shape)"));
}

TEST_F(SpecializeTest, BypassedGraphOutputKeepsItsName) {
  const ValueId x = graph_.AddInput("x", Floats({2}));
  const ValueId inner = AddOp(graph_, "inner", "Negate", {x});
  graph_.AddOutput(AddOp(graph_, "y", "Same", {inner}));
  EXPECT_EQ(SpecializedTo({}),
            "input %x: float32[2]\n"
            "%y: float32[2] = test::Negate(%x)  # inner_node\n"
            "output %y\n");
}

TEST_F(SpecializeTest, AliasStaysBetweenAnInputAndAnOutput) {
  graph_.AddOutput(AddOp(graph_, "y", "Same", {graph_.AddInput("x", Floats({2}))}));
  EXPECT_THAT(SpecializedTo({}), HasSubstr("%y: float32[2] = test::Same(%x)"));
}

TEST_F(SpecializeTest, TwoOutputsOfOneValueKeepBothNames) {
  const ValueId x = graph_.AddInput("x", Floats({2}));
  const ValueId first = AddOp(graph_, "first", "Negate", {x});
  graph_.AddOutput(first);
  graph_.AddOutput(AddOp(graph_, "second", "Same", {first}));
  EXPECT_THAT(SpecializedTo({}),
              AllOf(HasSubstr("output %first\n"), HasSubstr("output %second\n")));
}

TEST_F(SpecializeTest, BoundaryIsNoAliasToBypass) {
  const ValueId x = graph_.AddInput("x", Floats({2}));
  const ValueId block = AddOp(graph_, "block", "Block", {x});
  graph_.AddOutput(AddOp(graph_, "y", "Negate", {block}));
  EXPECT_THAT(SpecializedTo({}), HasSubstr("test::Block(%x)"));
}

TEST_F(SpecializeTest, StepNodeDoesNotComeToReadAMicroBatchValue) {
  const ValueId x = graph_.AddInput("x", Floats({2}));
  const ValueId forward = AddOp(graph_, "forward", "Negate", {x});
  const ValueId same = AddOp(graph_, "same", "Same", {forward});
  graph_.node(graph_.value(same).producer).phase = Phase::kUpdate;
  graph_.AddOutput(AddOp(graph_, "y", "Negate", {same}));
  EXPECT_THAT(SpecializedTo({}), HasSubstr("test::Same(%forward)"));
}

TEST_F(SpecializeTest, DeadNodesAreNotEvenChecked) {
  const ValueId x = graph_.AddInput("x", Floats({2}));
  AddOp(graph_, "dead", "Fill", {AddOp(graph_, "found", "Find", {x})});
  graph_.AddOutput(AddOp(graph_, "y", "Negate", {x}));
  EXPECT_EQ(SpecializedTo({}),
            "input %x: float32[2]\n"
            "%y: float32[2] = test::Negate(%x)  # y_node\n"
            "output %y\n");
}

TEST_F(SpecializeTest, FixedInputBecomesAConstant) {
  const ValueId x = graph_.AddInput("x", Floats({2, 3}));
  const ValueId shape = graph_.AddInput("shape", Int64s({"R"}));
  graph_.AddOutput(AddOp(graph_, "y", "Reshape", {x, shape}));
  Specialization specialization;
  specialization.input_values["shape"] = Tensor::Of<int64_t>({1}, std::vector<int64_t>{6});
  EXPECT_EQ(Specialized(specialization),
            "input %x: float32[2,3]\n"
            "constant %shape = int64[1]{6}\n"
            "%y: float32[6] = test::Reshape(%x, %shape)  # y_node\n"
            "output %y\n");
}

TEST_F(SpecializeTest, OneSymbolOfTwoSizesNamesBothInputs) {
  graph_.AddInput("x", Floats({"N", 2}));
  graph_.AddInput("labels", Int64s({"N"}));
  EXPECT_EQ(
      SpecializedTo({{"x", {16, 2}}, {"labels", {32}}}),
      "INVALID_ARGUMENT: dimension 'N' is 32 in input 'labels' and 16 in axis 0 of input 'x', "
      "which is given the shape [16,2]; they must be equal");
}

TEST_F(SpecializeTest, WrongRankAndWrongSizeAreErrors) {
  graph_.AddInput("x", Floats({"N", 2}));
  EXPECT_EQ(SpecializedTo({{"x", {16}}}),
            "INVALID_ARGUMENT: input 'x' is given the shape [16] of rank 1, but the model declares "
            "[N,2] of rank 2");
  EXPECT_EQ(SpecializedTo({{"x", {16, 3}}}),
            "INVALID_ARGUMENT: input 'x' is given the shape [16,3], but the model declares [N,2]: "
            "axis 1 must be 2");
}

TEST_F(SpecializeTest, OneInputBindsTheSymbolsOfOthers) {
  graph_.AddInput("x", Floats({"N", 2}));
  graph_.AddInput("labels", Int64s({"N"}));
  EXPECT_THAT(SpecializedTo({{"x", {16, 2}}}), HasSubstr("input %labels: int64[16]"));
}

TEST_F(SpecializeTest, InputOfUnknownSizeIsAnError) {
  graph_.AddInput("x", Floats({"N", 2}));
  EXPECT_EQ(
      SpecializedTo({}),
      "INVALID_ARGUMENT: input 'x' has the shape [N,2], in which not every size is known; give "
      "the input's shape");
}

TEST_F(SpecializeTest, UnknownInputIsAnError) {
  graph_.AddInput("x", Floats({2}));
  EXPECT_EQ(SpecializedTo({{"y", {2}}}),
            "INVALID_ARGUMENT: the graph has no input 'y'; its inputs are 'x'");
}

TEST_F(SpecializeTest, FixedValueOfAnotherTypeIsAnError) {
  graph_.AddInput("shape", Int64s({1}));
  Specialization specialization;
  specialization.input_values["shape"] = FloatsOf({1}, 2);
  EXPECT_EQ(Specialized(specialization),
            "INVALID_ARGUMENT: input 'shape' is fixed to float32[1]{2}, but the model declares "
            "int64[1]");
}

TEST_F(SpecializeTest, OperandsThatDoNotFitNameTheNode) {
  const ValueId x = graph_.AddInput("x", Floats({"N"}));
  const ValueId y = graph_.AddInput("y", Floats({"N"}));
  graph_.AddOutput(AddOp(graph_, "sum", "Add", {x, y}));
  graph_.value(y).type = Floats({"N", 1});
  EXPECT_EQ(SpecializedTo({{"x", {2}}}),
            "INVALID_ARGUMENT: node 'sum_node' (test::Add) with inputs (float32[2], float32[2,1]): "
            "the ranks differ");
}

TEST_F(SpecializeTest, ShapeInputWithoutAFixedValueIsNamed) {
  const ValueId x = graph_.AddInput("x", Floats({2, 3}));
  const ValueId shape = graph_.AddInput("shape", Int64s({1}));
  const ValueId all = AddOp(graph_, "all", "Concat", {shape});
  graph_.AddOutput(AddOp(graph_, "y", "Reshape", {x, all}));
  EXPECT_EQ(
      SpecializedTo({}),
      "UNIMPLEMENTED: node 'y_node' (test::Reshape): the value of input 1 ('shape') decides a "
      "shape but depends on data; it is 'all'; fix the value of 'shape'");
}

TEST_F(SpecializeTest, ShapeThatCannotBeEvaluatedSaysWhy) {
  evaluator_.missing = {"Find"};
  const ValueId found = AddOp(graph_, "found", "Find", {graph_.AddConstant("c", FloatsOf({2}, 1))});
  graph_.AddOutput(AddOp(graph_, "y", "Fill", {found}));
  EXPECT_THAT(SpecializedTo({}), AllOf(HasSubstr("UNIMPLEMENTED"), HasSubstr("found_node"),
                                       HasSubstr("no kernel for Find")));
}

TEST_F(SpecializeTest, OutputWhoseSizeDependsOnDataIsNamed) {
  const ValueId x = graph_.AddInput("x", Floats({2}));
  graph_.AddOutput(AddOp(graph_, "found", "Find", {x}));
  EXPECT_EQ(
      SpecializedTo({}),
      "UNIMPLEMENTED: node 'found_node' (test::Find) with inputs (float32[2]): the shape of its "
      "output 'found', int64[?], depends on data");
}

TEST_F(SpecializeTest, UnknownOpIsNamedWithTheNearestOne) {
  const ValueId y = AddOp(graph_, "y", "Negate", {graph_.AddInput("x", Floats({2}))});
  Node& node = graph_.node(graph_.value(y).producer);
  node.op = "Negat";
  node.schema = nullptr;
  graph_.AddOutput(y);
  EXPECT_EQ(SpecializedTo({}),
            "UNIMPLEMENTED: node 'y_node' (test::Negat): no op of this name is known, did you mean "
            "Negate?");
}

TEST_F(SpecializeTest, CycleIsAnError) {
  const ValueId y = AddOp(graph_, "y", "Negate", {graph_.AddInput("x", Floats({2}))});
  graph_.node(graph_.value(y).producer).inputs[0] = y;
  graph_.AddOutput(y);
  EXPECT_THAT(SpecializedTo({}), HasSubstr("cycle"));
}

TEST_F(SpecializeTest, FoldedUpdatesKeepTheVariable) {
  graph_.AddVariable("w", Floats({2}), FloatsOf({2}, 1), true);
  graph_.SetVariableUpdate(
      "w", AddOp(graph_, "new", "Negate", {graph_.AddConstant("c", FloatsOf({2}, 3))}));
  EXPECT_EQ(SpecializedTo({}),
            "variable %w: float32[2] trainable\n"
            "constant %new = float32[2]{-3, -3}\n"
            "update %w <- %new\n");
}

TEST(ValueInputsOf, FollowsShapeArithmeticToItsInputs) {
  Graph graph;
  const ValueId x = graph.AddInput("x", Floats({"?", 3, 4}));
  graph.AddInput("data", Int64s({2}));
  const ValueId size = graph.AddInput("size", Int64s({1}));
  const ValueId both = AddOp(graph, "both", "Concat", {size, AddOp(graph, "s", "Shape", {x})});
  graph.AddOutput(AddOp(graph, "y", "Fill", {both}));
  EXPECT_THAT(ValueInputsOf(graph), ElementsAre("size"));
}

TEST(ValueInputsOf, DeadNodesAndPlainGraphsNeedNone) {
  Graph graph;
  const ValueId size = graph.AddInput("size", Int64s({1}));
  AddOp(graph, "dead", "Fill", {size});
  graph.AddOutput(AddOp(graph, "y", "Concat", {size}));
  EXPECT_THAT(ValueInputsOf(graph), IsEmpty());
}

}  // namespace
}  // namespace weft
