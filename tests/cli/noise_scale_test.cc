// The noise scale of the gradient, and the batch that is chosen by it, as a user sees them.
#include <cmath>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tensor/tensor.h"
#include "tests/command_run.h"
#include "tools/console/exit_code.h"

namespace weft::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr int64_t kSamples = 512;
constexpr int64_t kPixels = 28 * 28;

// Images whose class is the brightest of ten stripes, with noise from a fixed sequence.
class NoiseScale : public ::testing::Test {
 protected:
  NoiseScale() {
    Tensor images = Tensor::Zeros(DType::kFloat32, {kSamples, 28, 28}).value();
    std::vector<int64_t> labels;
    uint32_t state = 1;
    for (int64_t n = 0; n < kSamples; ++n) {
      labels.push_back(n * 7 % 10);
      for (int64_t i = 0; i < kPixels; ++i) {
        state = state * 1664525u + 1013904223u;
        const float noise = static_cast<float>(state >> 8) / (1 << 24);
        const bool is_bright = i * 10 / kPixels == labels.back();
        images.mutable_data<float>()[n * kPixels + i] = noise * (is_bright ? 1 : 0.7f);
      }
    }
    images_ = WriteTestTensor("images.npy", images);
    labels_ = WriteTestTensor("labels.npy", Tensor::Of<int64_t>({kSamples}, labels));
    EXPECT_EQ(RunCommand({"example", "mlp", "-o", model_}).exit_code, 0);
  }

  CommandResult Train(std::vector<std::string> more) const {
    std::vector<std::string> arguments = {"train",    model_,  "--data", "x=" + images_,
                                          "--labels", labels_, "--lr",   "0.05"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return RunCommand(arguments);
  }

  const std::string model_ = TestPath("mlp.onnx");
  std::string images_;
  std::string labels_;
};

TEST_F(NoiseScale, IsReportedAndLeavesTheModelAsItIs) {
  const std::string plain = TestPath("plain.onnx"), measured = TestPath("measured.onnx");
  const std::string curve = TestPath("curve.csv");
  const std::vector<std::string> job = {"--batch", "64", "--micro-batches", "4", "--steps", "20"};
  std::vector<std::string> without = job, with = job;
  without.insert(without.end(), {"-o", plain});
  with.insert(with.end(), {"-o", measured, "--noise-scale", "5", "--metrics", curve});
  ASSERT_EQ(Train(without).exit_code, 0);
  const CommandResult text = Train(with);
  ASSERT_EQ(text.exit_code, 0) << text.err;
  EXPECT_THAT(text.out, AllOf(HasSubstr("noise scale "), HasSubstr("from 4 measurements")));
  EXPECT_EQ(ReadTestFile(plain), ReadTestFile(measured));
  const std::string rows = ReadTestFile(curve);
  EXPECT_THAT(rows, HasSubstr(",gradient_variance,gradient_square,noise_scale\n"));
  EXPECT_THAT(rows, HasSubstr(",,,\n1,"));  // step 0 has not measured
  with.insert(with.end(), {"--output", "json"});
  const CommandResult json = Train(with);
  EXPECT_THAT(json.out, AllOf(HasSubstr("\"noise_scale\""), HasSubstr("\"measurements\": 4")));
}

TEST_F(NoiseScale, ThatCannotBeMeasuredIsRefusedWithWhatToDo) {
  const CommandResult one = Train({"--batch", "64", "--steps", "2", "--noise-scale", "1"});
  EXPECT_EQ(one.exit_code, static_cast<int>(ExitCode::kPlan)) << one.err;
  EXPECT_THAT(one.err, HasSubstr("give --micro-batches 2 or more"));
  const CommandResult moved =
      Train({"--steps", "2", "--noise-scale", "1", "--rebalance", "--micro-batches", "4"});
  EXPECT_EQ(moved.exit_code, static_cast<int>(ExitCode::kUsage));
  EXPECT_THAT(moved.err, HasSubstr("--rebalance changes it"));
  const CommandResult bad = Train({"--steps", "2", "--batch", "auto:x"});
  EXPECT_EQ(bad.exit_code, static_cast<int>(ExitCode::kUsage));
  EXPECT_THAT(bad.err, HasSubstr("expected N, auto, auto:MAX or auto:MAX:BASE"));
}

// Before anything is measured, and with the exit code that a batch by number has.
TEST_F(NoiseScale, ModelsAndDataAreRefusedAsWithoutIt) {
  for (const char* const batch : {"64", "auto"}) {
    const CommandResult other = RunCommand({"train", model_, "--data", "other=" + images_,
                                            "--labels", labels_, "--batch", batch, "--steps", "2"});
    EXPECT_EQ(other.exit_code, static_cast<int>(ExitCode::kData)) << batch << ": " << other.err;
    EXPECT_THAT(other.err, Not(HasSubstr("their weights are thrown away")));
  }
}

// There is a way out that does not lead back here.
TEST_F(NoiseScale, OneMicroBatchIsToldOfABatchByNumber) {
  const CommandResult one = Train({"--batch", "auto", "--micro-batches", "1", "--steps", "2"});
  EXPECT_EQ(one.exit_code, static_cast<int>(ExitCode::kPlan)) << one.err;
  EXPECT_THAT(one.err,
              AllOf(HasSubstr("give --micro-batches 2 or more"), HasSubstr("or give --batch N")));
}

// Longer than the measurement, shorter than the run.
TEST_F(NoiseScale, ALongWarmUpIsNoHindrance) {
  const CommandResult run =
      Train({"--batch", "auto:32:64", "--steps", "160", "--schedule", "cosine", "--warmup", "150"});
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_THAT(run.err, HasSubstr("batch  noise scale "));
}

// A run that goes on has the batch of its record, and does not measure again.
TEST_F(NoiseScale, ChoosesABatchThatAResumedRunKeeps) {
  const std::string folder = TestPath("saved");
  const std::vector<std::string> job = {"--batch", "auto:32:64",         "--checkpoint",
                                        folder,    "--checkpoint-every", "5"};
  std::vector<std::string> first = job, second = job;
  first.insert(first.end(), {"--steps", "10"});
  const CommandResult begun = Train(first);
  ASSERT_EQ(begun.exit_code, 0) << begun.err;
  EXPECT_THAT(begun.err, AllOf(HasSubstr("their weights are thrown away"),
                               HasSubstr("batch  noise scale "), HasSubstr("limited by ")));
  second.insert(second.end(), {"--steps", "14", "--resume"});
  const CommandResult resumed = Train(second);
  EXPECT_EQ(resumed.exit_code, 0) << resumed.err;
  EXPECT_THAT(resumed.err, AllOf(HasSubstr("as the checkpoint has it"),
                                 Not(HasSubstr("their weights are thrown away"))));
}

}  // namespace
}  // namespace weft::testing
