// A state with an infinity or a NaN is never kept: neither as a model, nor as a checkpoint.
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "platform/file_system.h"
#include "tensor/tensor.h"
#include "tests/command_run.h"
#include "tools/console/exit_code.h"
#include "training/data/data_file.h"

namespace weft::testing {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;

constexpr int64_t kSamples = 32;

std::string WriteTensor(const std::string& name, const Tensor& tensor) {
  const std::string path = TestPath(name);
  WriteTestFile(path, ToNpy(tensor).value());
  return path;
}

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
  const std::string images_ = WriteTensor("images.npy", [] {
    Tensor images = Tensor::Zeros(DType::kFloat32, {kSamples, 28, 28}).value();
    for (int64_t i = 0; i < images.num_elements(); ++i) {
      images.mutable_data<float>()[i] = 3e17f * static_cast<float>(i * 7 % 23) / 23;
    }
    return images;
  }());
  const std::string labels_ =
      WriteTensor("labels.npy", Tensor::Zeros(DType::kFloat32, {kSamples, 10}).value());
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
    if (entry.starts_with('.')) continue;  // was being written: never read, and cleared away later
    EXPECT_EQ(entry, "step-00000000") << "a checkpoint of a state that is not finite";
  }
}

}  // namespace
}  // namespace weft::testing
