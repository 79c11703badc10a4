// Adapters in the attention of an image transformer that is frozen otherwise, on CIFAR-10.
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/command_run.h"
#include "tests/corpora.h"
#include "tests/testing/model_weights.h"

namespace weft::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class FineTuningCifar : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto corpora = CorporaFolder();
    if (!corpora.has_value()) GTEST_SKIP() << "WEFT_CORPORA is not set";
    corpora_ = *corpora;
    model_ = corpora_ + "/models/cct2_op20/model.onnx";
  }

  // The file fixes a batch of one, so each micro-batch is one image.
  CommandResult Run(const std::string& command, const std::string& model, const std::string& images,
                    const std::vector<std::string>& more) const {
    const std::string file = corpora_ + "/cifar10-subset/" + images;
    std::vector<std::string> arguments = {
        command,           model,
        "--data",          "input=" + file,
        "--labels",        file,
        "--format",        "cifar10",
        "--batch",         "20",
        "--micro-batches", "20",
        "--normalize",     "input=0.4914,0.4822,0.4465/0.2470,0.2435,0.2616"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return RunCommand(arguments);
  }

  // Of 200 images that are not trained on.
  double Loss(const std::string& model) const {
    const CommandResult result =
        Run("eval", model, "test.bin", {"--metric", "loss", "--validation-split", "0.2"});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    double loss = 0;
    EXPECT_TRUE(absl::SimpleAtod(result.out.substr(result.out.find(' ') + 1), &loss)) << result.out;
    return loss;
  }

  std::string corpora_;
  std::string model_;
};

// Measured: 2.321 before, 2.113 after.
TEST_F(FineTuningCifar, OnlyTheWeightsOfAttentionChangeAndTheLossBecomesLess) {
  const std::string tuned = TestPath("tuned.onnx");
  const CommandResult result = Run("train", model_, "train.bin",
                                   {"--lora", "rank=8,alpha=16,match=*attn*", "--optimizer", "adam",
                                    "--lr", "0.005", "--steps", "40", "-o", tuned});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("16 parameters, 16.4 k numbers, with adapters of 8 weights"));
  EXPECT_THAT(
      ChangedWeights(model_, tuned),
      ElementsAre("onnx::MatMul_199", "onnx::MatMul_215", "onnx::MatMul_216", "onnx::MatMul_221",
                  "onnx::MatMul_224", "onnx::MatMul_240", "onnx::MatMul_241", "onnx::MatMul_246"));
  EXPECT_LT(Loss(tuned), Loss(model_) - 0.1);
}

}  // namespace
}  // namespace weft::testing
