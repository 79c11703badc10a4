// Files as PEFT writes them, put together by hand, in and out.
#include "training/adapters/peft_file.h"

#include <cstdint>
#include <filesystem>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "executor/variables/safetensors.h"
#include "gmock/gmock.h"
#include "graph/graph_builder.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "ops/testing/test_tensors.h"
#include "platform/file_system.h"
#include "platform/testing/fake_file_system.h"
#include "training/adapters/adapter_options.h"
#include "training/adapters/testing/safetensors_text.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using testing::FloatBytes;
using ::testing::HasSubstr;
using testing::SafetensorsText;

constexpr char kConfig[] = R"({"peft_type": "LORA", "r": 2, "lora_alpha": 6})";

// A of [2,3] and B of [4,2], for a weight of 3 inputs and 4 outputs.
std::string OneModule(const std::string& module, const std::string& weight = ".weight") {
  const std::string header = absl::StrReplaceAll(
      R"({"__metadata__":{"format":"pt"},
          "base_model.model.MODULE.lora_A.WEIGHT":
            {"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},
          "base_model.model.MODULE.lora_B.WEIGHT":
            {"dtype":"F32","shape":[4,2],"data_offsets":[24,56]}})",
      {{"MODULE", module}, {".WEIGHT", weight}});
  return SafetensorsText(
      header, FloatBytes({1, 2, 3, 4, 5, 6}) + FloatBytes({10, 20, 30, 40, 50, 60, 70, 80}));
}

absl::StatusOr<PeftAdapters> Parse(const std::string& bytes,
                                   const std::optional<std::string>& config = kConfig) {
  return ParsePeft(std::as_bytes(std::span(bytes)), config, "a.safetensors");
}

std::string ParseError(const std::string& bytes,
                       const std::optional<std::string>& config = kConfig) {
  return std::string(Parse(bytes, config).status().message());
}

// x [N,3] MatMul "h.0.up.weight" [3,4] -> Gemm with "head.weight" [5,4], transposed. A third
// weight has a made-up name and that of its module as another one.
class PeftFileTest : public ::testing::Test {
 protected:
  PeftFileTest() {
    GraphBuilder builder(graph_);
    const ValueId x = graph_.AddInput(
        "x", {ValueKind::kTensor, DType::kFloat32, SymbolicShape({Dim::Symbol("N"), 3})});
    ValueId y = builder.Op("MatMul", {x, Weight("h.0.up.weight", {3, 4})});
    y = builder.Op("MatMul", {y, Weight("onnx::MatMul_7", {4, 4})});
    graph_.mutable_variables().back().other_names = {"h.1.down.weight", "h.1/down/weight",
                                                     "/h.1/down/MatMul.B"};
    y = builder.Op("Gemm", {y, Weight("head.weight", {5, 4})}, {{"transB", int64_t{1}}});
    graph_.AddOutput(y);
    EXPECT_TRUE(builder.status().ok()) << builder.status();
  }

  ValueId Weight(const std::string& name, Shape shape) {
    return graph_.AddVariable(name, {ValueKind::kTensor, DType::kFloat32, shape},
                              testing::RandomTensor(shape, ++weights_), true);
  }

  std::string StartError(const std::string& bytes) {
    const auto peft = Parse(bytes);
    EXPECT_TRUE(peft.ok()) << peft.status();
    return std::string(AdaptModel(graph_, {{}, {}, *peft}, 1).status().message());
  }

  std::vector<double> Initial(const std::string& name) const {
    const Variable* const variable = graph_.FindVariable(name);
    return variable == nullptr ? std::vector<double>() : *ToDoubles(variable->initial);
  }

  Graph graph_;
  uint64_t weights_ = 0;
};

TEST_F(PeftFileTest, AFileOfPeftIsWhereAdaptersStart) {
  for (const char* const weight : {".weight", ".default.weight"}) {
    const auto peft = Parse(OneModule("h.0.up", weight));
    ASSERT_TRUE(peft.ok()) << peft.status();
    Graph graph = graph_.Clone();
    std::swap(graph, graph_);
    const auto adapters = AdaptModel(graph_, {{}, {}, *peft}, 1);
    ASSERT_TRUE(adapters.ok()) << adapters.status();
    ASSERT_EQ(adapters->size(), 1u);
    EXPECT_EQ(adapters->front().weight, "h.0.up.weight");
    EXPECT_EQ(adapters->front().scale, 3);
    // The weight is [in, out]: so are the factors.
    EXPECT_THAT(Initial("h.0.up.weight/lora_A"), ElementsAre(1, 4, 2, 5, 3, 6));
    EXPECT_THAT(Initial("h.0.up.weight/lora_B"), ElementsAre(10, 30, 50, 70, 20, 40, 60, 80));
    graph_ = std::move(graph);
  }
}

