#include <cmath>
#include <map>
#include <optional>

#include "graph/graph_builder.h"
#include "gtest/gtest.h"
#include "ops/testing/gradient_checker.h"
#include "ops/testing/graph_evaluator.h"
#include "ops/testing/op_tester.h"
#include "ops/testing/sharding_checker.h"
#include "ops/testing/test_tensors.h"

namespace weft::testing {
namespace {

struct LossOptions {
  std::string reduction = "mean";
  bool weights = false;
  std::optional<int64_t> ignored = std::nullopt;
  DType labels = DType::kInt64;
  bool log_prob = false;
};

// Scores [N,C,d...] and labels, some of them ignored.
OpCase LossCase(const char* op, const Shape& scores, const LossOptions& options) {
  Shape label_shape;
  for (int d = 0; d < scores.rank(); ++d) {
    if (d != 1) label_shape.AddDim(scores.dim(d));
  }
  const int64_t classes = scores.dim(1);
  Tensor labels = RandomTensor(label_shape, 5, 0, static_cast<double>(classes), DType::kInt64);
  const std::span<int64_t> values = labels.mutable_data<int64_t>();
  for (size_t i = 0; options.ignored.has_value() && i < values.size(); i += 3) {
    values[i] = *options.ignored;
  }
  OpCase op_case{.op = op,
                 .attributes = {{"reduction", options.reduction}},
                 .inputs = {RandomTensor(scores, 1, -3, 3), Cast(labels, options.labels)}};
  if (options.ignored.has_value()) op_case.attributes.Set("ignore_index", *options.ignored);
  if (options.weights) op_case.inputs.push_back(RandomTensor({classes}, 2, 0.2, 2));
  if (options.log_prob) op_case.outputs = {true, true};
  return op_case;
}

std::vector<LossOptions> AllOptions() {
  std::vector<LossOptions> all;
  for (const char* reduction : {"none", "sum", "mean"}) {
    for (const bool weights : {false, true}) {
      for (const std::optional<int64_t> ignored :
           {std::optional<int64_t>(), std::optional<int64_t>(-5), std::optional<int64_t>(2),
            std::optional<int64_t>(99)}) {
        all.push_back({reduction, weights, ignored, weights ? DType::kInt32 : DType::kInt64});
      }
    }
  }
  return all;
}

class LossTest : public ::testing::TestWithParam<const char*> {};

TEST_P(LossTest, AgreesWithTheReference) {
  for (const LossOptions& options : AllOptions()) {
    for (const Shape& shape : {Shape{7, 5}, Shape{130, 37}, Shape{3, 5, 2}, Shape{3, 5, 129},
                               Shape{2, 5, 3, 7}, Shape{2, 5, 2, 3, 2, 2}}) {
      EXPECT_TRUE(CheckKernelAgainstReference(LossCase(GetParam(), shape, options)));
    }
  }
}

TEST_P(LossTest, OtherTypes) {
  for (const DType dtype : {DType::kFloat64, DType::kFloat16, DType::kBfloat16}) {
    OpCase op_case = LossCase(GetParam(), {4, 5, 3}, {.weights = true, .ignored = 2});
    op_case.inputs[0] = Cast(op_case.inputs[0], dtype);
    op_case.inputs[2] = Cast(op_case.inputs[2], dtype);
    EXPECT_TRUE(CheckKernelAgainstReference(op_case, {.of_magnitude = 1e-2}));
  }
}

TEST_P(LossTest, Gradients) {
  for (const LossOptions& options : AllOptions()) {
    EXPECT_TRUE(CheckGradient(LossCase(GetParam(), {4, 5}, options), {.inputs = {0}}));
  }
  EXPECT_TRUE(CheckGradient(LossCase(GetParam(), {2, 3, 4}, {.weights = true, .ignored = 1}),
                            {.inputs = {0}}));
  EXPECT_TRUE(
      CheckGradient(LossCase(GetParam(), {2, 3, 70}, {.reduction = "sum"}), {.inputs = {0}}));
}

TEST_P(LossTest, Shardings) {
  EXPECT_TRUE(CheckSharding(LossCase(GetParam(), {5, 4, 3}, {.reduction = "sum", .ignored = 2}),
                            {.min_splits = 4}));
  EXPECT_TRUE(CheckSharding(LossCase(GetParam(), {5, 4, 3}, {.reduction = "none", .weights = true}),
                            {.min_splits = 4}));
  // A mean needs the weights of the whole batch.
  EXPECT_TRUE(CheckSharding(LossCase(GetParam(), {5, 4, 3}, {}), {.min_splits = 0}));
}

TEST_P(LossTest, LabelsOutOfRangeAreNamed) {
  OpCase op_case = LossCase(GetParam(), {2, 3, 4}, {.ignored = -1});
  op_case.inputs[1].mutable_data<int64_t>()[6] = 3;
  EXPECT_TRUE(ExpectError(op_case, absl::StatusCode::kInvalidArgument,
                          {"node 'node'", "label 3 at position [1,2]", "expected 0 to 2 or -1"}));
  op_case.inputs[1].mutable_data<int64_t>()[6] = -2;
  EXPECT_TRUE(ExpectError(op_case, absl::StatusCode::kInvalidArgument, {"label -2"}));
}

TEST_P(LossTest, ShapesThatDoNotFitAreNamed) {
  OpCase op_case = LossCase(GetParam(), {4, 3}, {});
  op_case.inputs[1] = Int64s({0, 1, 2});
  EXPECT_TRUE(ExpectError(op_case, absl::StatusCode::kInvalidArgument, {"[4,3]", "[3]", "labels"}));
  op_case = LossCase(GetParam(), {4, 3}, {.weights = true});
  op_case.inputs[2] = RandomTensor({4}, 1);
  EXPECT_TRUE(ExpectError(op_case, absl::StatusCode::kInvalidArgument, {"weights [4]", "[3]"}));
  op_case = LossCase(GetParam(), {4, 3}, {.reduction = "average"});
  EXPECT_TRUE(ExpectError(op_case, absl::StatusCode::kInvalidArgument,
                          {"reduction is 'average'", "none, sum or mean"}));
}

TEST_P(LossTest, EmptyBatches) {
  EXPECT_TRUE(CheckKernelAgainstReference(LossCase(GetParam(), {0, 3}, {.reduction = "none"})));
  EXPECT_TRUE(CheckKernelAgainstReference(LossCase(GetParam(), {0, 3}, {.reduction = "sum"})));
  EXPECT_TRUE(CheckKernelAgainstReference(LossCase(GetParam(), {2, 3, 0}, {.reduction = "sum"})));
}

TEST_P(LossTest, TwoThreadsGiveTheBitsOfOne) {
  EXPECT_TRUE(SameBitsOnTwoThreads(LossCase(GetParam(), {4099, 37}, {})));
  EXPECT_TRUE(SameBitsOnTwoThreads(LossCase(GetParam(), {16, 65, 301}, {.reduction = "sum"})));
}

// loss = sum / weight, and the gradient of sum / weight is that of the mean: what training relies
// on.
TEST_P(LossTest, MeanPartsMakeTheMean) {
  for (const LossOptions& options :
       {LossOptions{}, LossOptions{.weights = true}, LossOptions{.ignored = 2},
        LossOptions{.weights = true, .ignored = 2}}) {
    const OpCase op_case = LossCase(GetParam(), {7, 5, 3}, options);
    const SingleNodeGraph single = MakeSingleNodeGraph(op_case);
    class Expander final : public ExpandContext {
     public:
      Expander(Graph& graph, NodeId node) : graph_(graph), node_(node), builder_(graph) {}
      const Node& node() const override { return graph_.node(node_); }
      const Graph& graph() const override { return graph_; }
      GraphBuilder& builder() override { return builder_; }

     private:
      Graph& graph_;
      NodeId node_;
      GraphBuilder builder_;
    } expander(*single.graph, single.node);
    const auto parts = expander.node().schema->mean_loss()(expander);
    ASSERT_TRUE(parts.ok()) << parts.status();
    std::map<ValueId, Tensor> feeds;
    for (size_t i = 0; i < op_case.inputs.size(); ++i) {
      feeds[expander.node().inputs[i]] = op_case.inputs[i];
    }
    const auto values = EvaluateGraph(*single.graph, feeds,
                                      {parts->sum, parts->weight, expander.node().outputs[0]});
    ASSERT_TRUE(values.ok()) << values.status();
    const float sum = values->at(0).data<float>()[0];
    const float weight = values->at(1).data<float>()[0];
    EXPECT_NEAR(sum / weight, values->at(2).data<float>()[0], 1e-5);
  }
}

INSTANTIATE_TEST_SUITE_P(Ops, LossTest,
                         ::testing::Values("SoftmaxCrossEntropyLoss", "NegativeLogLikelihoodLoss"),
                         [](const auto& info) { return std::string(info.param); });

TEST(SoftmaxCrossEntropyLoss, KnownValue) {
  // -ln(e^2 / (e^1 + e^2 + e^3)) = 1.407605964...
  const OpCase op_case{
      .op = "SoftmaxCrossEntropyLoss",
      .inputs = {Tensor::Of<float>({1, 3}, std::vector<float>{1, 2, 3}), Int64s({1})}};
  EXPECT_TRUE(ExpectOutputs(op_case, {Tensor::Scalar<float>(1.4076059644443804f)}));
}

TEST(SoftmaxCrossEntropyLoss, LogProbabilities) {
  for (const LossOptions& base : AllOptions()) {
    LossOptions options = base;
    options.log_prob = true;
    EXPECT_TRUE(
        CheckKernelAgainstReference(LossCase("SoftmaxCrossEntropyLoss", {4, 5, 3}, options)));
    EXPECT_TRUE(CheckKernelAgainstReference(LossCase("SoftmaxCrossEntropyLoss", {9, 5}, options)));
  }
  const OpCase op_case =
      LossCase("SoftmaxCrossEntropyLoss", {4, 5}, {.reduction = "sum", .log_prob = true});
  EXPECT_TRUE(CheckGradient(op_case, {.inputs = {0}}));
  EXPECT_TRUE(CheckSharding(op_case, {.min_splits = 2}));
}

TEST(SoftmaxCrossEntropyLoss, AllIgnoredIsNanAsAMeanButHasNoGradient) {
  OpCase op_case = LossCase("SoftmaxCrossEntropyLoss", {2, 3}, {.ignored = -1});
  for (int64_t& label : op_case.inputs[1].mutable_data<int64_t>()) label = -1;
  EXPECT_TRUE(std::isnan(RunOp(op_case)->at(0).data<float>()[0]));
  OpCase backward = op_case;
  backward.domain = "ai.weft";
  backward.op = "SoftmaxCrossEntropyGrad";
  backward.inputs.insert(backward.inputs.begin(), Tensor::Scalar<float>(1));
  const auto gradient = RunOp(backward);
  ASSERT_TRUE(gradient.ok()) << gradient.status();
  EXPECT_TRUE(TensorsNear(gradient->at(0), *Tensor::Zeros(DType::kFloat32, {2, 3})));
}

TEST(SoftmaxCrossEntropyLoss, LargeScoresDoNotOverflow) {
  const Tensor scores =
      Tensor::Of<float>({2, 3}, std::vector<float>{1e4f, 1e4f + 1, 0, -1e4f, 80, -90});
  for (const int64_t label : {0, 1, 2}) {
    EXPECT_TRUE(CheckKernelAgainstReference({.op = "SoftmaxCrossEntropyLoss",
                                             .attributes = {{"reduction", std::string("none")}},
                                             .inputs = {scores, Int64s({label, label})}},
                                            {.of_magnitude = 0, .of_element = 1e-6}));
  }
}

TEST(LossGrad, Shardings) {
  for (const char* op : {"SoftmaxCrossEntropyGrad", "NegativeLogLikelihoodGrad"}) {
    for (const char* reduction : {"none", "sum"}) {
      OpCase op_case = LossCase(op, {5, 4, 3}, {.reduction = reduction, .weights = true});
      op_case.domain = "ai.weft";
      const bool none = std::string(reduction) == "none";
      op_case.inputs.insert(op_case.inputs.begin(),
                            RandomTensor(none ? Shape{5, 3} : Shape{}, 4, 1, 2));
      EXPECT_TRUE(CheckSharding(op_case, {.min_splits = 4}));
    }
  }
}

TEST(LossWeight, CountsOrWeighs) {
  const Tensor labels = Int64s({0, 2, 2, 1, 7});
  const Tensor weights = Tensor::Of<float>({3}, std::vector<float>{1, 10, 100});
  const OpCase counted{.domain = "ai.weft", .op = "LossWeight", .inputs = {labels}};
  EXPECT_TRUE(ExpectOutputs(counted, {Tensor::Scalar<float>(5)}));
  EXPECT_TRUE(CheckSharding(counted, {.min_splits = 2}));
  const OpCase weighed{.domain = "ai.weft",
                       .op = "LossWeight",
                       .attributes = {{"ignore_index", int64_t{7}}},
                       .inputs = {labels, weights}};
  EXPECT_TRUE(ExpectOutputs(weighed, {Tensor::Scalar<float>(211)}));
  EXPECT_TRUE(CheckSharding(weighed, {.min_splits = 2}));
  EXPECT_TRUE(ExpectError({.domain = "ai.weft", .op = "LossWeight", .inputs = {labels, weights}},
                          absl::StatusCode::kInvalidArgument, {"label 7 at position [4]"}));
}

TEST(CountCorrect, TheFirstLargestScoreWins) {
  const Tensor scores =
      Tensor::Of<float>({4, 3}, std::vector<float>{1, 3, 3, 5, 0, 5, 0, 0, 1, 2, 1, 0});
  const OpCase op_case{
      .domain = "ai.weft", .op = "CountCorrect", .inputs = {scores, Int64s({1, 2, 2, -100})}};
  EXPECT_TRUE(ExpectOutputs(op_case, {Tensor::Scalar<float>(2)}));
}

TEST(CountCorrect, InnerAxesAndShardings) {
  const OpCase op_case{
      .domain = "ai.weft",
      .op = "CountCorrect",
      .inputs = {RandomTensor({6, 4, 5}, 1), RandomTensor({6, 5}, 2, 0, 4, DType::kInt32)}};
  EXPECT_TRUE(CheckKernelAgainstReference(op_case));
  EXPECT_TRUE(CheckSharding(op_case, {.min_splits = 4}));
}

OpCase SquaredError(const char* op, Shape shape) {
  return {.domain = "ai.weft",
          .op = op,
          .inputs = {RandomTensor(shape, 1, -3, 3), RandomTensor(shape, 2, -3, 3)}};
}

TEST(SquaredError, AgreesWithTheReference) {
  for (const char* op : {"MeanSquaredError", "SquaredErrorSum"}) {
    for (const Shape& shape : AwkwardShapes()) {
      if (shape.num_elements() == 0 && std::string(op) == "MeanSquaredError") continue;
      EXPECT_TRUE(CheckKernelAgainstReference(SquaredError(op, shape)));
    }
    EXPECT_TRUE(CheckKernelAgainstReference(SquaredError(op, {200'003}), {.of_magnitude = 1e-6}));
    EXPECT_TRUE(SameBitsOnTwoThreads(SquaredError(op, {2'000'003})));
  }
}

TEST(SquaredError, GradientsAndShardings) {
  for (const char* op : {"MeanSquaredError", "SquaredErrorSum"}) {
    EXPECT_TRUE(CheckGradient(SquaredError(op, {3, 7})));
    EXPECT_TRUE(CheckSharding(SquaredError(op, {5, 7}), {.min_splits = 4}));
  }
}

TEST(SquaredError, ShapesMustBeEqual) {
  EXPECT_TRUE(ExpectError({.domain = "ai.weft",
                           .op = "MeanSquaredError",
                           .inputs = {RandomTensor({3, 1}, 1), RandomTensor({3}, 2)}},
                          absl::StatusCode::kInvalidArgument, {"[3,1]", "[3]", "one shape"}));
}

TEST(SquaredErrorGrad, AgreesWithTheReference) {
  for (const DType dtype : {DType::kFloat32, DType::kFloat64, DType::kBfloat16}) {
    const OpCase op_case{
        .domain = "ai.weft",
        .op = "SquaredErrorGrad",
        .inputs = {RandomTensor({}, 1, 1, 2, dtype), RandomTensor({5, 411}, 2, -1, 1, dtype),
                   RandomTensor({5, 411}, 3, -1, 1, dtype)}};
    EXPECT_TRUE(CheckKernelAgainstReference(
        op_case, {.of_magnitude = dtype == DType::kBfloat16 ? 1e-2 : 1e-6}));
    EXPECT_TRUE(CheckSharding(op_case, {.min_splits = 4}));
  }
}

TEST(LossTest, RefusesScoresWithoutClasses) {
  Graph graph;
  const auto input = [&graph](const char* name, DType dtype, SymbolicShape shape) {
    return graph.AddInput(name, {ValueKind::kTensor, dtype, std::move(shape)});
  };
  GraphBuilder builder(graph);
  builder.Op("SoftmaxCrossEntropyLoss", {input("scores", DType::kFloat32, Shape{3}),
                                         input("labels", DType::kInt64, SymbolicShape()),
                                         input("weights", DType::kFloat32, Shape{3})});
  EXPECT_EQ(builder.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(builder.status().message().find("scores have shape [3]"), absl::string_view::npos)
      << builder.status();
}

}  // namespace
}  // namespace weft::testing
