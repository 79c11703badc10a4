#include "training/graph/gradient_nodes.h"

#include <string>
#include <vector>

#include "executor/program/forward_runner.h"
#include "graph/graph_builder.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

constexpr char kDomain[] = "ai.onnx.preview.training";

// y = a * a * b on scalars.
class GradientNodesTest : public ::testing::Test {
 protected:
  GradientNodesTest() : builder_(graph_) {
    const ValueType scalar{ValueKind::kTensor, DType::kFloat32, Shape{}};
    a_ = graph_.AddInput("a", scalar);
    b_ = graph_.AddInput("b", scalar);
    y_ = builder_.Op("Mul", {builder_.Op("Mul", {a_, a_}), b_});
    builder_.Name(y_, "y");
    graph_.AddOutput(y_);
  }

  std::vector<ValueId> Gradient(std::vector<std::string> xs, std::vector<std::string> zs,
                                const std::string& y, std::vector<ValueId> inputs) {
    const std::vector<bool> wanted(xs.size(), true);
    const auto outputs =
        builder_.Ops(kDomain, "Gradient", std::move(inputs),
                     {{"xs", std::move(xs)}, {"zs", std::move(zs)}, {"y", y}}, wanted);
    EXPECT_TRUE(builder_.status().ok()) << builder_.status();
    for (const ValueId output : outputs) graph_.AddOutput(output);
    return outputs;
  }

  // The outputs at a = 3, b = 5, in order.
  std::vector<float> Run() {
    const absl::Status status = ReplaceGradientNodes(graph_);
    EXPECT_TRUE(status.ok()) << status;
    std::vector<std::string> names;
    for (const ValueId output : graph_.outputs()) names.push_back(graph_.value(output).name);
    ForwardRunner runner(std::move(graph_), {});
    const auto outputs =
        runner.Run({{"a", Tensor::Scalar<float>(3)}, {"b", Tensor::Scalar<float>(5)}});
    EXPECT_TRUE(outputs.ok()) << outputs.status();
    std::vector<float> values;
    for (const std::string& name : names) {
      values.push_back(outputs->at(name).tensor().data<float>()[0]);
    }
    return values;
  }

  Graph graph_;
  GraphBuilder builder_;
  ValueId a_, b_, y_;
};

TEST_F(GradientNodesTest, DifferentiatesWhatTheNodeNames) {
  Gradient({"a", "b"}, {}, "y", {a_, b_});
  EXPECT_EQ(Run(), (std::vector<float>{45, 30, 9}));
}

TEST_F(GradientNodesTest, GradientsOfGradients) {
  const auto first = Gradient({"a"}, {"b"}, "y", {a_, b_});
  builder_.Name(first[0], "dy_da");
  Gradient({"a", "b"}, {}, "dy_da", {a_, b_});
  EXPECT_EQ(Run(), (std::vector<float>{45, 30, 10, 6}));
}

TEST_F(GradientNodesTest, OtherValuesAreComputedWith) {
  Gradient({"a"}, {"b"}, "y", {b_, a_});  // at a = 5, b = 3
  EXPECT_EQ(Run(), (std::vector<float>{45, 30}));
}

TEST_F(GradientNodesTest, UnknownTensorsAreNamed) {
  Gradient({"a"}, {}, "loss", {a_});
  const absl::Status status = ReplaceGradientNodes(graph_);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("names the tensor 'loss'"), std::string::npos) << status;
}

}  // namespace
}  // namespace weft
