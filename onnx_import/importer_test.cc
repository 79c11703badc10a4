#include "onnx_import/importer.h"

#include <filesystem>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "onnx_import/testing/test_models.h"
#include "onnx_import/wire.pb.h"
#include "platform/testing/fake_file_system.h"

namespace weft::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string Debug(const absl::StatusOr<ImportedModel>& model) {
  EXPECT_TRUE(model.ok()) << model.status();
  return model.ok() ? model->graph.DebugString() : "";
}

constexpr char kRelu[] = "agraph (float[N] x) => (float[N] y) { y = Relu(x) }";

TEST(Import, KeepsInputsNodesAndOutputs) {
  const std::string text = Debug(Import(ModelOf(17,
                                                "agraph (float[N, 2] x) => (float[N, 2] y) {"
                                                "  h = test.Twist <angle = 2, wide = [1, 2]> (x)"
                                                "  y = test.Twist (h, x) }")));
  EXPECT_THAT(text, HasSubstr("input %x: float32[N,2]"));
  EXPECT_THAT(text, HasSubstr("%h: "));
  EXPECT_THAT(text, HasSubstr("test::Twist(%x) {angle=2, wide=[1,2]}  # Twist_0"));
  EXPECT_THAT(text, HasSubstr("test::Twist(%h, %x)  # Twist_1"));
  EXPECT_THAT(text, HasSubstr("output %y"));
}

TEST(Import, MakesFloatInitializersVariablesOnlyWhenAsked) {
  const onnx::ModelProto model =
      ModelOf(17,
              "agraph (float[N, 2] x) => (float[N, 2] y) <float[2] w = {1, 2}, int64[1] i = {0}> {"
              "  y = test.Twist (x, w, i) }");
  EXPECT_THAT(Debug(Import(model)),
              AllOf(HasSubstr("variable %w: float32[2]"), HasSubstr("constant %i = int64[1]{0}")));
  const auto constants = Import(model, {.parameters_as_variables = false});
  EXPECT_THAT(Debug(constants), HasSubstr("constant %w = float32[2]{1, 2}"));
  ASSERT_EQ(constants->parameters.size(), 1u);
  EXPECT_EQ(constants->parameters[0].name, "w");
}

TEST(Import, TakesConstantNodesAsParameters) {
  const auto model = Import(ModelOf(17,
                                    "agraph (float[2] x) => (float[2] y) {"
                                    "  w = Constant <value = float[2] {3, 4}> ()"
                                    "  y = test.Twist (x, w) }"));
  EXPECT_THAT(Debug(model), HasSubstr("variable %w: float32[2]"));
  ASSERT_EQ(model->parameters.size(), 1u);
  EXPECT_EQ(model->parameters[0].storage, ParameterStorage::kConstantNode);
  EXPECT_EQ(model->parameters[0].index, 0);
  EXPECT_EQ(model->graph.num_nodes(), 1);
}

}  // namespace
}  // namespace weft::testing
