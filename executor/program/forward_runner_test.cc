#include "executor/program/forward_runner.h"

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "graph/graph_builder.h"
#include "graph/op_schema.h"
#include "gtest/gtest.h"
#include "tensor/testing/fake_device.h"

namespace weft {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string Message(const absl::Status& status) { return std::string(status.message()); }

ValueType TypeOf(DType dtype, std::vector<Dim> dims) {
  return {ValueKind::kTensor, dtype, SymbolicShape(std::move(dims))};
}

// y = x [N,2] times w [2,2].
Graph Linear() {
  Graph graph;
  const ValueId x = graph.AddInput("x", TypeOf(DType::kFloat32, {Dim::Symbol("N"), 2}));
  const ValueId w = graph.AddVariable("w", TypeOf(DType::kFloat32, {2, 2}),
                                      Tensor::Of<float>({2, 2}, {1, 2, 3, 4}), true);
  GraphBuilder builder(graph);
  const ValueId y = builder.Op("MatMul", {x, w});
  builder.Name(y, "y");
  EXPECT_TRUE(builder.status().ok()) << builder.status();
  graph.AddOutput(y);
  return graph;
}

TEST(ForwardRunnerTest, RunsOnAnyBatchAndAgain) {
  ForwardRunner runner(Linear(), {});
  for (int round = 0; round < 2; ++round) {
    const auto one = runner.Run({{"x", Tensor::Of<float>({1, 2}, {1, 10})}});
    ASSERT_TRUE(one.ok()) << one.status();
    EXPECT_EQ(one->at("y").tensor().ToString(), "float32[1,2]{31, 42}");
    const auto two = runner.Run({{"x", Tensor::Of<float>({2, 2}, {1, 0, 0, 1})}});
    ASSERT_TRUE(two.ok()) << two.status();
    EXPECT_EQ(two->at("y").tensor().ToString(), "float32[2,2]{1, 2, 3, 4}");
  }
}

TEST(ForwardRunnerTest, OutputsHaveMemoryOfTheirOwn) {
  ForwardRunner runner(Linear(), {});
  const auto first = runner.Run({{"x", Tensor::Of<float>({1, 2}, {1, 0})}});
  ASSERT_TRUE(first.ok()) << first.status();
  ASSERT_TRUE(runner.Run({{"x", Tensor::Of<float>({1, 2}, {0, 1})}}).ok());
  EXPECT_THAT(first->at("y").tensor().data<float>(), ElementsAre(1, 2));
}

TEST(ForwardRunnerTest, RunsOnAnAsynchronousDevice) {
  testing::FakeDevice device({.scheduling = {.seed = 5}});
  ForwardRunner runner(Linear(), {.device = &device});
  const auto outputs = runner.Run({{"x", Tensor::Of<float>({1, 2}, {1, 10})}});
  ASSERT_TRUE(outputs.ok()) << outputs.status();
  EXPECT_THAT(outputs->at("y").tensor().data<float>(), ElementsAre(31, 42));
}

TEST(ForwardRunnerTest, AnEmptyBatchGivesAnEmptyOutput) {
  ForwardRunner runner(Linear(), {});
  const auto outputs = runner.Run({{"x", Tensor::Of<float>({0, 2}, std::vector<float>())}});
  ASSERT_TRUE(outputs.ok()) << outputs.status();
  EXPECT_EQ(outputs->at("y").tensor().shape(), (Shape{0, 2}));
}

// The values of `shape`, not only its own shape, decide the program.
TEST(ForwardRunnerTest, ValuesThatDecideShapesDecideTheProgram) {
  Graph graph;
  const ValueId x = graph.AddInput("x", TypeOf(DType::kFloat32, {6}));
  const ValueId shape = graph.AddInput("shape", TypeOf(DType::kInt64, {2}));
  GraphBuilder builder(graph);
  const ValueId y = builder.Op("Reshape", {x, shape});
  builder.Name(y, "y");
  graph.AddOutput(y);
  ForwardRunner runner(std::move(graph), {});
  const Tensor values = Tensor::Of<float>({6}, {1, 2, 3, 4, 5, 6});
  for (const std::vector<int64_t>& dims :
       std::vector<std::vector<int64_t>>{{2, 3}, {3, 2}, {6, 1}}) {
    const auto outputs = runner.Run({{"x", values}, {"shape", Tensor::Of<int64_t>({2}, dims)}});
    ASSERT_TRUE(outputs.ok()) << outputs.status();
    EXPECT_EQ(outputs->at("y").tensor().shape(), (Shape{dims[0], dims[1]}));
    EXPECT_THAT(outputs->at("y").tensor().data<float>(), ElementsAre(1, 2, 3, 4, 5, 6));
  }
}

TEST(ForwardRunnerTest, OutputsThatNoNodeMakesAreGivenBack) {
  Graph graph;
  const ValueId x = graph.AddInput("x", TypeOf(DType::kFloat32, {2}));
  const ValueId c = graph.AddConstant("c", Tensor::Of<int64_t>({1}, {7}));
  graph.AddOutput(x);
  graph.AddOutput(c);
  ForwardRunner runner(std::move(graph), {});
  const auto outputs = runner.Run({{"x", Tensor::Of<float>({2}, {3, 4})}});
  ASSERT_TRUE(outputs.ok()) << outputs.status();
  EXPECT_THAT(outputs->at("x").tensor().data<float>(), ElementsAre(3, 4));
  EXPECT_THAT(outputs->at("c").tensor().data<int64_t>(), ElementsAre(7));
}

// A node that stays in its own expansion was run by expanding it again, 64 bodies deep.
TEST(ForwardRunnerTest, AnExpansionThatRefusesSaysWhyOnce) {
  [[maybe_unused]] static const bool registered = internal::RegisterOpOrDie(
      OpSchema("test", "Refuses")
          .Input("x")
          .Output("y")
          .Infer([](InferenceContext& context) {
            context.SetOutput(0, context.InputType(0));
            return absl::OkStatus();
          })
          .Expand([](ExpandContext&) -> absl::StatusOr<std::vector<ValueId>> {
            return absl::InvalidArgumentError("there is no such mode");
          }));
  Graph graph;
  GraphBuilder builder(graph);
  const ValueId x =
      graph.AddInput("x", {ValueKind::kTensor, DType::kFloat32, SymbolicShape({Dim::Symbol("N")})});
  graph.AddOutput(builder.Ops("test", "Refuses", {x}, {}, {true})[0]);
  ForwardRunner runner(std::move(graph), {});
  const auto outputs = runner.Run({{"x", Tensor::Of<float>({2}, std::vector<float>{1, 2})}});
  EXPECT_EQ(outputs.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(outputs.status().message()),
              ::testing::HasSubstr("there is no such mode"));
  EXPECT_LT(outputs.status().message().size(), 300u) << outputs.status();
}

TEST(ForwardRunnerTest, AMissingInputIsNamedWithItsType) {
  ForwardRunner runner(Linear(), {});
  const auto outputs = runner.Run({});
  EXPECT_EQ(outputs.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Message(outputs.status()), "input 'x' (float32[N,2]) was not given a value");
}

TEST(ForwardRunnerTest, AnUnknownInputIsNamedBesideTheKnown) {
  ForwardRunner runner(Linear(), {});
  const Tensor x = Tensor::Of<float>({1, 2}, {1, 2});
  const auto outputs = runner.Run({{"x", x}, {"image", x}});
  EXPECT_EQ(outputs.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Message(outputs.status()), "the model has no input 'image'; its inputs are: x");
}

TEST(ForwardRunnerTest, AnInputOfAnotherTypeIsRefused) {
  ForwardRunner runner(Linear(), {});
  const auto outputs = runner.Run({{"x", Tensor::Of<double>({1, 2}, {1, 2})}});
  EXPECT_EQ(outputs.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Message(outputs.status()), "input 'x' is float64[1,2], the model expects float32[N,2]");
}

TEST(ForwardRunnerTest, AnInputOfAnotherShapeIsRefusedWithBothShapes) {
  ForwardRunner runner(Linear(), {});
  for (const Shape& shape : {Shape{1, 3}, Shape{2}, Shape{1, 2, 1}}) {
    const auto x = Tensor::Zeros(DType::kFloat32, shape);
    const auto outputs = runner.Run({{"x", *x}});
    EXPECT_EQ(outputs.status().code(), absl::StatusCode::kInvalidArgument) << shape.ToString();
    EXPECT_THAT(Message(outputs.status()),
                AllOf(HasSubstr("'x'"), HasSubstr(shape.ToString()), HasSubstr("[N,2]")));
  }
}

}  // namespace
}  // namespace weft
