// Tensors that exporters have merged, and files in training mode, on the command line.
#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "onnx_import/edit/inference_form.h"
#include "onnx_import/importer.h"
#include "onnx_import/testing/merged_models.h"
#include "platform/file_system.h"
#include "tensor/tensor.h"
#include "tests/command_run.h"
#include "tools/console/exit_code.h"
#include "training/data/data_file.h"

namespace weft::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr int kSamples = 4;
constexpr int kChannels = 3;
constexpr double kRate = 0.5;
constexpr double kMomentum = 0.75;
constexpr std::array<float, kSamples* kChannels> kX = {0.5f,   -1, 2, 1.5f, 0.25f, -2,
                                                       -0.75f, 3,  1, 0,    1,     -1};
constexpr std::array<int64_t, kSamples> kLabels = {0, 2, 1, 1};

using Channels = std::array<double, kChannels>;

// A BatchNormalization whose scale, bias and running statistics are two tensors in the file.
class MergedNormalization : public ::testing::Test {
 protected:
  MergedNormalization() {
    const std::vector<float> x(kX.begin(), kX.end());
    const std::vector<int64_t> labels(kLabels.begin(), kLabels.end());
    WriteTestFile(TestPath("x.npy"), ToNpy(Tensor::Of<float>({kSamples, kChannels}, x)).value());
    WriteTestFile(TestPath("labels.npy"), ToNpy(Tensor::Of<int64_t>({kSamples}, labels)).value());
  }

  // Each step is on the whole of the data.
  CommandResult Train(const std::vector<std::string>& flags) {
    std::vector<std::string> arguments = {"train",
                                          model_,
                                          "--data",
                                          "x=" + TestPath("x.npy"),
                                          "--labels",
                                          TestPath("labels.npy"),
                                          "--lr",
                                          "0.5",
                                          "--batch",
                                          "4",
                                          "--micro-batches",
                                          "1",
                                          "-o",
                                          out_};
    arguments.insert(arguments.end(), flags.begin(), flags.end());
    return RunCommand(arguments);
  }

  static std::vector<float> Values(const std::string& path, const std::string& name) {
    const auto model = ImportModelFile(RealFileSystem(), path);
    EXPECT_TRUE(model.ok()) << model.status();
    const Variable* variable = model->graph.FindVariable(name);
    EXPECT_NE(variable, nullptr) << name;
    if (variable == nullptr) return std::vector<float>(kChannels);
    const auto values = variable->initial.data<float>();
    return {values.begin(), values.end()};
  }

  static void ExpectNear(const std::vector<float>& values, const Channels& expected) {
    for (int c = 0; c < kChannels; ++c) EXPECT_NEAR(values[c], expected[c], 1e-5) << c;
  }

  // Against the formulas of ONNX and of the cross entropy's gradient, in double.
  void ExpectOneStep(const std::string& path) {
    Channels mean{}, variance{};
    for (int n = 0; n < kSamples; ++n) {
      for (int c = 0; c < kChannels; ++c) mean[c] += kX[n * kChannels + c] / kSamples;
    }
    for (int n = 0; n < kSamples; ++n) {
      for (int c = 0; c < kChannels; ++c) {
        variance[c] += std::pow(kX[n * kChannels + c] - mean[c], 2) / kSamples;
      }
    }
    Channels scale = {1, 1, 1}, bias{}, running_mean{}, running_variance{};
    for (int n = 0; n < kSamples; ++n) {
      Channels normal{}, power{};
      double sum = 0;
      for (int c = 0; c < kChannels; ++c) {
        normal[c] = (kX[n * kChannels + c] - mean[c]) / std::sqrt(variance[c] + 1e-5);
        power[c] = std::exp(normal[c]);
        sum += power[c];
      }
      for (int c = 0; c < kChannels; ++c) {
        const double gradient = (power[c] / sum - (kLabels[n] == c ? 1 : 0)) / kSamples;
        scale[c] -= kRate * gradient * normal[c];
        bias[c] -= kRate * gradient;
      }
    }
    for (int c = 0; c < kChannels; ++c) {
      running_mean[c] = (1 - kMomentum) * mean[c];
      running_variance[c] = kMomentum + (1 - kMomentum) * variance[c];
    }
    ExpectNear(Values(path, "bn_weight"), scale);
    ExpectNear(Values(path, "bn_bias"), bias);
    ExpectNear(Values(path, "bn_running_mean"), running_mean);
    ExpectNear(Values(path, "bn_running_var"), running_variance);
  }

