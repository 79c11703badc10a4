// The small GPT of the corpora learns, and learns the same however it is spread.
#include <numeric>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/testing/character_data.h"
#include "tests/testing/training_run.h"

namespace weft::testing {
namespace {

constexpr int64_t kBatch = 64;

class TextTraining : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!CorporaFolder()) GTEST_SKIP() << "WEFT_CORPORA is not set: no model and no text";
    const std::string text = ReadCorpusText(*CorporaFolder());
    ASSERT_GT(text.size(), 1000000u);
    run_.model = *CorporaFolder() + "/training-models/gpt_char.onnx";
    run_.data = WriteCharacterData(text, kBatch * 50, ::testing::TempDir());
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
