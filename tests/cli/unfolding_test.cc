// `--repair unfold-bn`: a file of which the exporter has folded BatchNormalization into
// convolutions (exported/folded.onnx, of the module in docs/models.md) trains with it again.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "graph/graph_builder.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "onnx_import/importer.h"
#include "platform/file_system.h"
#include "tests/command_run.h"
#include "training/data/data_file.h"

namespace weft::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kFolded[] = "tests/exported/folded.onnx";
constexpr char kImages[] = "tests/exported/images.npy";
constexpr char kLabels[] = "tests/exported/labels.npy";
constexpr int64_t kAllSamples = 64;

Arguments Data() {
  return {"--data", absl::StrCat("x=", kImages), "--labels", kLabels, "--batch", "24"};
}

class Unfolding : public ::testing::Test {
 protected:
  Unfolding() { std::filesystem::remove(repaired_); }

  CommandResult Repair(const Arguments& more = {}) const {
    return RunCommand(Arguments{"check", kFolded, "--repair", "unfold-bn", "--repaired-out",
                                repaired_, "--no-shuffle"} +
                      Data() + more);
  }
  static CommandResult Train(const std::string& model, const Arguments& more) {
    return RunCommand(
        Arguments{"train", model, "--optimizer", "sgd", "--lr", "0.1", "--no-shuffle"} + Data() +
        more);
  }
  // What a value of a model is for all images.
  std::vector<double> ValueOf(const std::string& model, const std::string& value) const {
    const std::string folder = TestPath("values");
    std::filesystem::remove_all(folder);
    Arguments arguments = {"run",          model, "--input", absl::StrCat("x=", kImages),
                           "--output-dir", folder};
    if (!value.empty()) arguments = arguments + Arguments{"--output-name", value};
    const CommandResult ran = RunCommand(arguments);
    EXPECT_EQ(ran.exit_code, 0) << ran.err;
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      const auto file = ParseNpy(ReadTestFile(entry.path().string()), "values");
      EXPECT_TRUE(file.ok()) << file.status();
      return ToDoubles(*file).value();
    }
    ADD_FAILURE() << "no value";
    return {};
  }
  static std::vector<double> TensorIn(const std::string& model, const std::string& name) {
    const auto imported = ImportModelFile(RealFileSystem(), model);
    EXPECT_TRUE(imported.ok()) << imported.status();
    for (const Variable& variable : imported->graph.variables()) {
      if (variable.name == name) return ToDoubles(variable.initial).value();
    }
    ADD_FAILURE() << "no tensor " << name;
    return {};
  }

  const std::string repaired_ = TestPath("repaired.onnx");
};

TEST_F(Unfolding, TheRepairedFileComputesTheSame) {
  const CommandResult repaired = Repair();
  ASSERT_EQ(repaired.exit_code, 0) << repaired.err;
  EXPECT_THAT(repaired.err, AllOf(HasSubstr("repair BatchNormalization behind 2 convolutions, with "
                                            "the statistics of 64 samples in 3 batches\n"),
                                  HasSubstr("accuracy on them "), HasSubstr("loss on them ")));
  const std::vector<double> before = ValueOf(kFolded, "");
  const std::vector<double> after = ValueOf(repaired_, "");
  ASSERT_EQ(before.size(), 3u * kAllSamples);
  ASSERT_EQ(after.size(), before.size());
  for (size_t i = 0; i < before.size(); ++i) {
    EXPECT_NEAR(after[i], before[i], 1e-5 * std::max(1.0, std::abs(before[i])));
  }
}

