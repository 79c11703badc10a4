#include "training/adapters/peft_config.h"

#include <cmath>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace weft {
namespace {

using ::testing::HasSubstr;

std::string Error(const std::string& text) {
  return std::string(ParsePeftConfig(text, "adapter_config.json").status().message());
}

// As PEFT 0.10 writes it, but for keys that say nothing of LoRA.
TEST(PeftConfigTest, WhatPeftWrites) {
  const auto config = ParsePeftConfig(
      R"({"alpha_pattern": {"fc1": 8}, "auto_mapping": null, "base_model_name_or_path": "gpt2",
          "bias": "none", "fan_in_fan_out": true, "inference_mode": true,
          "init_lora_weights": true, "layers_pattern": null, "layers_to_transform": null,
          "loftq_config": {}, "lora_alpha": 16, "lora_dropout": 0.1, "megatron_config": null,
          "megatron_core": "megatron.core", "modules_to_save": null, "peft_type": "LORA", "r": 4,
          "rank_pattern": {"h.1.fc1": 2}, "revision": null, "target_modules": ["c_attn"],
          "task_type": "CAUSAL_LM", "use_dora": false, "use_rslora": false})",
      "adapter_config.json");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->rank, 4);
  EXPECT_TRUE(config->fan_in_fan_out);
  EXPECT_EQ(*config->ScaleOf("h.0.c_attn", 4), 4);
  EXPECT_EQ(*config->ScaleOf("h.0.fc1", 4), 2);
  EXPECT_EQ(*config->ScaleOf("h.1.fc1", 2), 4);
  // An end that does not begin after a dot is another name.
  EXPECT_EQ(*config->ScaleOf("h.0.xfc1", 4), 4);
  EXPECT_THAT(std::string(config->ScaleOf("h.1.fc1", 4).status().message()),
              HasSubstr("r is 2 for module 'h.1.fc1', whose tensors have the rank 4"));
}

TEST(PeftConfigTest, RsloraDividesByTheRoot) {
  const auto config =
      ParsePeftConfig(R"({"r": 4, "lora_alpha": 3, "use_rslora": true})", "adapter_config.json");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(*config->ScaleOf("m", 4), 1.5);
}

TEST(PeftConfigTest, WhatIsWrittenIsReadAgain) {
  PeftConfig config;
  config.Add("h.0.attn", 8, 16.0 / 3);
  config.Add("h.1.attn", 8, 16.0 / 3);
  config.Add("h.1.small", 3, 16.0 / 3);
  config.fan_in_fan_out = true;
  const std::string text = config.ToJson();
  const auto json = nlohmann::json::parse(text);
  EXPECT_EQ(json["peft_type"], "LORA");
  EXPECT_EQ(json["r"], 8);
  EXPECT_EQ(json["target_modules"],
            (std::vector<std::string>{"h.0.attn", "h.1.attn", "h.1.small"}));
  EXPECT_EQ(json["rank_pattern"], (nlohmann::json{{"h.1.small", 3}}));
  EXPECT_EQ(json["alpha_pattern"], (nlohmann::json{{"h.1.small", 16}}));
  EXPECT_EQ(json["fan_in_fan_out"], true);
  const auto read = ParsePeftConfig(text, "adapter_config.json");
  ASSERT_TRUE(read.ok()) << read.status();
  for (const char* const module : {"h.0.attn", "h.1.attn"}) {
    EXPECT_DOUBLE_EQ(*read->ScaleOf(module, 8), 16.0 / 3);
  }
  EXPECT_DOUBLE_EQ(*read->ScaleOf("h.1.small", 3), 16.0 / 3);
}