TEST_F(PeftFileTest, AModuleIsFoundByAnotherNameToo) {
  const std::string header =
      R"({"base_model.model.h.1.down.lora_A.weight":
           {"dtype":"BF16","shape":[1,4],"data_offsets":[0,8]},
          "base_model.model.h.1.down.lora_B.weight":
           {"dtype":"F16","shape":[4,1],"data_offsets":[8,16]}})";
  // 1, -2, 0.5, 0 as bfloat16; 1, 2, -1, 0.5 as float16.
  const std::string data("\x80\x3f\x00\xc0\x00\x3f\x00\x00\x00\x3c\x00\x40\x00\xbc\x00\x38", 16);
  const auto peft = Parse(SafetensorsText(header, data), std::nullopt);
  ASSERT_TRUE(peft.ok()) << peft.status();
  LoraSpec spec;
  spec.alpha = 5;
  const auto adapters = AdaptModel(graph_, {spec, {}, *peft}, 1);
  ASSERT_TRUE(adapters.ok()) << adapters.status();
  EXPECT_EQ(adapters->front().weight, "onnx::MatMul_7");
  EXPECT_EQ(adapters->front().scale, 5);
  EXPECT_THAT(Initial("onnx::MatMul_7/lora_A"), ElementsAre(1, -2, 0.5, 0));
  EXPECT_THAT(Initial("onnx::MatMul_7/lora_B"), ElementsAre(1, 2, -1, 0.5));
}

TEST_F(PeftFileTest, NamesAndShapesAreThoseOfPeft) {
  const auto adapters = AddAdapters(graph_, {.rank = 3, .alpha = 6}, 1);
  ASSERT_TRUE(adapters.ok()) << adapters.status();
  std::map<std::string, Tensor> values;
  for (const LoraAdapter& adapter : *adapters) {
    for (const std::string& name : {adapter.a, adapter.b}) {
      const auto shape = *graph_.value(graph_.FindVariable(name)->value).type.shape.ToConcrete();
      values[name] = testing::RandomTensor(shape, values.size() + 1);
    }
  }
  const auto files = WritePeft(graph_, *adapters, values);
  ASSERT_TRUE(files.ok()) << files.status();
  const auto layout = ParseSafetensors(std::as_bytes(std::span(files->tensors)), "a.safetensors");
  ASSERT_TRUE(layout.ok()) << layout.status();
  std::map<std::string, std::string> shapes;
  for (const SafetensorsEntry& entry : layout->tensors) shapes[entry.name] = entry.shape.ToString();
  EXPECT_EQ(shapes, (std::map<std::string, std::string>{
                        {"base_model.model.h.0.up.lora_A.weight", "[3,3]"},
                        {"base_model.model.h.0.up.lora_B.weight", "[4,3]"},
                        {"base_model.model.h.1.down.lora_A.weight", "[3,4]"},
                        {"base_model.model.h.1.down.lora_B.weight", "[4,3]"},
                        {"base_model.model.head.lora_A.weight", "[3,4]"},
                        {"base_model.model.head.lora_B.weight", "[5,3]"}}));
  EXPECT_EQ(layout->metadata.at("format"), "pt");
  const auto config = nlohmann::json::parse(files->config);
  EXPECT_EQ(config["r"], 3);
  EXPECT_EQ(config["lora_alpha"], 6);
  EXPECT_EQ(config["target_modules"], (std::vector<std::string>{"h.0.up", "h.1.down", "head"}));
  // "h.0.up.weight" is [in, out] under a module's name.
  EXPECT_EQ(config["fan_in_fan_out"], true);
}