// Of all elements of a channel, by the textbook's two passes.
TEST_F(Unfolding, TheStatisticsAreThoseOfTheData) {
  ASSERT_EQ(Repair().exit_code, 0);
  const auto imported = ImportModelFile(RealFileSystem(), kFolded);
  ASSERT_TRUE(imported.ok()) << imported.status();
  std::vector<std::string> outputs;
  for (const NodeId id : imported->graph.node_ids()) {
    const Node& node = imported->graph.node(id);
    if (node.op == "Conv") outputs.push_back(imported->graph.value(node.outputs[0]).name);
  }
  ASSERT_EQ(outputs.size(), 2u);
  const std::vector<std::string> modules = {"norm1", "norm2"};
  for (size_t k = 0; k < 2; ++k) {
    const std::vector<double> values = ValueOf(kFolded, outputs[k]);
    const std::vector<double> shift = TensorIn(repaired_, modules[k] + ".bias");
    const std::vector<double> variance = TensorIn(repaired_, modules[k] + ".running_var");
    const size_t channels = shift.size();
    const size_t plane = values.size() / (kAllSamples * channels);
    for (size_t c = 0; c < channels; ++c) {
      double sum = 0;
      double squares = 0;
      const auto each = [&](auto visit) {
        for (size_t n = 0; n < kAllSamples; ++n) {
          for (size_t i = 0; i < plane; ++i) visit(values[(n * channels + c) * plane + i]);
        }
      };
      each([&](double value) { sum += value; });
      const double mean = sum / static_cast<double>(kAllSamples * plane);
      each([&](double value) { squares += (value - mean) * (value - mean); });
      EXPECT_NEAR(shift[c], mean, 1e-5 * (1 + std::abs(mean)));
      const double expected = squares / static_cast<double>(kAllSamples * plane);
      EXPECT_NEAR(variance[c], expected, 1e-5 * (1 + expected));
    }
  }
}

TEST_F(Unfolding, ItTrainsWithTheStatisticsOfTheBatch) {
  const std::string trained = TestPath("trained.onnx");
  const CommandResult train =
      Train(kFolded, {"--repair", "unfold-bn", "--steps", "6", "-o", trained});
  ASSERT_EQ(train.exit_code, 0) << train.err;
  EXPECT_THAT(train.err, HasSubstr("repair BatchNormalization behind 2 convolutions"));
  ASSERT_EQ(Repair().exit_code, 0);
  for (const char* const name : {"norm1.weight", "norm1.bias", "norm1.running_mean",
                                 "norm1.running_var", "norm2.running_mean", "conv1.weight"}) {
    EXPECT_NE(TensorIn(trained, name), TensorIn(repaired_, name)) << name;
  }
  // The repaired file, trained, is the same job.
  const std::string second = TestPath("second.onnx");
  const CommandResult again =
      Train(repaired_, {"--train-mode", "*/unfolded_norm", "--steps", "6", "-o", second});
  ASSERT_EQ(again.exit_code, 0) << again.err;
  EXPECT_EQ(TensorIn(second, "norm1.running_var"), TensorIn(trained, "norm1.running_var"));
  EXPECT_EQ(TensorIn(second, "conv1.weight"), TensorIn(trained, "conv1.weight"));
}

TEST_F(Unfolding, APlanNeedsNoDataForIt) {
  const CommandResult planned = RunCommand({"plan", kFolded, "--repair", "unfold-bn", "--batch",
                                            "24", "--optimizer", "sgd", "--output", "json"});
  ASSERT_EQ(planned.exit_code, 0) << planned.err;
  const CommandResult trained =
      Train(kFolded, {"--repair", "unfold-bn", "--steps", "1", "--output", "json"});
  ASSERT_EQ(trained.exit_code, 0) << trained.err;
  const auto rank = nlohmann::json::parse(planned.out)["ranks"][0];
  const auto memory = nlohmann::json::parse(trained.out)["memory"][0];
  EXPECT_EQ(rank["variable_bytes"], memory["variable_bytes"]);
  EXPECT_EQ(rank["arena_bytes"], memory["arena_bytes"]);
}

