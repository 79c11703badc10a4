// A state with an infinity or a NaN is never kept: neither as a model, nor as a checkpoint.
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "graph/graph_builder.h"
#include "gtest/gtest.h"
#include "onnx_import/importer.h"
#include "platform/file_system.h"
#include "tensor/tensor.h"
#include "tests/command_run.h"
#include "tools/console/exit_code.h"

namespace weft::testing {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;

constexpr int64_t kSamples = 32;

// Inputs of 3e17: the loss is about 1e35 and a gradient 1e34, which floats can hold; a step of 9e5
// times that, near the longest that is allowed, they cannot.
class Overflow : public ::testing::Test {
 protected:
  Overflow() {
    EXPECT_EQ(RunCommand({"example", "mlp", "-o", model_}).exit_code, 0);
    WriteTestFile(output_, kBefore);
  }

  CommandResult Train(std::vector<std::string> more) const {
    std::vector<std::string> arguments = {
        "train", model_, "--data",  "x=" + images_, "--labels", labels_, "--loss",      "mse",
        "--lr",  "9e5",  "--batch", "16",           "-o",       output_, "--no-shuffle"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return RunCommand(arguments);
  }
  void ExpectNothingKept(const CommandResult& result) const {
    EXPECT_EQ(result.exit_code, static_cast<int>(ExitCode::kNumerics)) << result.err;
    EXPECT_THAT(result.err, AnyOf(HasSubstr("has become "), HasSubstr("loss is ")));
    EXPECT_EQ(ReadTestFile(output_), kBefore);
  }

  static constexpr char kBefore[] = "what was there before";
  const std::string model_ = TestPath("mlp.onnx");
  const std::string output_ = TestPath("trained.onnx");
  const std::string images_ = WriteTestTensor("images.npy", [] {
    Tensor images = Tensor::Zeros(DType::kFloat32, {kSamples, 28, 28}).value();
    for (int64_t i = 0; i < images.num_elements(); ++i) {
      images.mutable_data<float>()[i] = 3e17f * static_cast<float>(i * 7 % 23) / 23;
    }
    return images;
  }());
  const std::string labels_ =
      WriteTestTensor("labels.npy", Tensor::Zeros(DType::kFloat32, {kSamples, 10}).value());
};

TEST_F(Overflow, OfTheLastStepEndsWithItsExitCodeAndWritesNoModel) {
  for (const std::string optimizer : {"sgd", "momentum"}) {
    const CommandResult result = Train({"--optimizer", optimizer, "--steps", "1"});
    ExpectNothingKept(result);
    EXPECT_THAT(result.err, HasSubstr("after step 1: variable '")) << optimizer;
    EXPECT_THAT(result.err, HasSubstr("though the loss was finite"));
  }
}

TEST_F(Overflow, OfAnEarlierStepEndsTheRun) {
  ExpectNothingKept(Train({"--optimizer", "adam", "--steps", "50"}));
}

TEST_F(Overflow, EndsAStrictRunToo) {
  ExpectNothingKept(Train({"--optimizer", "sgd", "--steps", "1", "--strict"}));
}

// The first state that could be saved is not finite.
TEST_F(Overflow, IsKeptByNoCheckpoint) {
  const std::string folder = TestPath("saved");
  const CommandResult result = Train(
      {"--optimizer", "sgd", "--steps", "2", "--checkpoint", folder, "--checkpoint-every", "1"});
  ExpectNothingKept(result);
  const auto entries = RealFileSystem().ListDirectory(folder);
  if (!entries.ok()) return;
  for (const std::string& entry : *entries) {
    if (!entry.starts_with("step-")) continue;  // also what was being written: never read
    EXPECT_EQ(entry, "step-00000000") << "a checkpoint of a state that is not finite";
  }
}

// Scores x w + mask, with a causal mask of minus infinity, as attention has them.
std::string MaskedModel(const Tensor& mask) {
  Graph graph;
  graph.opsets[""] = 17;
  GraphBuilder builder(graph);
  const ValueType type{ValueKind::kTensor, DType::kFloat32, Shape{4, 4}};
  const ValueId x = graph.AddInput(
      "x", {ValueKind::kTensor, DType::kFloat32, SymbolicShape({Dim::Symbol("N"), 4, 4})});
  std::vector<float> weights;
  for (int i = 0; i < 16; ++i) weights.push_back(0.1f * static_cast<float>(i * 5 % 16));
  const ValueId w = graph.AddVariable("w", type, Tensor::Of<float>(Shape{4, 4}, weights), true);
  const ValueId hides = graph.AddVariable("mask", type, mask, true);
  const ValueId scores = builder.Op("Add", {builder.Op("MatMul", {x, w}), hides});
  const ValueId y = builder.Op("Softmax", {scores}, {{"axis", int64_t{-1}}});
  builder.Name(y, "y");
  graph.AddOutput(y);
  EXPECT_TRUE(builder.status().ok()) << builder.status();
  return WriteTestModel("masked.onnx", graph);
}

// An update would add 0 times minus infinity to the mask: the file held NaN after one step.
TEST(Mask, OfMinusInfinityStaysWhatItIs) {
  constexpr float kLow = -std::numeric_limits<float>::infinity();
  const Tensor mask = Tensor::Of<float>(
      Shape{4, 4},
      std::vector<float>{0, kLow, kLow, kLow, 0, 0, kLow, kLow, 0, 0, 0, kLow, 0, 0, 0, 0});
  const std::string model = MaskedModel(mask), output = TestPath("trained_masked.onnx");
  Tensor samples = Tensor::Zeros(DType::kFloat32, {kSamples, 4, 4}).value();
  for (int64_t i = 0; i < samples.num_elements(); ++i) {
    samples.mutable_data<float>()[i] = static_cast<float>(i * 7 % 23) / 23;
  }
  const std::string x = WriteTestTensor("scores.npy", samples);
  const CommandResult result = RunCommand(
      {"train",       model,   "--data",         "x=" + x, "--labels", x,      "--loss",  "mse",
       "--optimizer", "adamw", "--weight-decay", "0.1",    "--lr",     "0.01", "--batch", "16",
       "--steps",     "4",     "--trainable",    "*",      "-o",       output});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("trains 1 of 2 tensors (16 numbers); not: 1 table or mask; "));
  const auto trained = ImportModelFile(RealFileSystem(), output);
  ASSERT_TRUE(trained.ok()) << trained.status();
  EXPECT_TRUE(BitwiseEqual(trained->graph.FindVariable("mask")->initial, mask));
  const Tensor& weights = trained->graph.FindVariable("w")->initial;
  for (const float number : weights.data<float>()) EXPECT_TRUE(std::isfinite(number));
}

}  // namespace
}  // namespace weft::testing
