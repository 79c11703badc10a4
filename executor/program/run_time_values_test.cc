// What a program finds out as it runs: sizes that depend on data, bodies, sequences, strings.
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "executor/program/forward_runner.h"
#include "gmock/gmock.h"
#include "graph/graph_builder.h"
#include "graph/node_bodies.h"
#include "graph/op_schema.h"
#include "gtest/gtest.h"
#include "tensor/testing/fake_device.h"
#include "tensor/testing/test_device.h"

namespace weft {
namespace {

using ::testing::HasSubstr;

ValueType TypeOf(DType dtype, std::vector<Dim> dims) {
  return {ValueKind::kTensor, dtype, SymbolicShape(std::move(dims))};
}

Tensor Floats(std::vector<float> values) {
  return Tensor::Of<float>(Shape{static_cast<int64_t>(values.size())}, values);
}

// An op without a kernel, whose expansion wants to know the rank: twice x, if that has an axis.
absl::StatusOr<std::vector<ValueId>> ExpandTwice(ExpandContext& context) {
  const ValueId x = context.node().inputs[0];
  const SymbolicShape& shape = context.graph().value(x).type.shape;
  if (!shape.has_rank()) return absl::UnimplementedError("the rank of x is not known");
  return std::vector<ValueId>{context.builder().Op(shape.rank() > 0 ? "Add" : "Mul", {x, x})};
}

absl::Status InferTwice(InferenceContext& context) {
  context.SetOutput(0, context.InputType(0));
  return absl::OkStatus();
}

WEFT_REGISTER_OP(
    OpSchema("test", "Twice").Input("x").Output("y").Infer(InferTwice).Expand(ExpandTwice));

// A graph in the making, with its outputs by name.
class GraphMaker {
 public:
  GraphMaker() : builder_(graph_) {}
  ValueId Input(const std::string& name, ValueType type) { return graph_.AddInput(name, type); }
  ValueId Op(const std::string& op, std::vector<ValueId> inputs, Attributes attributes = {}) {
    return builder_.Op(op, std::move(inputs), std::move(attributes));
  }
  ValueId Constant(Tensor tensor) { return builder_.Constant(std::move(tensor)); }
  void Output(ValueId value, const std::string& name = "") {
    if (!name.empty()) builder_.Name(value, name);
    graph_.AddOutput(value);
  }
  GraphBuilder& builder() { return builder_; }
  Graph Take() {
    EXPECT_TRUE(builder_.status().ok()) << builder_.status();
    return std::move(graph_);
  }
  std::shared_ptr<Graph> TakeShared() { return std::make_shared<Graph>(Take()); }

