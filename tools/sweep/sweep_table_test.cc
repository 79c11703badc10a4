#include "tools/sweep/sweep_table.h"

#include <limits>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

// Two rates: one trained, one failed.
class SweepTableTest : public ::testing::Test {
 protected:
  SweepTableTest() {
    sweep_.axes = {{"lr", "", {"0.1", "10"}}};
    for (const char* const value : {"0.1", "10"}) {
      SweepTrial trial;
      trial.values = {value};
      trial.text = std::string("lr ") + value;
      sweep_.trials.push_back(std::move(trial));
    }
    outcomes_.resize(2);
    outcomes_[0].end = TrialEnd::kTrained;
    outcomes_[0].steps = 100;
    outcomes_[0].samples = 3200;
    outcomes_[0].rungs = {2, 1.5, 1, 0.5};
    outcomes_[0].score = 0.5;
    outcomes_[0].loss = 0.25;
    outcomes_[0].seconds = 2.5;
    outcomes_[1].end = TrialEnd::kFailed;
    outcomes_[1].reason = "the loss is\nnan";
    outcomes_[1].steps = 3;
    outcomes_[1].samples = 96;
    outcomes_[1].score = std::numeric_limits<double>::infinity();
  }

  SweepTrials sweep_;
  SweepScore score_;
  std::vector<TrialOutcome> outcomes_;
};

TEST_F(SweepTableTest, Text) {
  EXPECT_EQ(SweepTableText({sweep_, score_, outcomes_, 0, {"model out.onnx"}}),
            R"(trial  lr   steps  samples  loss  seconds  end
1      0.1  100    3200     0.5   2.5      trained (best)
2      10   3      96       inf   0.0      failed: the loss is nan
best  trial 1: lr 0.1; loss 0.5
model out.onnx
)");
}

TEST_F(SweepTableTest, Json) {
  const auto report = SweepTableJson({sweep_, score_, outcomes_, 0, {"model out.onnx"}});
  EXPECT_EQ(report["best"], 1);
  EXPECT_EQ(report["score"]["of"], "training");
  EXPECT_EQ(report["trials"][0]["values"]["lr"], "0.1");
  EXPECT_EQ(report["trials"][0]["rungs"].size(), 4u);
  EXPECT_EQ(report["trials"][0]["end"], "trained");
  EXPECT_TRUE(report["trials"][1]["score"].is_null());
  EXPECT_TRUE(report["trials"][1]["last_loss"].is_null());
  EXPECT_EQ(report["files"][0], "model out.onnx");
}

TEST_F(SweepTableTest, OfEvaluationsWithoutABest) {
  score_ = {"accuracy", true, true};
  outcomes_[0].end = TrialEnd::kNotStarted;
  outcomes_[0].score.reset();
  const SweepResult result{sweep_, score_, outcomes_};
  EXPECT_THAT(SweepTableText(result), ::testing::HasSubstr("eval accuracy"));
  EXPECT_THAT(SweepTableText(result), ::testing::HasSubstr("not started"));
  EXPECT_TRUE(SweepTableJson(result)["best"].is_null());
}

}  // namespace
}  // namespace weft
