#include "onnx_import/parameters/parameter_names.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "onnx_import/parameters/trainable.h"
#include "onnx_import/parameters/variable_names.h"
#include "onnx_import/testing/test_models.h"

namespace weft::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::IsSupersetOf;

TEST(WithSlashes, KeepsNumbersWithWhatTheyCount) {
  EXPECT_EQ(WithSlashes("bert.encoder.layer.0.query.weight"), "bert/encoder/layer.0/query/weight");
  EXPECT_EQ(WithSlashes("fc"), "fc");
}

TEST(IsMadeUpName, KnowsExportersCounters) {
  for (const char* const name : {"val_51", "/layer/Constant_1_output_0", "onnx::MatMul_374",
                                 "unsqueeze_2", "374", "_folded_w", "_tensor_constant0"}) {
    EXPECT_TRUE(IsMadeUpName(name)) << name;
  }
  for (const char* const name : {"fc1.weight", "w", "conv_1", "layer_2", "weight_0", "b_1", "vals",
                                 "encoder/layer_0/kernel", "positions"}) {
    EXPECT_FALSE(IsMadeUpName(name)) << name;
  }
}

// As PyTorch's older exporter writes: two products of one module tree, weights transposed.
class ParameterNamesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    onnx::ModelProto proto =
        ModelOf(17,
                "agraph (float[N,2] x) => (float[N,2] y) <float[2,2] a = {3, 1, 4, 1}, "
                "float[2] bias = {1, 2}, float[2,2] c = {5, 9, 2, 6}> {"
                "  h = MatMul (x, a)  i = Add (h, bias)  y = MatMul (i, c) }");
    onnx::GraphProto* const graph = proto.mutable_graph();
    const auto rename = [graph](int i, const char* tensor) {
      const std::string old = graph->initializer(i).name();
      graph->mutable_initializer(i)->set_name(tensor);
      for (onnx::NodeProto& node : *graph->mutable_node()) {
        for (std::string& input : *node.mutable_input()) {
          if (input == old) input = tensor;
        }
      }
    };
    rename(0, "onnx::MatMul_9");
    rename(1, "layer.0.query.bias");
    rename(2, "onnx::MatMul_12");
    graph->mutable_node(0)->set_name("/layer.0/query/MatMul");
    graph->mutable_node(1)->set_name("/layer.0/query/Add");
    graph->mutable_node(2)->set_name("/layer.0/query/MatMul_1");
    auto model = Import(proto);
    ASSERT_TRUE(model.ok()) << model.status();
    graph_ = std::move(model->graph);
  }

  Graph graph_;
};

TEST_F(ParameterNamesTest, NamesByReaderAndModule) {
  ASSERT_TRUE(MarkTrainable(graph_).ok());
  EXPECT_THAT(
      graph_.FindVariable("onnx::MatMul_9")->other_names,
      IsSupersetOf({"/layer.0/query/MatMul.B", "layer.0.query.weight", "layer.0/query/weight"}));
  EXPECT_THAT(graph_.FindVariable("layer.0.query.bias")->other_names,
              IsSupersetOf({"layer.0/query/bias", "/layer.0/query/Add.B"}));
  // Two tensors would be the module's weight: the reader tells them apart.
  EXPECT_EQ(ShownName(*graph_.FindVariable("onnx::MatMul_12")),
            "/layer.0/query/MatMul_1.B (onnx::MatMul_12)");
  EXPECT_EQ(ShownName(*graph_.FindVariable("layer.0.query.bias")), "layer.0.query.bias");
}

TEST_F(ParameterNamesTest, PatternsFitAnyName) {
  const auto decisions = MarkTrainable(graph_, {.freeze = {"layer.0/query/*"}});
  ASSERT_TRUE(decisions.ok()) << decisions.status();
  for (const ParameterDecision& decision : *decisions) EXPECT_FALSE(decision.trainable);
}

TEST_F(ParameterNamesTest, AReadersNameMeansOneTensor) {
  ASSERT_TRUE(MarkTrainable(graph_, {.freeze = {"/layer.0/query/MatMul_1.B"}}).ok());
  EXPECT_TRUE(graph_.FindVariable("onnx::MatMul_9")->trainable);
  EXPECT_FALSE(graph_.FindVariable("onnx::MatMul_12")->trainable);
}

TEST_F(ParameterNamesTest, ANameOfSeveralIsRefused) {
  const absl::Status status = MarkTrainable(graph_, {.freeze = {"layer.0.query.weight"}}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("--freeze: 'layer.0.query.weight' is a name of 2 tensors: "
                        "'onnx::MatMul_9', 'onnx::MatMul_12'"));
}

}  // namespace
}  // namespace weft::testing