 private:
  Graph graph_;
  GraphBuilder builder_;
};

std::string RunText(ForwardRunner& runner, const std::map<std::string, Value>& inputs,
                    const std::string& output = "y") {
  const auto outputs = runner.Run(inputs);
  return outputs.ok() ? outputs->at(output).ToString() : std::string(outputs.status().message());
}

// On each device of tensor/testing/test_device.h: with one text.
std::string RunText(const Graph& graph, const std::map<std::string, Value>& inputs,
                    const std::string& output = "y") {
  std::string text;
  for (const int order : {testing::kOnCpu, testing::kLazyOrder, 1, 2, 3}) {
    const std::unique_ptr<Device> device = testing::NewTestDevice(order);
    ForwardRunner runner(graph.Clone(), {.device = device.get()});
    const std::string own = RunText(runner, inputs, output);
    if (order == testing::kOnCpu) text = own;
    EXPECT_EQ(own, text) << testing::TestDeviceName(order);
  }
  return text;
}

// y = the values of x that are not zero, doubled, beside a sum that is planned ahead.
Graph Selecting() {
  GraphMaker maker;
  const ValueId x = maker.Input("x", TypeOf(DType::kFloat32, {Dim::Symbol("N")}));
  const ValueId sum = maker.Op("Add", {x, x});
  const ValueId found = maker.Op("Transpose", {maker.Op("NonZero", {sum})});
  const ValueId flat = maker.Op("Reshape", {found, maker.builder().Ints({-1})});
  maker.Output(maker.Op("Gather", {sum, flat}), "y");
  maker.Output(sum, "sum");
  return maker.Take();
}

TEST(RunTimeValuesTest, SizesMayDependOnData) {
  ForwardRunner runner(Selecting(), {});
  EXPECT_EQ(RunText(runner, {{"x", Floats({1, 0, 3})}}), "float32[2]{2, 6}");
  EXPECT_EQ(RunText(runner, {{"x", Floats({0, 0, 3})}}), "float32[1]{6}");
  EXPECT_EQ(RunText(runner, {{"x", Floats({0, 0, 0})}}), "float32[0]{}");
  EXPECT_EQ(RunText(runner, {{"x", Floats({0, 0, 3})}}, "sum"), "float32[3]{0, 0, 6}");
}

TEST(RunTimeValuesTest, RunOnAnAsynchronousDevice) {
  testing::FakeDevice device({.scheduling = {.seed = 5}});
  ForwardRunner runner(Selecting(), {.device = &device});
  EXPECT_EQ(RunText(runner, {{"x", Floats({1, 0, 3})}}), "float32[2]{2, 6}");
}

TEST(RunTimeValuesTest, WhatIsMadeOutlivesTheStep) {
  // Gather of all positions is a copy, Reshape a view of what the step made.
  GraphMaker maker;
  const ValueId x = maker.Input("x", TypeOf(DType::kFloat32, {Dim::Symbol("N")}));
  const ValueId doubled = maker.Op("Add", {x, x});
  maker.Output(maker.Op("SequenceConstruct", {doubled}), "y");
  ForwardRunner runner(maker.Take(), {});
  const auto first = runner.Run({{"x", Floats({1, 2})}});
  ASSERT_TRUE(first.ok()) << first.status();
  ASSERT_TRUE(runner.Run({{"x", Floats({5, 6})}}).ok());
  EXPECT_EQ(first->at("y").ToString(), "sequence(float32[2]{2, 4})");
}

TEST(RunTimeValuesTest, AShapeMayBeComputedFromData) {
  GraphMaker maker;
  const ValueId x = maker.Input("x", TypeOf(DType::kFloat32, {Dim::Symbol("N")}));
  const ValueId size = maker.Op("Shape", {maker.Op("NonZero", {x})});
  const ValueId ones = maker.Op("ConstantOfShape", {size},
                                {{"value", Tensor::Of<float>(Shape{1}, std::vector<float>{1})}});
  maker.Output(ones, "y");
  EXPECT_EQ(RunText(maker.Take(), {{"x", Floats({1, 0, 3})}}), "float32[1,2]{1, 1}");
}

TEST(RunTimeValuesTest, StringsGoThrough) {
  GraphMaker maker;
  const ValueId x = maker.Input("x", TypeOf(DType::kString, {2}));
  const ValueId dot = maker.Constant(Tensor::OfStrings(Shape{}, {"."}));
  maker.Output(maker.Op("StringConcat", {x, dot}), "y");
  maker.Output(dot, "dot");
  const Graph graph = maker.Take();
  const Value given = Tensor::OfStrings(Shape{2}, {"a", "b"});
  EXPECT_EQ(RunText(graph.Clone(), {{"x", given}}),
            Tensor::OfStrings(Shape{2}, {"a.", "b."}).ToString());
  EXPECT_EQ(RunText(graph.Clone(), {{"x", given}}, "dot"),
            Tensor::OfStrings(Shape{}, {"."}).ToString());
}

TEST(RunTimeValuesTest, ErrorsNameTheNode) {
  GraphMaker maker;
  const ValueId x = maker.Input("x", {ValueKind::kSequence, DType::kFloat32, SymbolicShape()});
  const ValueId at = maker.Input("at", TypeOf(DType::kInt64, {}));
  maker.Output(maker.Op("SequenceAt", {x, at}), "y");
  EXPECT_THAT(RunText(maker.Take(),
                      {{"x", Value::Sequence({Floats({1})})}, {"at", Tensor::Scalar<int64_t>(2)}}),
              HasSubstr("node 'SequenceAt' (SequenceAt"));
}

TEST(RunTimeValuesTest, AFunctionMayBeExpandedWhenItsOperandIsThere) {
  GraphMaker maker;
  const ValueId x = maker.Input("x", TypeOf(DType::kFloat32, {Dim::Symbol("N")}));
  const ValueId at = maker.Input("at", TypeOf(DType::kInt64, {}));
  const ValueId row = maker.Op("Unsqueeze", {x, maker.builder().Ints({0})});
  const ValueId list = maker.Op("SequenceConstruct", {x, row});
  const ValueId element = maker.Op("SequenceAt", {list, at});  // of rank 1 or 2
  maker.Output(maker.builder().Ops("test", "Twice", {element}, {}, {true})[0], "y");
  EXPECT_EQ(RunText(maker.Take(), {{"x", Floats({2, 3})}, {"at", Tensor::Scalar<int64_t>(1)}}),
            "float32[1,2]{4, 6}");
}

// ---- If

std::shared_ptr<Graph> Branch(const std::string& op, ValueType type) {
  GraphMaker body;
  const ValueId x = body.Input("x", std::move(type));
  body.Output(body.Op(op, {x, x}));
  return body.TakeShared();
}

Graph Branching(ValueType x_type) {
  GraphMaker maker;
  const ValueId condition = maker.Input("cond", TypeOf(DType::kBool, {}));
  const ValueId x = maker.Input("x", x_type);
  const std::vector<std::string> captures = {"x"};
  const ValueId y = maker.Op("If", {condition, x, x},
                             {{"then_branch", Branch("Add", x_type)},
                              {"else_branch", Branch("Mul", x_type)},
                              {CapturesAttribute("then_branch"), captures},
                              {CapturesAttribute("else_branch"), captures}});
  maker.Output(maker.Op("Neg", {y}), "y");
  return maker.Take();
}

TEST(IfTest, RunsOneBranch) {
  ForwardRunner runner(Branching(TypeOf(DType::kFloat32, {Dim::Symbol("N")})), {});
  for (int round = 0; round < 2; ++round) {
    EXPECT_EQ(RunText(runner, {{"cond", Tensor::Scalar<bool>(true)}, {"x", Floats({3})}}),
              "float32[1]{-6}");
    EXPECT_EQ(RunText(runner, {{"cond", Tensor::Scalar<bool>(false)}, {"x", Floats({3})}}),
              "float32[1]{-9}");
    EXPECT_EQ(RunText(runner, {{"cond", Tensor::Scalar<bool>(false)}, {"x", Floats({3, 2})}}),
              "float32[2]{-9, -4}");
  }
}

TEST(IfTest, BodyOfTheDeviceRunsThere) {
  testing::FakeDevice device({.scheduling = {.seed = 5}});
  ForwardRunner runner(Branching(TypeOf(DType::kFloat32, {1})), {.device = &device});
  EXPECT_EQ(RunText(runner, {{"cond", Tensor::Scalar<bool>(true)}, {"x", Floats({3})}}),
            "float32[1]{-6}");
}

// ---- Loop

// Carries v, to which x is appended `M` times, and collects the sizes of v.
Graph Growing() {
  GraphMaker body;
  body.Input("round", TypeOf(DType::kInt64, {}));
  const ValueId condition = body.Input("cond", TypeOf(DType::kBool, {}));
  // What a file says of it is wrong after the first round.
  const ValueId v = body.Input("v", TypeOf(DType::kFloat32, {1}));
  const ValueId x = body.Input("x", TypeOf(DType::kFloat32, {1}));
  body.Output(body.Op("Identity", {condition}));
  const ValueId longer = body.Op("Concat", {v, x}, {{"axis", int64_t{0}}});
  body.Output(longer);
  body.Output(body.Op("Shape", {longer}));

  GraphMaker maker;
  const ValueId rounds = maker.Input("M", TypeOf(DType::kInt64, {}));
  const ValueId start = maker.Input("v", TypeOf(DType::kFloat32, {1}));
  const ValueId added = maker.Input("x", TypeOf(DType::kFloat32, {1}));
  const auto outputs = maker.builder().Ops(
      "", "Loop", {rounds, kNoValue, start, added},
      {{"body", body.TakeShared()}, {CapturesAttribute("body"), std::vector<std::string>{"x"}}},
      {true, true});
  maker.Output(outputs[0], "y");
  maker.Output(outputs[1], "sizes");
  return maker.Take();
}

TEST(LoopTest, WhatItCarriesMayGrow) {
  ForwardRunner runner(Growing(), {});
  const auto run = [&](int64_t rounds, const std::string& output) {
    return RunText(runner,
                   {{"M", Tensor::Scalar<int64_t>(rounds)}, {"v", Floats({1})}, {"x", Floats({2})}},
                   output);
  };
  EXPECT_EQ(run(3, "y"), "float32[4]{1, 2, 2, 2}");
  EXPECT_EQ(run(3, "sizes"), "int64[3,1]{2, 3, 4}");
  EXPECT_EQ(run(0, "y"), "float32[1]{1}");
  EXPECT_EQ(run(0, "sizes"), "int64[0,1]{}");
  // More rounds than programs are made for.
  EXPECT_THAT(run(40, "y"), HasSubstr("float32[41]"));
}

TEST(LoopTest, EndsWhenTheConditionIsFalse) {
  GraphMaker body;
  const ValueId round = body.Input("round", TypeOf(DType::kInt64, {}));
  body.Input("cond", TypeOf(DType::kBool, {}));
  const ValueId v = body.Input("v", TypeOf(DType::kInt64, {}));
  body.Output(body.Op("Less", {round, body.Constant(Tensor::Scalar<int64_t>(4))}));
  body.Output(body.Op("Add", {v, round}));
  GraphMaker maker;
  const ValueId start = maker.Input("v", TypeOf(DType::kInt64, {}));
  maker.Output(maker.Op("Loop", {kNoValue, kNoValue, start}, {{"body", body.TakeShared()}}), "y");
  EXPECT_EQ(RunText(maker.Take(), {{"v", Tensor::Scalar<int64_t>(100)}}), "int64[]{110}");
}

// ---- Scan

TEST(ScanTest, TakesAxesAndDirections) {
  GraphMaker body;
  const ValueId sum = body.Input("sum", TypeOf(DType::kFloat32, {2}));
  const ValueId x = body.Input("x", TypeOf(DType::kFloat32, {2}));
  const ValueId next = body.Op("Add", {sum, x});
  body.Output(next);
  body.Output(body.Op("Identity", {next}));
  GraphMaker maker;
  const ValueId start = maker.Input("sum", TypeOf(DType::kFloat32, {2}));
  const ValueId all = maker.Input("x", TypeOf(DType::kFloat32, {2, 3}));
  const auto outputs = maker.builder().Ops("", "Scan", {start, all},
                                           {{"body", body.TakeShared()},
                                            {"num_scan_inputs", int64_t{1}},
                                            {"scan_input_axes", std::vector<int64_t>{1}},
                                            {"scan_input_directions", std::vector<int64_t>{1}},
                                            {"scan_output_axes", std::vector<int64_t>{-1}},
                                            {"scan_output_directions", std::vector<int64_t>{1}}},
                                           {true, true});
  maker.Output(outputs[0], "last");
  maker.Output(outputs[1], "y");
  const Graph graph = maker.Take();
  const std::map<std::string, Value> inputs = {
      {"sum", Floats({0, 0})}, {"x", Tensor::Of<float>(Shape{2, 3}, {1, 2, 3, 4, 5, 6})}};
  EXPECT_EQ(RunText(graph.Clone(), inputs, "last"), "float32[2]{6, 15}");
  EXPECT_EQ(RunText(graph.Clone(), inputs), "float32[2,3]{6, 5, 3, 15, 11, 6}");
}

// ---- SequenceMap

TEST(SequenceMapTest, RunsItsBodyOnEveryElement) {
  GraphMaker body;
  const ValueId x = body.Input("x", TypeOf(DType::kFloat32, {Dim()}));
  const ValueId b = body.Input("b", TypeOf(DType::kFloat32, {1}));
  body.Output(body.Op("Mul", {x, b}));
  GraphMaker maker;
  const ValueId all = maker.Input("x", {ValueKind::kSequence, DType::kFloat32, SymbolicShape()});
  const ValueId factor = maker.Constant(Floats({10}));
  maker.Output(maker.Op("SequenceMap", {all, factor}, {{"body", body.TakeShared()}}), "y");
  EXPECT_EQ(RunText(maker.Take(), {{"x", Value::Sequence({Floats({1}), Floats({2, 3})})}}),
            "sequence(float32[1]{10}, float32[2]{20, 30})");
}

}  // namespace
}  // namespace weft
