// Files of adapters that are cut off or changed anywhere start a model or give an error, and never
// crash.
#include <optional>
#include <span>
#include <string>

#include "graph/graph_builder.h"
#include "gtest/gtest.h"
#include "training/adapters/adapter_options.h"
#include "training/adapters/testing/safetensors_text.h"

namespace weft {
namespace {

constexpr char kHeader[] =
    R"({"__metadata__":{"format":"pt"},)"
    R"("base_model.model.h.0.up.lora_A.weight":{"dtype":"F32","shape":[2,3],)"
    R"("data_offsets":[0,24]},"base_model.model.h.0.up.lora_B.default.weight":)"
    R"({"dtype":"F16","shape":[4,2],"data_offsets":[24,40]}})";
constexpr char kConfig[] =
    R"({"peft_type":"LORA","r":2,"lora_alpha":6,"rank_pattern":{"x":3},"alpha_pattern":{},)"
    R"("use_rslora":false,"target_modules":["up"]})";

Graph Model() {
  Graph graph;
  GraphBuilder builder(graph);
  const ValueId x = graph.AddInput(
      "x", {ValueKind::kTensor, DType::kFloat32, SymbolicShape({Dim::Symbol("N"), 3})});
  const ValueId w =
      graph.AddVariable("h.0.up.weight", {ValueKind::kTensor, DType::kFloat32, Shape{3, 4}},
                        *Tensor::Zeros(DType::kFloat32, {3, 4}), true);
  graph.AddOutput(builder.Op("MatMul", {x, w}));
  return graph;
}

// Whether the files started the model.
bool Exercise(const std::string& tensors, const std::optional<std::string>& config) {
  auto peft = ParsePeft(std::as_bytes(std::span(tensors)), config, "a.safetensors");
  if (!peft.ok()) return false;
  EXPECT_FALSE(peft->adapters.empty());
  for (const PeftAdapter& adapter : peft->adapters) {
    EXPECT_EQ(adapter.a.shape().dim(0), adapter.b.shape().dim(1));
  }
  Graph graph = Model();
  AdapterOptions options;
  options.start = *std::move(peft);
  options.quantized = BaseQuantization{DType::kInt4, 2};
  return AdaptModel(graph, options, 1).ok();
}

TEST(MutationTest, FilesOfAdaptersCutAndChanged) {
  const std::string good = testing::SafetensorsText(kHeader, std::string(40, '\x11'));
  ASSERT_TRUE(Exercise(good, kConfig));
  int runs = 0, started = 0;
  for (size_t at = 0; at < good.size(); ++at) {
    EXPECT_FALSE(Exercise(good.substr(0, at), kConfig)) << at;
    for (const char change : {'\x01', '\x02', '\x10', '\x80', '\xff'}) {
      std::string changed = good;
      changed[at] = static_cast<char>(changed[at] ^ change);
      started += Exercise(changed, kConfig) ? 1 : 0;
      ++runs;
    }
  }
  EXPECT_GT(runs, 1300);
  // Other numbers are other adapters; other names and places are errors.
  EXPECT_GT(started, 0);
  EXPECT_LT(started, runs / 2);
}

TEST(MutationTest, ConfigurationsCutAndChanged) {
  const std::string good = testing::SafetensorsText(kHeader, std::string(40, '\x11'));
  const std::string config = kConfig;
  for (size_t at = 0; at < config.size(); ++at) {
    EXPECT_FALSE(Exercise(good, config.substr(0, at))) << at;
    for (const char change : {'\x01', '\x02', '\x10', '\x80', '\xff'}) {
      std::string changed = config;
      changed[at] = static_cast<char>(changed[at] ^ change);
      Exercise(good, changed);
    }
  }
}

}  // namespace
}  // namespace weft