TEST_F(PeftFileTest, WhatIsWrittenIsReadAgain) {
  for (const std::optional<BaseQuantization>& quantized :
       {std::optional<BaseQuantization>(), std::optional(BaseQuantization{DType::kInt4, 2})}) {
    Graph first = graph_.Clone(), second = graph_.Clone();
    const auto adapters = AdaptModel(first, {{.rank = 8, .alpha = 2}, quantized, {}}, 1);
    ASSERT_TRUE(adapters.ok()) << adapters.status();
    std::map<std::string, Tensor> values;
    for (const LoraAdapter& adapter : *adapters) {
      for (const std::string& name : {adapter.a, adapter.b}) {
        const auto shape = *first.value(first.FindVariable(name)->value).type.shape.ToConcrete();
        values[name] = testing::RandomTensor(shape, values.size() + 1);
      }
    }
    const auto files = WritePeft(first, *adapters, values);
    ASSERT_TRUE(files.ok()) << files.status();
    testing::FakeFileSystem disk;
    ASSERT_TRUE(disk.CreateDirectories("/d").ok());
    ASSERT_TRUE(disk.WriteFileAtomically("/d/a.safetensors", files->tensors).ok());
    ASSERT_TRUE(disk.WriteFileAtomically("/d/adapter_config.json", files->config).ok());
    const auto options = ReadAdapterOptions(disk, {{}, {}, "/d/a.safetensors"});
    ASSERT_TRUE(options.ok()) << options.status();
    const auto again = AdaptModel(second, *options, 2);
    ASSERT_TRUE(again.ok()) << again.status();
    ASSERT_EQ(again->size(), adapters->size());
    for (size_t i = 0; i < again->size(); ++i) {
      EXPECT_EQ((*again)[i].weight, (*adapters)[i].weight);
      EXPECT_DOUBLE_EQ((*again)[i].scale, (*adapters)[i].scale);
      for (const std::string& name : {(*again)[i].a, (*again)[i].b}) {
        EXPECT_TRUE(BitwiseEqual(second.FindVariable(name)->initial, values.at(name))) << name;
      }
    }
  }
}

TEST_F(PeftFileTest, WhatIsOfAnotherModelIsSaid) {
  EXPECT_EQ(StartError(OneModule("h.0.pu")),
            "\"a.safetensors\": module 'h.0.pu' is no module of the model, did you mean "
            "'h.0.up'?; graph_runner inspect --parameters lists its weights");
  EXPECT_EQ(StartError(OneModule("head")),
            "\"a.safetensors\": module 'head' has lora_A [2,3] and lora_B [4,2], which do not fit "
            "the weight 'head.weight' [5,4]; the adapters are of another model");
  const auto peft = Parse(OneModule("h.0.up"), std::nullopt);
  EXPECT_THAT(std::string(AdaptModel(graph_, {{}, {}, *peft}, 1).status().message()),
              HasSubstr("has no adapter_config.json beside it"));
  graph_.mutable_variables().front().trainable = false;
  EXPECT_THAT(
      StartError(OneModule("h.0.up")),
      HasSubstr("the weight 'h.0.up.weight' has an adapter in the file and does not train"));
}

TEST(StartFromPeftTest, NumbersThatTheWeightsTypeCannotHoldAreSaid) {
  Graph graph;
  GraphBuilder builder(graph);
  const ValueId x = graph.AddInput(
      "x", {ValueKind::kTensor, DType::kFloat16, SymbolicShape({Dim::Symbol("N"), 3})});
  const ValueId w =
      graph.AddVariable("m.weight", {ValueKind::kTensor, DType::kFloat16, Shape{3, 4}},
                        *Tensor::Zeros(DType::kFloat16, {3, 4}), true);
  graph.AddOutput(builder.Op("MatMul", {x, w}));
  ASSERT_TRUE(builder.status().ok()) << builder.status();
  const std::string good = OneModule("m");
  std::string large = good;
  large.replace(good.size() - 4, 4, FloatBytes({131072}));
  const auto start = [&graph](const std::string& bytes) {
    Graph own = graph.Clone();
    return AdaptModel(own, {{}, {}, *Parse(bytes)}, 1).status();
  };
  EXPECT_TRUE(start(good).ok()) << start(good);
  EXPECT_EQ(start(large).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(start(large).message()),
              HasSubstr("\"a.safetensors\": 'm.weight/lora_B' is float16 as its weight, which "
                        "cannot hold the number"));
}

TEST_F(PeftFileTest, LoraBesideAFileMaySayWhatItDoesNot) {
  testing::FakeFileSystem disk;
  ASSERT_TRUE(disk.CreateDirectories("/d").ok());
  ASSERT_TRUE(disk.WriteFileAtomically("/d/a.safetensors", OneModule("h.0.up")).ok());
  const auto error = [&disk](const std::string& item) {
    return std::string(
        ReadAdapterOptions(disk, {{item}, {}, "/d/a.safetensors"}).status().message());
  };
  EXPECT_EQ(error("alpha=6"), "");
  EXPECT_EQ(error("train=head*"), "");
  EXPECT_EQ(error("rank=4"),
            "--lora rank=4: the file of --adapters-in says which weights have adapters, of which "
            "rank; leave it out");
  ASSERT_TRUE(disk.WriteFileAtomically("/d/adapter_config.json", kConfig).ok());
  EXPECT_THAT(error("alpha=6"), HasSubstr("of which rank and alpha; leave it out"));
}

