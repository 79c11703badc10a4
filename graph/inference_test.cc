#include "graph/inference.h"

#include "gmock/gmock.h"
#include "graph/op_schema.h"
#include "graph/testing/test_ops.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

using ::testing::HasSubstr;
using weft::testing::AddInts;
using weft::testing::AddOp;
using weft::testing::Floats;
using weft::testing::FloatsOf;
using weft::testing::Int64s;

// What the probe's shape function saw.
struct Seen {
  std::string value;
  std::string dims;
};
Seen& seen() {
  static Seen& seen = *new Seen;
  return seen;
}

absl::Status Probe(InferenceContext& context) {
  const Tensor* value = context.InputValue(0);
  seen().value = value == nullptr ? "unknown" : value->ToString();
  const std::optional<std::vector<Dim>> dims = context.InputDims(0);
  seen().dims = dims.has_value() ? SymbolicShape(*dims).ToString() : "unknown";
  context.SetOutput(0, DType::kFloat32, Shape{1});
  return absl::OkStatus();
}

WEFT_REGISTER_OP(OpSchema("test", "Probe").Input("x").Output("y").Infer(Probe));

class InferenceTest : public ::testing::Test {
 protected:
  Seen ProbeOf(ValueId value) {
    AddOp(graph_, "probe", "Probe", {value});
    return seen();
  }

  Graph graph_;
  const ValueId x_ = graph_.AddInput("x", Floats({"N", 3}));
};

TEST_F(InferenceTest, SymbolsFlowThroughShapeArithmetic) {
  const ValueId shape = AddOp(graph_, "shape", "Shape", {x_});
  const ValueId more = AddOp(graph_, "more", "Concat", {shape, AddInts(graph_, "c", {7})});
  const Seen seen = ProbeOf(more);
  EXPECT_EQ(seen.dims, "[N,3,7]");
  EXPECT_EQ(seen.value, "unknown");
  EXPECT_EQ(graph_.value(AddOp(graph_, "f", "Fill", {more})).type.ToString(), "float32[N,3,7]");
}

TEST_F(InferenceTest, KnownElementsAreAValue) {
  const ValueId shape = AddOp(graph_, "shape", "Shape", {x_});
  const ValueId three = AddOp(graph_, "three", "Gather", {shape, AddInts(graph_, "one", {1})});
  EXPECT_EQ(ProbeOf(three).value, "int64[1]{3}");
}

TEST_F(InferenceTest, ScalarIndexGivesAScalarValue) {
  const ValueId shape = AddOp(graph_, "shape", "Shape", {x_});
  const ValueId one = graph_.AddConstant("one", Tensor::Scalar<int64_t>(1));
  EXPECT_EQ(ProbeOf(AddOp(graph_, "three", "Gather", {shape, one})).value, "int64[]{3}");
}

TEST_F(InferenceTest, ConstantsAreValuesAndDims) {
  EXPECT_EQ(ProbeOf(AddInts(graph_, "c", {4, 5})).dims, "[4,5]");
  EXPECT_EQ(ProbeOf(AddInts(graph_, "c", {4, 5})).value, "int64[2]{4, 5}");
}

TEST_F(InferenceTest, ANegativeElementIsNoDimensionAmongOthers) {
  EXPECT_EQ(ProbeOf(AddInts(graph_, "c", {4, -1})).dims, "[4,?]");
  EXPECT_EQ(ProbeOf(AddInts(graph_, "c", {4, -1})).value, "int64[2]{4, -1}");
}

TEST_F(InferenceTest, FloatAndLongConstantsAreNoDims) {
  EXPECT_EQ(ProbeOf(graph_.AddConstant("c", FloatsOf({2}, 1))).dims, "unknown");
  EXPECT_EQ(ProbeOf(AddInts(graph_, "c", std::vector<int64_t>(65, 1))).dims, "unknown");
}

TEST_F(InferenceTest, UnknownDimensionsStandAmongKnownOnes) {
  const ValueId y = graph_.AddInput("y", Floats({"?", 3}));
  EXPECT_EQ(ProbeOf(AddOp(graph_, "shape", "Shape", {y})).dims, "[?,3]");
  EXPECT_EQ(seen().value, "unknown");
}

