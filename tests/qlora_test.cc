// Adapters over weights in few bits: under every kind of parallelism, and from the command line to
// the exported model. Adapters out and in again.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "ops/testing/test_tensors.h"
#include "placement/files/plan_file.h"
#include "tests/command_run.h"
#include "tests/testing/equivalence_models.h"
#include "tests/testing/model_weights.h"
#include "tests/testing/training_run.h"
#include "tools/console/exit_code.h"
#include "training/adapters/quantized_bases.h"
#include "training/data/data_file.h"

namespace weft::testing {
namespace {

using ::testing::HasSubstr;
using Strings = std::vector<std::string>;

// ---- On several workers.

BaseQuantization SpecOf(const std::string& text) {
  return text == "int8" ? BaseQuantization{DType::kInt8, 64} : BaseQuantization{DType::kInt4, 5};
}

class QuantizedOn : public ::testing::TestWithParam<std::tuple<std::string, std::string>> {
 protected:
  static constexpr int64_t kBatch = 13;

  QuantizedOn() : model_(*BuildEquivalenceModel("gpt", 3 * kBatch)) {
    run_.data = WriteDataFiles(model_, ::testing::TempDir());
    run_.batch = kBatch;
    run_.steps = 4;
    run_.optimizer.kind = "adam";
    run_.optimizer.learning_rate = 0.02;
    run_.plan.micro_batches = 4;
  }

  // The model with adapters over quantized weights.
  Graph Quantized(const BaseQuantization& spec) const {
    Graph graph = model_.graph.Clone();
    auto adapters = AddAdapters(graph, kLora, 1);
    EXPECT_TRUE(adapters.ok()) << adapters.status();
    EXPECT_GE(adapters->size(), 8u);
    const absl::Status status = QuantizeBases(graph, spec, *adapters);
    EXPECT_TRUE(status.ok()) << status;
    return graph;
  }

  // The same over what these dequantize to, as floats.
  Graph Dequantized(const BaseQuantization& spec) const {
    Graph graph = model_.graph.Clone();
    const auto adapters = AddAdapters(graph, kLora, 1);
    for (const LoraAdapter& adapter : *adapters) {
      for (Variable& variable : graph.mutable_variables()) {
        if (variable.name != adapter.weight) continue;
        const auto q = QuantizeWeight(variable.initial, spec, adapter.is_transposed ? 0 : 1);
        variable.initial = *DequantizeWeight(*q);
      }
    }
    return graph;
  }