// It was read whole, and refused by what parses it.
TEST(ReadPeftTest, AConfigurationThatIsTooLongIsNotRead) {
  const std::string folder = absl::StrCat(::testing::TempDir(), "/long_configuration");
  FileSystem& files = RealFileSystem();
  ASSERT_TRUE(files.CreateDirectories(folder).ok());
  const std::string adapters = absl::StrCat(folder, "/a.safetensors");
  ASSERT_TRUE(files.WriteFileAtomically(adapters, OneModule("m")).ok());
  ASSERT_TRUE(files.WriteFileAtomically(PeftConfigPath(adapters), kConfig).ok());
  EXPECT_TRUE(ReadPeft(files, adapters).ok());
  std::filesystem::resize_file(PeftConfigPath(adapters), uintmax_t{64} << 20);
  const absl::Status status = ReadPeft(files, adapters).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("adapter_config.json\" holds 67108864 bytes, more than the 1048576 "));
  std::filesystem::remove_all(folder);
}

// What tells a resumed job that it begins with the same adapters.
TEST(ParsePeftTest, TheChecksumIsOfBothFiles) {
  const uint64_t checksum = Parse(OneModule("m"))->checksum;
  EXPECT_EQ(Parse(OneModule("m"))->checksum, checksum);
  EXPECT_NE(Parse(OneModule("n"))->checksum, checksum);
  EXPECT_NE(Parse(OneModule("m"), std::nullopt)->checksum, checksum);
  const std::string other = absl::StrReplaceAll(kConfig, {{"6", "7"}});
  EXPECT_NE(Parse(OneModule("m"), other)->checksum, checksum);
}

TEST(ParsePeftTest, WhatIsNoAdapterIsSaid) {
  const std::string good = OneModule("m");
  ASSERT_TRUE(Parse(good).ok());
  const auto with = [&good](const std::string& from, const std::string& to) {
    // Of one length, so that the file stays whole.
    EXPECT_EQ(from.size(), to.size());
    return absl::StrReplaceAll(good, {{from, to}});
  };
  EXPECT_THAT(ParseError(with("lora_A", "lora_X")),
              HasSubstr("'base_model.model.m.lora_X.weight' is no half of an adapter"));
  EXPECT_THAT(ParseError(with("m.lora_A", "n.lora_A")), HasSubstr("module 'm' has no lora_A"));
  EXPECT_THAT(ParseError(with("\"F32\",\"shape\":[2,3]", "\"I32\",\"shape\":[2,3]")),
              HasSubstr("is int32[2,3], expected a matrix of floating-point numbers"));
  EXPECT_THAT(ParseError(with("[2,3]", "[1,6]")),
              HasSubstr("has lora_A [1,6] and lora_B [4,2], expected [r,in] and [out,r]"));
  EXPECT_THAT(ParseError(with("[2,3],\"data", "[6],  \"data")), HasSubstr("is float32[6]"));
  EXPECT_THAT(ParseError(good, R"({"r": 3, "lora_alpha": 1})"),
              HasSubstr("r is 3 for module 'm', whose tensors have the rank 2"));
  EXPECT_THAT(ParseError(SafetensorsText("{}", "")), HasSubstr("it has no adapter"));
  std::string infinite = good;
  const float infinity = std::numeric_limits<float>::infinity();
  infinite.replace(good.size() - 4, 4, FloatBytes({infinity}));
  EXPECT_THAT(ParseError(infinite), HasSubstr("lora_B.weight' has the element inf"));
}

// Lengths, offsets and ranges that lie.
TEST(ParsePeftTest, HostileHeadersAreDamage) {
  const std::string good = OneModule("m");
  const auto code = [&](const std::string& from, const std::string& to) {
    return Parse(absl::StrReplaceAll(good, {{from, to}})).status().code();
  };
  EXPECT_EQ(code("[24,56]", "[20,52]"), absl::StatusCode::kDataLoss);  // overlap
  EXPECT_EQ(code("[24,56]", "[28,60]"), absl::StatusCode::kDataLoss);  // a gap, and past the end
  EXPECT_EQ(code("[24,56]", "[56,24]"), absl::StatusCode::kDataLoss);
  EXPECT_EQ(code("[4,2]", "[9,9]"), absl::StatusCode::kDataLoss);
  std::string huge = good;
  for (int i = 0; i < 8; ++i) huge[static_cast<size_t>(i)] = '\xff';
  EXPECT_EQ(Parse(huge).status().code(), absl::StatusCode::kDataLoss);
  const std::string overflow =
      R"({"m.lora_A.weight":{"dtype":"F64","shape":[4294967296,4294967296],
          "data_offsets":[0,18446744073709551615]}})";
  EXPECT_EQ(Parse(SafetensorsText(overflow, "")).status().code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(Parse("").status().code(), absl::StatusCode::kDataLoss);
}

}  // namespace
}  // namespace weft