TEST_F(InferenceTest, InputsAndVariablesAreNoValues) {
  EXPECT_EQ(ProbeOf(graph_.AddInput("i", Int64s({2}))).value, "unknown");
  const Tensor initial = Tensor::Of<int64_t>({1}, std::vector<int64_t>{1});
  EXPECT_EQ(ProbeOf(graph_.AddVariable("v", Int64s({1}), initial, false)).value, "unknown");
}

TEST_F(InferenceTest, WholeGraphIsInferredInOrder) {
  const ValueId y = AddOp(graph_, "y", "Negate", {x_});
  const ValueId z = AddOp(graph_, "z", "Negate", {y});
  graph_.value(x_).type = Floats({5});
  ASSERT_TRUE(InferShapes(graph_).ok());
  EXPECT_EQ(graph_.value(z).type.ToString(), "float32[5]");
}

TEST_F(InferenceTest, UnknownOpLeavesItsOutputsAlone) {
  Graph::NodeSpec spec;
  spec.domain = "test";
  spec.op = "Nobody";
  spec.inputs = {x_};
  spec.outputs = {"y"};
  const NodeId id = graph_.AddNode(std::move(spec));
  const ValueId z = AddOp(graph_, "z", "Negate", graph_.node(id).outputs);
  ASSERT_TRUE(InferShapes(graph_).ok());
  EXPECT_EQ(graph_.value(z).type.ToString(), "invalid[unknown rank]");
}

TEST_F(InferenceTest, ShapesBeyondCountingAreRefused) {
  const int64_t big = int64_t{1} << 40;
  const ValueId size = AddInts(graph_, "size", {1, 1});
  const ValueId y = AddOp(graph_, "y", "Fill", {size});
  graph_.value(size).constant = Tensor::Of<int64_t>({2}, std::vector<int64_t>{big, big});
  const absl::Status status = InferNode(graph_, graph_.value(y).producer);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("its output 'y' would be of shape [1099511627776,1099511627776]"));
}

TEST_F(InferenceTest, ErrorNamesNodeOpAndShapes) {
  const ValueId y = AddOp(graph_, "y", "Add", {x_, x_});
  graph_.node(graph_.value(y).producer).inputs[1] = graph_.AddInput("flat", Floats({3}));
  EXPECT_EQ(
      InferShapes(graph_).ToString(),
      "INVALID_ARGUMENT: node 'y_node' (test::Add) with inputs (float32[N,3], float32[3]): the "
      "ranks differ");
}

TEST_F(InferenceTest, ErrorOfAHelperGetsTheNodeToo) {
  Graph::NodeSpec spec;
  spec.name = "halve";
  spec.domain = "test";
  spec.op = "Split";
  spec.inputs = {graph_.AddInput("scalar", Floats({}))};
  spec.outputs = {"first"};
  const NodeId id = graph_.AddNode(std::move(spec));
  EXPECT_EQ(
      InferNode(graph_, id).ToString(),
      "INVALID_ARGUMENT: node 'halve' (test::Split) with inputs (float32[]): no axis to split");
}

TEST_F(InferenceTest, NodeThatDoesNotFitItsSchemaNeverReachesTheShapeFunction) {
  const ValueId y = AddOp(graph_, "y", "Add", {x_, x_});
  Node& node = graph_.node(graph_.value(y).producer);
  node.inputs = {x_, kNoValue};
  EXPECT_THAT(InferNode(graph_, node.id).message(), HasSubstr("lacks the required input 1 ('b')"));
  node.inputs = {x_, x_};
  node.outputs.clear();
  EXPECT_THAT(InferNode(graph_, node.id).message(), HasSubstr("lacks the required output 0 ('y')"));
}

// The fuzzer found an Einsum whose list of inputs had a hole.
TEST_F(InferenceTest, AListOfInputsHasNoHoles) {
  const ValueId y = AddOp(graph_, "y", "Concat", {x_, x_});
  Node& node = graph_.node(graph_.value(y).producer);
  node.inputs = {x_, kNoValue, x_};
  EXPECT_THAT(InferNode(graph_, node.id).message(),
              HasSubstr("leaves input 1 out of the list 'x'"));
}

}  // namespace
}  // namespace weft
