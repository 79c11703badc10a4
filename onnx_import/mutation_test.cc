// Thousands of damaged models, seeded: every one imports or gives a Status. Run it under asan, too.
#include <algorithm>
#include <filesystem>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "onnx_import/codec/wire.pb.h"
#include "onnx_import/graph_wire.h"
#include "onnx_import/importer.h"
#include "onnx_import/testing/mutate.h"
#include "onnx_import/testing/test_models.h"
#include "platform/file_system.h"

namespace weft::testing {
namespace {

std::vector<std::string> OwnModels() {
  const std::vector<onnx::ModelProto> models = {
      ModelOf(17,
              "agraph (float[N, 4] x) => (float[N, 2] y) <float[2,4] w = {1,2,3,4,5,6,7,8}, "
              "float[2] b = {1,2}> { h = Gemm <transB = 1> (x, w, b)  y = Relu (h) }"),
      ModelOf(11,
              "agraph (float[2,3,4] x) => (float[A,B] y, float[A,B] z) {"
              "  s = Softmax <axis = 1> (x)  r = ReduceMean <axes = [1], keepdims = 0> (s)"
              "  y, z = Split <axis = 1, split = [1, 3]> (r) }"),
      ModelOf(9,
              "agraph (float[2,3] x, float[3] m) => (float[A] y) <float[3] s = {1,1,1}> {"
              "  n = BatchNormalization (x, s, s, m, m)"
              "  c = Slice <starts = [0], ends = [1]> (n)  d = Dropout <ratio = 0.5> (c)"
              "  k = Constant <value = int64[1] {-1}> ()  y = Reshape (d, k) }"),
      // Merged tensors and training mode: what edits of files change.
      ModelOf(
          17,
          "agraph (float[N,2] x) => (float[N,2] y) <float[2] s = {1,1}, float[2] b = {0,0}, "
          "float[2,2] w = {1,2,3,4}, float[2,2] v = {5,6,7,8}, float r = {0.5}, bool on = {1}> {"
          "  m = Identity (b)  z = Identity (m)"
          "  n, p, q = BatchNormalization <training_mode = 1> (x, s, b, m, s)"
          "  d = Dropout (n, r, on)  f = Gemm (d, w, z)  g = Gemm (f, v, b)  y = Add (g, p) }"),
      ModelOf(9,
              "agraph (float[2,3] x) => (float[2,3] y) <float[3] s = {1,1,1}, float[3] b = {0,0,0},"
              " float[3,3] w = {1,2,3,4,5,6,7,8,9}> {"
              "  n, p, q, e, f = BatchNormalization (x, s, b, b, s)  g = MatMul (n, w)"
              "  h = Add (g, b)  i = MatMul (h, w)  y = Add (i, b) }"),
      ModelFromText(
          "<ir_version: 8, opset_import: [\"\" : 17, \"local\" : 1]>\n"
          "agraph (float[2] x) => (float[2] y) { y = local.twice <angle = 3> (x) }\n"
          "<opset_import: [\"\" : 17], domain: \"local\">\n"
          "twice <angle> (a) => (b) { h = Cast <to : int = @angle> (a)  b = Add (h, h) }")};
  std::vector<std::string> seeds;
  for (const onnx::ModelProto& model : models) seeds.push_back(model.SerializeAsString());
  const auto imported = Import(models[0]);
  EXPECT_TRUE(imported.ok()) << imported.status();
  if (imported.ok()) seeds.push_back(*GraphToOnnx(imported->graph));
  return seeds;
}

// Some small models of the corpora, when there are any.
std::vector<std::string> CorporaModels() {
  std::vector<std::string> paths;
  const std::string folder = CorporaFolder();
  if (folder.empty()) return {};
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    if (entry.path().extension() != ".onnx" || entry.file_size() > 8192) continue;
    paths.push_back(entry.path().string());
  }
  std::sort(paths.begin(), paths.end());
  std::vector<std::string> models;
  for (size_t i = 0; i < paths.size(); i += 23) {
    models.push_back(RealFileSystem().ReadFile(paths[i]).value_or(""));
  }
  return models;
}

void ExerciseAll(const std::vector<std::string>& seeds, int rounds) {
  std::mt19937 random(20240229);
  int imported = 0;
  int refused = 0;
  for (int round = 0; round < rounds; ++round) {
    for (const std::string& seed : seeds) {
      ++(ExerciseModel(MutateBytes(seed, random)) ? imported : refused);
      onnx::ModelProto model;
      ASSERT_TRUE(model.ParseFromString(seed));
      MutateFields(model, random);
      ++(ExerciseModel(model.SerializePartialAsString()) ? imported : refused);
    }
  }
  // Mutations that never import, or never fail, would test nothing.
  EXPECT_GT(imported, 50);
  EXPECT_GT(refused, 50);
}

TEST(Mutation, OwnModelsNeverCrash) { ExerciseAll(OwnModels(), 1000); }

TEST(Mutation, CorporaModelsNeverCrash) {
  const std::vector<std::string> seeds = CorporaModels();
  if (seeds.empty()) GTEST_SKIP() << "WEFT_CORPORA is not set: no corpora to read";
  ExerciseAll(seeds, 40);
}

// Every prefix of a model.
TEST(Mutation, TruncatedModelsNeverCrash) {
  for (const std::string& seed : OwnModels()) {
    for (size_t size = 0; size < seed.size(); ++size) ExerciseModel(seed.substr(0, size));
  }
}

}  // namespace
}  // namespace weft::testing