  static inline const LoraSpec kLora = {.rank = 3, .alpha = 12};
  EquivalenceModel model_;
  TrainingRun run_;
};

TEST_P(QuantizedOn, SeveralWorkersHaveTheLossesOfOneAndOfFloats) {
  const auto& [type, plan] = GetParam();
  const BaseQuantization spec = SpecOf(type);
  const Graph graph = Quantized(spec);
  const auto single = RunGraph(graph, run_);
  ASSERT_TRUE(single.ok()) << single.status();
  EXPECT_LT(single->losses.back(), single->losses.front());
  const auto floats = RunGraph(Dequantized(spec), run_);
  ASSERT_TRUE(floats.ok()) << floats.status();
  EXPECT_EQ(single->losses, floats->losses);
  ASSERT_EQ(single->parameters.size(), floats->parameters.size());
  for (const auto& [name, value] : single->parameters) {
    EXPECT_TRUE(BitwiseEqual(value, floats->parameters.at(name))) << name;
  }
  const auto variable_bytes = [](const TrainingOutcome& outcome) {
    return outcome.predicted.front().requirement.variable_bytes;
  };
  EXPECT_LT(variable_bytes(*single), variable_bytes(*floats));

  run_.plan = ParseParallel(plan).value();
  run_.plan.micro_batches = 4;
  if (run_.plan.mesh.tensor > 1) {
    for (const std::string block : {"block0", "block1"}) {
      // The floats have the names of the weights; of these a plan knows no patterns.
      run_.plan.tensor_shardings[block + ".qkv.weight"] = AxisSharding::Split(1, 3);
      run_.plan.tensor_shardings[block + ".up.weight"] = AxisSharding::Split(1);
      run_.plan.tensor_shardings[block + ".out.weight"] = AxisSharding::Split(0);
      run_.plan.tensor_shardings[block + ".down.weight"] = AxisSharding::Split(0);
    }
  }
  run_.workers = run_.plan.mesh.size();
  const auto spread = RunGraph(graph, run_);
  ASSERT_TRUE(spread.ok()) << spread.status();
  EXPECT_LE(LargestRelativeGap(spread->losses, single->losses), 1e-5);
}

INSTANTIATE_TEST_SUITE_P(Plans, QuantizedOn,
                         ::testing::Combine(::testing::Values("int8", "int4"),
                                            ::testing::Values("dp=2", "pp=2", "tp=2", "dp=2,zero=3",
                                                              "pp=2,recompute=all")),
                         [](const auto& info) {
                           std::string name =
                               absl::StrCat(std::get<0>(info.param), "_", std::get<1>(info.param));
                           std::replace_if(
                               name.begin(), name.end(),
                               [](char c) { return c == '=' || c == ','; }, '_');
                           return name;
                         });

// ---- From the command line.

class Qlora : public ::testing::Test {
 protected:
  Qlora() : model_(TestPath("model.onnx")) {
    EXPECT_EQ(RunCommand({"example", "mlp", "-o", model_}).exit_code, 0);
    constexpr int64_t kSamples = 24;
    std::vector<int64_t> labels;
    for (int64_t i = 0; i < kSamples; ++i) labels.push_back(i * 7 % 10);
    WriteTestFile(TestPath("x.npy"), *ToNpy(RandomTensor({kSamples, 1, 28, 28}, 9)));
    WriteTestFile(TestPath("labels.npy"), *ToNpy(Tensor::Of<int64_t>({kSamples}, labels)));
  }