  void Write(bool training_mode) { WriteTestFile(model_, MergedNormalizationBytes(training_mode)); }

  static TrainingModeNodes ModeOf(const std::string& path) {
    const auto file = ModelFile::Load(RealFileSystem(), path);
    EXPECT_TRUE(file.ok()) << file.status();
    return TrainingModeNodesOf(*file);
  }

  const std::string model_ = TestPath("norm.onnx");
  const std::string out_ = TestPath("trained.onnx");
};

TEST_F(MergedNormalization, StatisticsOfTheDataAreWrittenBesideScaleAndBias) {
  Write(/*training_mode=*/false);
  const CommandResult result = Train({"--steps", "1", "--train-mode", "*"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("ties   untied 2 tensors that the exporter had merged (running "
                                    "statistics)\n"));
  ExpectOneStep(out_);
}

TEST_F(MergedNormalization, SoIsAFileInTrainingModeWhichTellsTheWayOut) {
  Write(/*training_mode=*/true);
  const CommandResult result = Train({"--steps", "1"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.err,
              HasSubstr("note   the file is in training mode: 1 BatchNormalization; --export-mode "
                        "inference writes it for inference\n"));
  ExpectOneStep(out_);
  EXPECT_TRUE(ModeOf(out_).any());
  const CommandResult inference = Train({"--steps", "1", "--export-mode", "inference"});
  ASSERT_EQ(inference.exit_code, 0) << inference.err;
  EXPECT_THAT(inference.err, Not(HasSubstr("training mode")));
  ExpectOneStep(out_);
  EXPECT_FALSE(ModeOf(out_).any());
}

TEST_F(MergedNormalization, AnUnknownExportModeIsRefused) {
  Write(/*training_mode=*/true);
  const CommandResult result = Train({"--steps", "1", "--export-mode", "test"});
  EXPECT_EQ(result.exit_code, static_cast<int>(ExitCode::kUsage));
  EXPECT_THAT(result.err, HasSubstr("'test' is no mode; expected inference or as-imported"));
}

TEST_F(MergedNormalization, CheckpointsGoOnAndAreExported) {
  Write(/*training_mode=*/true);
  const CommandResult straight = Train({"--steps", "4"});
  ASSERT_EQ(straight.exit_code, 0) << straight.err;
  const std::string expected = ReadTestFile(out_);
  const std::string folder = TestPath("saved");
  ASSERT_EQ(Train({"--steps", "2", "--checkpoint", folder}).exit_code, 0);
  const CommandResult resumed = Train({"--steps", "4", "--checkpoint", folder, "--resume"});
  ASSERT_EQ(resumed.exit_code, 0) << resumed.err;
  EXPECT_THAT(resumed.err, HasSubstr("resume step 2"));
  EXPECT_EQ(ReadTestFile(out_), expected);
  const std::string exported = TestPath("exported.onnx");
  const CommandResult result = RunCommand({"ckpt", "export", folder, model_, "-o", exported});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.err, Not(HasSubstr("is not the file that was trained from")));
  EXPECT_EQ(ReadTestFile(exported), expected);
  const CommandResult other =
      Train({"--steps", "6", "--checkpoint", folder, "--resume", "--untie", "none"});
  EXPECT_EQ(other.exit_code, static_cast<int>(ExitCode::kUsage));
  EXPECT_THAT(other.err, HasSubstr("--untie"));
}

TEST_F(MergedNormalization, InspectAndCheckSayIt) {
  Write(/*training_mode=*/false);
  const CommandResult inspected = RunCommand({"inspect", model_});
  EXPECT_THAT(
      inspected.out,
      AllOf(HasSubstr("untied: 2 new tensors, each a copy of a shared one\n"),
            HasSubstr("  bn_running_mean, a copy of bn_bias, for y (BatchNormalization)\n")));
  const auto json = nlohmann::json::parse(RunCommand({"inspect", model_, "--output", "json"}).out);
  EXPECT_EQ(json["ties"]["untied"].size(), 2u);
  EXPECT_THAT(RunCommand({"check", model_, "--trainable"}).out,
              HasSubstr("note: untied 2 tensors"));
}

// ---- Copies.

constexpr int kRows = 32;
constexpr int kColumns = 40;
constexpr char kTable[] = "wte";
constexpr char kHead[] = "onnx::MatMul_9";

class CopiedHead : public ::testing::Test {
 protected:
  CopiedHead() {
    WriteTestFile(model_, CopiedHeadBytes());
    WriteTestFile(TestPath("ids.npy"), ToNpy(Tensor::Of<int64_t>({4}, {1, 5, 9, 31})).value());
    WriteTestFile(TestPath("next.npy"), ToNpy(Tensor::Of<int64_t>({4}, {5, 9, 31, 1})).value());
  }

  // One step of sgd, with rate 1.
  CommandResult Train(const std::vector<std::string>& flags) {
    std::vector<std::string> arguments = {"train",    model_,
                                          "--data",   "ids=" + TestPath("ids.npy"),
                                          "--labels", TestPath("next.npy"),
                                          "--lr",     "1",
                                          "--batch",  "4",
                                          "--steps",  "1",
                                          "-o",       out_};
    arguments.insert(arguments.end(), flags.begin(), flags.end());
    return RunCommand(arguments);
  }

  // [rows, columns], as a list.
  static std::vector<float> Values(const std::string& path, const std::string& name) {
    const auto model = ImportModelFile(RealFileSystem(), path);
    EXPECT_TRUE(model.ok()) << model.status();
    const Variable* variable = model->graph.FindVariable(name);
    if (variable == nullptr) return {};
    const auto values = variable->initial.data<float>();
    return {values.begin(), values.end()};
  }

  const std::string model_ = TestPath("head.onnx");
  const std::string out_ = TestPath("trained.onnx");
};

TEST_F(CopiedHead, IsOneParameterUnlessItIsUntied) {
  const CommandResult result = Train({});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("ties   tied copies of one parameter: onnx::MatMul_9 reads wte "
                                    "transposed\n"));
  EXPECT_TRUE(Values(out_, kHead).empty());
  const CommandResult apart = Train({"--untie", kHead});
  ASSERT_EQ(apart.exit_code, 0) << apart.err;
  EXPECT_THAT(apart.err,
              HasSubstr("note   wte and onnx::MatMul_9 hold the same numbers, transposed; --tie "
                        "auto trains them as one\n"));
  EXPECT_FALSE(Values(out_, kHead).empty());
}

