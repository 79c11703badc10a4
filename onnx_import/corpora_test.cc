// Every model of the corpora imports; those that must not are listed with the reason.
#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "onnx_import/importer.h"
#include "onnx_import/testing/test_models.h"
#include "platform/file_system.h"

namespace weft::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::string> ModelsBelow(const std::string& folder) {
  std::vector<std::string> paths;
  if (!std::filesystem::exists(folder)) return paths;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (entry.path().extension() == ".onnx") paths.push_back(entry.path().string());
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

class Corpora : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = CorporaFolder();
    if (folder_.empty()) GTEST_SKIP() << "WEFT_CORPORA is not set: no corpora to read";
  }
  std::string folder_;
};

TEST_F(Corpora, RealModelsImport) {
  std::vector<std::string> paths = ModelsBelow(folder_ + "/models");
  const std::vector<std::string> training = ModelsBelow(folder_ + "/training-models");
  paths.insert(paths.end(), training.begin(), training.end());
  ASSERT_GE(paths.size(), 10u);
  for (const std::string& path : paths) {
    const auto model = ImportModelFile(RealFileSystem(), path);
    ASSERT_TRUE(model.ok()) << model.status();
    EXPECT_GT(model->graph.num_nodes(), 0) << path;
    // silero_vad keeps its weights in the branches of an If.
    if (path.find("silero_vad") != path.npos) continue;
    EXPECT_FALSE(model->parameters.empty()) << path;
  }
}

TEST_F(Corpora, ConformanceModelsImportOrSayWhyNot) {
  const std::vector<std::string> paths = ModelsBelow(folder_ + "/onnx-conformance");
  ASSERT_GE(paths.size(), 2000u);
  std::vector<std::string> refused;
  for (const std::string& path : paths) {
    const auto model = ImportModelFile(RealFileSystem(), path);
    if (model.ok()) continue;
    EXPECT_THAT(model.status().message(), HasSubstr("for operator set 1, expected 7 to 27"));
    refused.push_back(std::filesystem::path(path).parent_path().filename().string());
  }
  EXPECT_THAT(refused, ElementsAre("test_not_3d", "test_not_4d"));
}

}  // namespace
}  // namespace weft::testing