  CommandResult Run(const std::string& command, const std::string& model, Strings more) const {
    Strings arguments = {
        command,   model, "--data", "x=" + TestPath("x.npy"), "--labels", TestPath("labels.npy"),
        "--batch", "24"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return RunCommand(arguments);
  }

  // Trains and gives what the written model has.
  std::string Train(Strings more) const {
    const std::string path = TestPath("trained.onnx");
    for (const char* const text : {"--no-shuffle", "--lr", "0.1", "-o"}) more.emplace_back(text);
    more.push_back(path);
    const CommandResult result = Run("train", model_, more);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return ReadTestFile(path);
  }

  // Bytes of the variables of the only worker.
  int64_t VariableBytes(Strings more) const {
    more.insert(more.end(), {"--steps", "1", "--output", "json"});
    const CommandResult result = Run("train", model_, more);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return nlohmann::json::parse(result.out)["memory"][0]["variable_bytes"].get<int64_t>();
  }

  double Loss(const std::string& model) const {
    const CommandResult result = Run("eval", model, {"--metric", "loss", "--output", "json"});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return nlohmann::json::parse(result.out)["loss"].get<double>();
  }

  const std::string model_;
};

// Weights of the example: 784 x 128 and 128 x 10 numbers, or so; whatever they are.
TEST_F(Qlora, WeightsTakeAQuarterAndAnEighthOfTheMemory) {
  int64_t weights = 0;
  for (const auto& [name, values] : WeightsOf(model_)) {
    if (values.size() > 1000) weights += static_cast<int64_t>(values.size());
  }
  ASSERT_GT(weights, 10000);
  const auto whole = static_cast<double>(VariableBytes({"--lora", "rank=1"}));
  const auto int8 = static_cast<double>(VariableBytes({"--lora", "rank=1", "--qlora", "int8"}));
  const auto int4 = static_cast<double>(VariableBytes({"--lora", "rank=1", "--qlora", "int4"}));
  const auto numbers = static_cast<double>(weights);
  EXPECT_NEAR((whole - int8) / (4 * numbers), 1 - 1 / 4.0, 0.02);
  // A block of 64 has a scale of 32 bits: 4.5 bits for each weight.
  EXPECT_NEAR((whole - int4) / (4 * numbers), 1 - 4.5 / 32, 0.02);
}

TEST_F(Qlora, TheMergedModelHasTheLossThatWasMeasured) {
  for (const char* const type : {"int8", "int4"}) {
    const std::string tuned = TestPath("tuned.onnx");
    const CommandResult result =
        Run("train", model_,
            {"--qlora", type, "--steps", "5", "--lr", "0.1", "--eval-every", "5", "--eval-data",
             "x=" + TestPath("x.npy"), "--eval-labels", TestPath("labels.npy"), "--eval-metric",
             "loss", "--output", "json", "-o", tuned});
    ASSERT_EQ(result.exit_code, 0) << result.err;
    EXPECT_THAT(result.err, HasSubstr(absl::StrCat(" weights, kept in ", type, "\n")));
    const double measured =
        nlohmann::json::parse(result.out)["evaluation"]["last"]["loss"].get<double>();
    EXPECT_NEAR(Loss(tuned), measured, 1e-5 * measured) << type;
    EXPECT_LT(measured, Loss(model_));
  }
}

TEST_F(Qlora, AResumedRunEndsWithTheSameModel) {
  const Strings job = {"--qlora", "int4,block=48", "--lora", "rank=2", "--optimizer", "adam"};
  const auto with = [&job](Strings more) {
    more.insert(more.end(), job.begin(), job.end());
    return more;
  };
  const std::string whole = Train(with({"--steps", "6"}));
  const std::string folder = TestPath("saved");
  std::filesystem::remove_all(folder);
  Train(with({"--steps", "3", "--checkpoint", folder}));
  EXPECT_EQ(Train(with({"--steps", "6", "--checkpoint", folder, "--resume"})), whole);
  const std::string exported = TestPath("exported.onnx");
  const CommandResult result = RunCommand({"ckpt", "export", folder, model_, "-o", exported});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(ReadTestFile(exported), whole);
  const CommandResult other =
      Run("train", model_, {"--qlora", "int8", "--steps", "6", "--checkpoint", folder, "--resume"});
  EXPECT_EQ(other.exit_code, static_cast<int>(ExitCode::kUsage));
  EXPECT_THAT(other.err, HasSubstr("--qlora"));
}

// Plain gradient descent on the whole data keeps nothing but the adapters from step to step.
TEST_F(Qlora, AdaptersOutAndInContinueToTheBit) {
  const std::string file = TestPath("adapter_model.safetensors");
  for (const Strings& weights : {Strings(), Strings{"--qlora", "int8"}}) {
    const auto with = [&weights](Strings more) {
      more.insert(more.end(), weights.begin(), weights.end());
      return more;
    };
    const std::string whole = Train(with({"--lora", "rank=3,alpha=7", "--steps", "6"}));
    Train(with({"--lora", "rank=3,alpha=7", "--steps", "3", "--adapters-out", file}));
    EXPECT_EQ(Train(with({"--adapters-in", file, "--steps", "3"})), whole);
  }
}

// The path was compared, and what the file holds was not.
TEST_F(Qlora, AResumedRunMayHaveMovedTheAdaptersItBeganWith) {
  const std::string first = TestPath("first"), second = TestPath("second");
  const std::string saved = TestPath("saved");
  for (const std::string& folder : {first, second, saved}) std::filesystem::remove_all(folder);
  std::filesystem::create_directories(first);
  const auto file_in = [](const std::string& folder) { return folder + "/a.safetensors"; };
  Train({"--lora", "rank=2,alpha=4", "--steps", "2", "--adapters-out", file_in(first)});
  const std::string whole = Train({"--adapters-in", file_in(first), "--steps", "4"});
  Train({"--adapters-in", file_in(first), "--steps", "2", "--checkpoint", saved});
  std::filesystem::copy(first, second);
  EXPECT_EQ(
      Train({"--adapters-in", file_in(second), "--steps", "4", "--checkpoint", saved, "--resume"}),
      whole);

  const auto resumed_with = [&](const std::string& folder) {
    const CommandResult result =
        Run("train", model_,
            {"--adapters-in", file_in(folder), "--steps", "6", "--checkpoint", saved, "--resume",
             "--no-shuffle", "--lr", "0.1"});
    EXPECT_EQ(result.exit_code, static_cast<int>(ExitCode::kUsage)) << result.err;
    return result.err;
  };
  for (const std::string& folder : {first, second}) {
    const std::string config = folder + "/adapter_config.json";
    const std::string text = ReadTestFile(config);
    ASSERT_THAT(text, HasSubstr("\"lora_alpha\": 4"));
    WriteTestFile(config, absl::StrReplaceAll(text, {{"\"lora_alpha\": 4", "\"lora_alpha\": 8"}}));
  }
  EXPECT_THAT(resumed_with(second),
              HasSubstr(absl::StrCat("--adapters-in ", file_in(second), " has changed")));
  EXPECT_THAT(resumed_with(first),
              HasSubstr(absl::StrCat("--adapters-in was ", file_in(second), ", is ", file_in(first),
                                     ", which differs")));
  // An export goes on, and says so.
  const Strings command = {"ckpt", "export", saved, model_, "-o", TestPath("exported.onnx")};
  Strings with_file = command;
  with_file.insert(with_file.end(), {"--adapters-in", file_in(second)});
  const CommandResult exported = RunCommand(with_file);
  EXPECT_EQ(exported.exit_code, 0) << exported.err;
  EXPECT_THAT(exported.err, HasSubstr("is not the file that training began with"));

  // A checkpoint may come from anybody: the path in it was opened, whatever lay there.
  const CommandResult unasked = RunCommand(command);
  EXPECT_EQ(unasked.exit_code, static_cast<int>(ExitCode::kUsage)) << unasked.out;
  EXPECT_THAT(unasked.err, HasSubstr(absl::StrCat("began with the adapters of ", file_in(second))));
  EXPECT_THAT(unasked.err, HasSubstr("--adapters-in FILE.safetensors"));
}

TEST_F(Qlora, AnExportOfAJobWithoutAdaptersTakesNone) {
  const std::string saved = TestPath("saved"), file = TestPath("a.safetensors");
  std::filesystem::remove_all(saved);
  Train({"--lora", "rank=2", "--steps", "1", "--checkpoint", saved, "--adapters-out", file});
  const CommandResult result = RunCommand(
      {"ckpt", "export", saved, model_, "--adapters-in", file, "-o", TestPath("exported.onnx")});
  EXPECT_EQ(result.exit_code, static_cast<int>(ExitCode::kUsage)) << result.out;
  EXPECT_THAT(result.err, HasSubstr("began with no adapters"));
}

TEST_F(Qlora, MistakesAreUsageErrors) {
  const auto error = [this](Strings more) {
    more.insert(more.end(), {"--steps", "1"});
    const CommandResult result = Run("train", model_, more);
    EXPECT_EQ(result.exit_code, static_cast<int>(ExitCode::kUsage)) << result.err;
    return result.err;
  };
  EXPECT_THAT(error({"--qlora", "nf4"}), HasSubstr("--qlora nf4: expected int4, int8"));
  EXPECT_THAT(error({"--qlora", "int8", "--lora", "match=*atn*"}), HasSubstr("fits no weight"));
  const std::string file = TestPath("none.safetensors");
  WriteTestFile(file, "no header");
  EXPECT_THAT(error({"--adapters-in", file}), HasSubstr("is damaged"));
}

}  // namespace
}  // namespace weft::testing