// The model computes its loss, and its name says so: no scores of classes are its first output.
TEST_F(Unfolding, WhatIsMeasuredIsTheLossOfTheJob) {
  Graph graph;
  graph.opsets[""] = 17;
  GraphBuilder b(graph);
  const Dim samples = Dim::Symbol("N");
  const ValueId x =
      graph.AddInput("x", {ValueKind::kTensor, DType::kFloat32, SymbolicShape({samples, 1, 2, 2})});
  const ValueId labels =
      graph.AddInput("labels", {ValueKind::kTensor, DType::kInt64, SymbolicShape({samples})});
  const ValueId kernel =
      graph.AddVariable("conv1.weight", {ValueKind::kTensor, DType::kFloat32, Shape{2, 1, 1, 1}},
                        Tensor::Of<float>({2, 1, 1, 1}, std::vector<float>{0.5F, -1}), true);
  const ValueId bias =
      graph.AddVariable("conv1.weight_bias", {ValueKind::kTensor, DType::kFloat32, Shape{2}},
                        Tensor::Of<float>({2}, std::vector<float>{0.25F, 1}), true);
  const ValueId scores = b.Op("Flatten", {b.Op("Conv", {x, kernel, bias})});
  const ValueId loss = b.Op("SoftmaxCrossEntropyLoss", {scores, labels});
  b.Name(loss, "loss");
  graph.AddOutput(loss);
  ASSERT_TRUE(b.status().ok()) << b.status();
  WriteTestModel("own_loss.onnx", graph);
  std::vector<float> numbers;
  for (int i = 0; i < 32; ++i) numbers.push_back(static_cast<float>(i * 7 % 11) - 5);
  WriteTestFile(TestPath("x.npy"), ToNpy(Tensor::Of<float>({8, 1, 2, 2}, numbers)).value());
  const std::vector<int64_t> classes = {0, 1, 2, 3, 4, 5, 6, 7};
  WriteTestFile(TestPath("y.npy"), ToNpy(Tensor::Of<int64_t>({8}, classes)).value());
  const CommandResult train = RunCommand(
      {"train", TestPath("own_loss.onnx"), "--data", "x=" + TestPath("x.npy"), "--data",
       "labels=" + TestPath("y.npy"), "--batch", "4", "--repair", "unfold-bn", "--steps", "1"});
  ASSERT_EQ(train.exit_code, 0) << train.err;
  EXPECT_THAT(train.err, AllOf(HasSubstr("repair BatchNormalization behind 1 convolution, with the "
                                         "statistics of 8 samples in 2 batches\n"),
                               HasSubstr("loss on them "), Not(HasSubstr("accuracy on them "))));
}

TEST_F(Unfolding, Refusals) {
  const auto refusal = [](const CommandResult& result, int code) {
    EXPECT_EQ(result.exit_code, code) << result.err;
    return result.err;
  };
  EXPECT_THAT(refusal(Train(kFolded, {"--steps", "1", "--repair", "refold"}), 2),
              HasSubstr("'refold' is no repair; expected unfold-bn"));
  EXPECT_THAT(refusal(Train(kFolded, {"--steps", "1", "--repair", "unfold-bn=nothing"}), 3),
              HasSubstr("--repair unfold-bn: pattern 'nothing' fits no convolution"));
  EXPECT_THAT(
      refusal(Train("tests/exported/script.onnx", {"--steps", "1", "--repair", "unfold-bn"}), 3),
      HasSubstr("no convolution that an exporter has left a trace"));
  EXPECT_THAT(refusal(Train(kFolded, {"--steps", "1", "--repair", "unfold-bn", "--checkpoint",
                                      TestPath("saved")}),
                      2),
              HasSubstr("--repair goes without --checkpoint"));
  EXPECT_THAT(
      refusal(RunCommand({"check", kFolded, "--repair", "unfold-bn", "--repaired-out", repaired_}),
              2),
      HasSubstr("give --repair unfold-bn and --data"));
  EXPECT_THAT(
      refusal(RunCommand({"plan", kFolded, "--repair", "unfold-bn", "--annotate-plan", repaired_}),
              2),
      HasSubstr("--annotate-plan writes the model"));
}

}  // namespace
}  // namespace weft::testing
