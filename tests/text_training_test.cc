// The small GPT of the corpora learns, and learns the same however it is spread.
#include <algorithm>
#include <fstream>
#include <iterator>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "platform/file_system.h"
#include "tensor/tensor.h"
#include "tests/testing/training_run.h"
#include "training/data_file.h"

namespace weft::testing {
namespace {

constexpr int64_t kBatch = 64;
constexpr int64_t kLength = 64;

// Row r of the data begins at character 64 r; the label is the next character.
void WriteText(const std::string& text, int64_t rows, int64_t offset, const std::string& path) {
  const std::set<char> characters(text.begin(), text.end());
  const std::vector<char> sorted(characters.begin(), characters.end());
  std::vector<int64_t> ids;
  for (int64_t i = 0; i < rows * kLength; ++i) {
    const auto at = std::lower_bound(sorted.begin(), sorted.end(), text[i + offset]);
    ids.push_back(at - sorted.begin());
  }
  const auto npy = ToNpy(Tensor::Of<int64_t>(Shape{rows, kLength}, ids));
  ASSERT_TRUE(npy.ok()) << npy.status();
  std::ofstream(path, std::ios::binary) << *npy;
}

class TextTraining : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!CorporaFolder()) GTEST_SKIP() << "WEFT_CORPORA is not set: no model and no text";
    std::ifstream file(*CorporaFolder() + "/text-iris/tinyshakespeare.txt");
    const std::string text((std::istreambuf_iterator<char>(file)),
                           std::istreambuf_iterator<char>());
    ASSERT_GT(text.size(), 1000000u);
    const std::string folder = ::testing::TempDir();
    WriteText(text, kBatch * 50, 0, folder + "/text-x.npy");
    WriteText(text, kBatch * 50, 1, folder + "/text-labels.npy");
    run_.model = *CorporaFolder() + "/training-models/gpt_char.onnx";
    run_.data = {{"idx", folder + "/text-x.npy"}, {"labels", folder + "/text-labels.npy"}};
    run_.batch = kBatch;
    run_.optimizer.kind = "sgd";
    run_.optimizer.learning_rate = 0.1;
  }

  std::vector<double> Losses() {
    auto outcome = Run(run_);
    EXPECT_TRUE(outcome.ok()) << outcome.status();
    return outcome.ok() ? outcome->losses : std::vector<double>();
  }
  // testing::Test has a Run of its own.
  absl::StatusOr<TrainingOutcome> Run(const TrainingRun& run) { return weft::testing::Run(run); }

  TrainingRun run_;
};

TEST_F(TextTraining, LossFallsByAFifthInFiftySteps) {
  run_.steps = 50;
  const std::vector<double> losses = Losses();
  ASSERT_EQ(losses.size(), 50u);
  const double last = std::accumulate(losses.end() - 5, losses.end(), 0.0) / 5;
  std::cout << "first " << losses.front() << ", mean of the last five " << last << "\n";
  EXPECT_LE(last, 0.8 * losses.front());
}

TEST_F(TextTraining, TensorAndPipelineLossesEqualOneProcess) {
  run_.steps = 10;
  const std::vector<double> single = Losses();
  ASSERT_EQ(single.size(), 10u);
  run_.workers = 2;
  run_.plan.mesh = {1, 2, 1};
  // Megatron's split: first weights by columns (three blocks: query, key, value), second by rows.
  run_.plan.tensor_shardings = {{"*.attn.qkv.weight", AxisSharding::Split(1, 3)},
                                {"*.attn.qkv.bias", AxisSharding::Split(0, 3)},
                                {"*.attn.proj.weight", AxisSharding::Split(0)},
                                {"*.mlp.fc.weight", AxisSharding::Split(1)},
                                {"*.mlp.fc.bias", AxisSharding::Split(0)},
                                {"*.mlp.proj.weight", AxisSharding::Split(0)}};
  EXPECT_LE(LargestRelativeGap(Losses(), single), 1e-5) << "tp=2";
  run_.plan = Plan();
  run_.plan.mesh = {1, 1, 2};
  run_.plan.micro_batches = 2;
  EXPECT_LE(LargestRelativeGap(Losses(), single), 1e-5) << "pp=2";
  run_.plan.mesh = {2, 1, 2};
  run_.plan.micro_batches = 4;
  run_.workers = 4;
  EXPECT_LE(LargestRelativeGap(Losses(), single), 1e-5) << "dp=2 pp=2";
}

}  // namespace
}  // namespace weft::testing
