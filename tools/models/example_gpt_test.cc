#include "tools/models/example_gpt.h"

#include <cmath>
#include <span>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "onnx_import/importer.h"
#include "platform/testing/fake_file_system.h"

namespace weft {
namespace {

ExampleGpt Small() {
  ExampleGpt gpt;
  gpt.layers = 2;
  gpt.width = 48;
  gpt.heads = 3;
  gpt.sequence = 7;
  gpt.vocabulary = 61;
  return gpt;
}

// Each matrix, bias and norm of Radford et al. by hand: 48 x 144 + 144, 48 x 48 + 48, 48 x 192 +
// 192, 192 x 48 + 48, and two norms of 2 x 48 a layer.
TEST(ExampleGptTest, ParametersAreThoseOfTheGraph) {
  const int64_t layer = 48 * 144 + 144 + 48 * 48 + 48 + 48 * 192 + 192 + 192 * 48 + 48 + 4 * 48;
  EXPECT_EQ(ParametersOf(Small()), 2 * layer + 61 * 48 + 7 * 48 + 2 * 48);
  const auto graph = BuildExampleGpt(Small());
  ASSERT_TRUE(graph.ok()) << graph.status();
  int64_t elements = 0;
  for (const Variable& variable : graph->variables()) {
    elements += graph->value(variable.value).type.shape.ToConcrete()->num_elements();
    EXPECT_FALSE(variable.initial.valid());
  }
  EXPECT_EQ(elements, ParametersOf(Small()));
}

// Brown et al., "Language Models are Few-Shot Learners", 2020, table 2.1: "GPT-3 XL", 24 layers of
// width 2048 over 2048 tokens, has 1.3 billion.
TEST(ExampleGptTest, ParametersAreThosePublished) {
  ExampleGpt gpt;
  gpt.layers = 24;
  gpt.width = 2048;
  gpt.sequence = 2048;
  gpt.vocabulary = 50257;
  EXPECT_NEAR(static_cast<double>(ParametersOf(gpt)), 1.3e9, 0.05e9);
}

TEST(ExampleGptTest, SizesThatMakeNoModelAreRefused) {
  ExampleGpt gpt = Small();
  gpt.heads = 5;
  EXPECT_EQ(BuildExampleGpt(gpt).status().message(),
            "--width 48 is no multiple of --heads 5: heads have equal parts of it");
  gpt = Small();
  gpt.layers = 0;
  EXPECT_EQ(BuildExampleGpt(gpt).status().message(), "--layers is 0; expected 1 to 4096");
  gpt = Small();
  gpt.width = gpt.heads = int64_t{1} << 40;  // its square has no place in 64 bits
  EXPECT_EQ(BuildExampleGpt(gpt).status().message(),
            "--width is 1099511627776; expected 1 to 1048576");
}

class WrittenGptTest : public ::testing::Test {
 protected:
  // The values of a tensor of the written model, as the importer reads them.
  std::vector<float> Values(const ImportedModel& model, const std::string& name) {
    for (const Variable& variable : model.graph.variables()) {
      if (variable.name != name) continue;
      const std::span<const float> values = variable.initial.data<float>();
      return {values.begin(), values.end()};
    }
    ADD_FAILURE() << "no variable " << name;
    return {};
  }
  static double Deviation(const std::vector<float>& values) {
    double sum = 0;
    for (const float value : values) sum += static_cast<double>(value) * value;
    return std::sqrt(sum / static_cast<double>(values.size()));
  }

  absl::StatusOr<ImportedModel> Imported(const std::string& path) {
    const auto file = ModelFile::Load(files_, path);
    if (!file.ok()) return file.status();
    return ImportModel(*file);
  }

  WrittenGptTest() { EXPECT_TRUE(files_.CreateDirectories("/models").ok()); }

  testing::FakeFileSystem files_;
};

TEST_F(WrittenGptTest, IsImportedWithItsWeights) {
  const auto written = WriteExampleGpt(files_, "/models/gpt.onnx", Small());
  ASSERT_TRUE(written.ok()) << written.status();
  EXPECT_EQ(written->weights_path, "/models/gpt.onnx.data");
  const auto model = Imported("/models/gpt.onnx");
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_NEAR(Deviation(Values(*model, "block0.up.weight")), 0.02, 0.001);
  EXPECT_NEAR(Deviation(Values(*model, "block1.down.weight")), 0.02 / std::sqrt(4.0), 0.0005);
  EXPECT_THAT(Values(*model, "block1.up.bias"), ::testing::Each(0.0F));
  EXPECT_THAT(Values(*model, "head.norm.scale"), ::testing::Each(1.0F));
  EXPECT_NE(Values(*model, "block0.up.weight"), Values(*model, "block1.up.weight"));
}

TEST_F(WrittenGptTest, TheSameSeedGivesTheSameBytes) {
  ExampleGpt gpt = Small();
  ASSERT_TRUE(WriteExampleGpt(files_, "/models/a.onnx", gpt).ok());
  ASSERT_TRUE(WriteExampleGpt(files_, "/models/b.onnx", gpt).ok());
  gpt.seed = 1;
  ASSERT_TRUE(WriteExampleGpt(files_, "/models/c.onnx", gpt).ok());
  EXPECT_EQ(*files_.ReadFile("/models/a.onnx.data"), *files_.ReadFile("/models/b.onnx.data"));
  EXPECT_NE(*files_.ReadFile("/models/a.onnx.data"), *files_.ReadFile("/models/c.onnx.data"));
}

TEST_F(WrittenGptTest, WithoutWeightsIsTheSameModelOfZeros) {
  ExampleGpt gpt = Small();
  ASSERT_TRUE(WriteExampleGpt(files_, "/models/with.onnx", gpt).ok());
  gpt.without_weights = true;
  ASSERT_TRUE(WriteExampleGpt(files_, "/models/without.onnx", gpt).ok());
  const std::string weights = *files_.ReadFile("/models/without.onnx.data");
  EXPECT_EQ(weights.size(), files_.ReadFile("/models/with.onnx.data")->size());
  EXPECT_EQ(weights.find_first_not_of('\0'), std::string::npos);
  const auto model = Imported("/models/without.onnx");
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_THAT(Values(*model, "head.norm.scale"), ::testing::Each(0.0F));
}

}  // namespace
}  // namespace weft