// PEFT takes the first key of the file that fits, not the longest one.
TEST(PeftConfigTest, TheFirstPatternThatFitsCounts) {
  const auto scale = [](const std::string& patterns) {
    const auto config = ParsePeftConfig(
        R"({"r": 4, "lora_alpha": 4, "alpha_pattern": )" + patterns + "}", "adapter_config.json");
    EXPECT_TRUE(config.ok()) << config.status();
    return config.ok() ? *config->ScaleOf("h.0.up", 4) : 0;
  };
  EXPECT_EQ(scale(R"({"up": 8, "h.0.up": 2})"), 2);
  EXPECT_EQ(scale(R"({"h.0.up": 2, "up": 8})"), 0.5);
  EXPECT_EQ(scale(R"({"p": 8, "0": 2, "h": 2, "h.0": 2})"), 1);
}

// "fc" is an end of "block.fc", so a pattern of the one is told of the other too.
TEST(PeftConfigTest, AModuleWhoseNameEndsInThatOfAnother) {
  PeftConfig config;
  config.Add("block.fc", 8, 1);
  config.Add("other", 8, 1);
  config.Add("fc", 4, 1);
  config.Add("deep.fc", 8, 2);
  const std::string text = config.ToJson();
  const auto patterns = nlohmann::ordered_json::parse(text)["rank_pattern"];
  ASSERT_EQ(patterns.size(), 3u);
  EXPECT_EQ(patterns.begin().key(), "block.fc");
  EXPECT_EQ(patterns["fc"], 4);
  const auto read = ParsePeftConfig(text, "adapter_config.json");
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->ScaleOf("block.fc", 8).value_or(0), 1);
  EXPECT_EQ(read->ScaleOf("other", 8).value_or(0), 1);
  EXPECT_EQ(read->ScaleOf("fc", 4).value_or(0), 1);
  EXPECT_EQ(read->ScaleOf("deep.fc", 8).value_or(0), 2);
}

TEST(PeftConfigTest, WhatCannotBeRightIsSaid) {
  EXPECT_EQ(Error("[]"), "\"adapter_config.json\" is no JSON object");
  EXPECT_EQ(Error("{\"r\": "), "\"adapter_config.json\" is no JSON object");
  EXPECT_THAT(Error(std::string(100000, '[')), HasSubstr("at most 16 are read"));
  EXPECT_THAT(Error(std::string((size_t{1} << 20) + 1, ' ')),
              HasSubstr("at most 1048576 are read"));
  EXPECT_THAT(Error(R"({"lora_alpha": 1})"), HasSubstr("r is missing"));
  EXPECT_THAT(Error(R"({"r": 4})"), HasSubstr("lora_alpha is missing"));
  EXPECT_THAT(Error(R"({"r": 0, "lora_alpha": 1})"), HasSubstr("r is no whole number from 1"));
  EXPECT_THAT(Error(R"({"r": 99999999999999999999, "lora_alpha": 1})"), HasSubstr("r is no whole"));
  EXPECT_THAT(Error(R"({"r": 4, "lora_alpha": "8"})"), HasSubstr("lora_alpha is no number above"));
  EXPECT_THAT(Error(R"({"r": 4, "lora_alpha": -1})"), HasSubstr("lora_alpha is no number above"));
  EXPECT_THAT(Error(R"({"r": 4, "lora_alpha": 1, "use_dora": true})"), HasSubstr("use_dora"));
  EXPECT_THAT(Error(R"({"r": 4, "lora_alpha": 1, "use_rslora": 1})"),
              HasSubstr("use_rslora is neither true nor false"));
  EXPECT_THAT(Error(R"({"peft_type": "IA3", "r": 4, "lora_alpha": 1})"),
              HasSubstr("peft_type is not LORA"));
  EXPECT_THAT(Error(R"({"r": 4, "lora_alpha": 1, "rank_pattern": {"h.*": 2}})"),
              HasSubstr("rank_pattern.h.* is a regular expression"));
  EXPECT_THAT(Error(R"({"r": 4, "lora_alpha": 1, "alpha_pattern": {"h": null}})"),
              HasSubstr("alpha_pattern.h is no number"));
  EXPECT_THAT(Error(R"({"r": 4, "lora_alpha": 1, "alpha_pattern": []})"),
              HasSubstr("alpha_pattern is no JSON object"));
}

}  // namespace
}  // namespace weft