// A tied tensor moves by the sum of the gradients that both have apart.
TEST_F(CopiedHead, TrainsAsOneTensorWhenTied) {
  ASSERT_EQ(Train({"--untie", kHead}).exit_code, 0);
  const std::vector<float> before = Values(model_, kTable);
  const std::vector<float> table = Values(out_, kTable);
  const std::vector<float> head = Values(out_, kHead);
  ASSERT_EQ(head.size(), before.size());
  const CommandResult tied = Train({"--tie", "wte=onnx::MatMul_9"});
  ASSERT_EQ(tied.exit_code, 0) << tied.err;
  EXPECT_THAT(tied.err, HasSubstr("ties   tied by --tie: onnx::MatMul_9 reads wte transposed\n"));
  EXPECT_TRUE(Values(out_, kHead).empty());
  const std::vector<float> both = Values(out_, kTable);
  ASSERT_EQ(both.size(), before.size());
  double moved = 0;
  for (int row = 0; row < kRows; ++row) {
    for (int column = 0; column < kColumns; ++column) {
      const int i = row * kColumns + column;
      const float apart = table[i] + head[column * kRows + row] - before[i];
      EXPECT_NEAR(both[i], apart, 1e-6) << row << ", " << column;
      moved = std::max(moved, std::abs(static_cast<double>(both[i] - before[i])));
    }
  }
  EXPECT_GT(moved, 1e-3);
}

TEST_F(CopiedHead, WrongTiesAreRefused) {
  const CommandResult result = Train({"--tie", "wte=haed"});
  EXPECT_EQ(result.exit_code, static_cast<int>(ExitCode::kUsage));
  EXPECT_THAT(result.err, HasSubstr("--tie wte=haed: the model has no float tensor 'haed'"));
  EXPECT_EQ(Train({"--untie", "wet"}).exit_code, static_cast<int>(ExitCode::kUsage));
}

}  // namespace
}  // namespace weft::testing
