#include "tools/reports/training_report.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class TrainingOutcomeTest : public ::testing::Test {
 protected:
  TrainingOutcomeTest() {
    result_.last_loss = 0.25;
    result_.steps = 30;
    outcome_.first_step = 10;
    outcome_.seconds = 4;
    outcome_.samples_per_second = 512.4;
  }

  TrainResult result_;
  TrainingOutcome outcome_{.result = result_};
};

TEST_F(TrainingOutcomeTest, SaysLossTimeAndSpeedInSamples) {
  EXPECT_EQ(TrainingOutcomeText(outcome_), "loss 0.25 after 30 steps in 4.0 s, 512 samples/s\n");
}

TEST_F(TrainingOutcomeTest, ARunThatHadNothingToDoSaysSo) {
  outcome_.first_step = 30;
  outcome_.samples_per_second = 0;
  EXPECT_EQ(TrainingOutcomeText(outcome_), "no step was left to train after step 30\n");
}

TEST_F(TrainingOutcomeTest, WhatEndedItAndWhatWasSkippedIsSaid) {
  result_.end = "accuracy>=0.9";
  result_.loss_scale = 1024;
  result_.skipped_steps = 3;
  EXPECT_THAT(TrainingOutcomeText(outcome_),
              HasSubstr("loss scale 1024; 3 of 30 steps skipped, their gradients overflowed\n"
                        "ended early, accuracy>=0.9\n"));
}

TEST_F(TrainingOutcomeTest, BytesArePerStep) {
  outcome_.traffic = {{RankId(1), 20, 4000, 4000, 200, {}}};
  EXPECT_THAT(TrainingOutcomeText(outcome_),
              HasSubstr("rank 1 sent 200 bytes per step, predicted 200; headers 10\n"));
  EXPECT_EQ(TrainingOutcomeJson(outcome_)["sent"][0]["bytes"], 4000);
}

TEST_F(TrainingOutcomeTest, MemoryIsComparedWithWhatWasRequired) {
  WorkerMemory worker;
  worker.requirement.variable_bytes = int64_t{4} << 20;
  outcome_.needed = {worker};
  result_.memory.resize(1);
  result_.memory[0].peak_bytes = int64_t{3} << 20;
  EXPECT_EQ(MemoryPeaksText(outcome_), "memory worker:0 peak 3 MiB, 75 % of the 4 MiB predicted\n");
  EXPECT_EQ(TrainingOutcomeJson(outcome_)["memory"][0]["peak_bytes"], 3 << 20);
}

TEST_F(TrainingOutcomeTest, FilesAreNamedWithControlCharactersEscaped) {
  outcome_.model = "out\x1b[31m.onnx";
  EXPECT_THAT(TrainingFilesText(outcome_), Not(HasSubstr("\x1b")));
  EXPECT_THAT(TrainingFilesText(outcome_), HasSubstr("model out"));
}

TEST_F(TrainingOutcomeTest, JsonHasSharesOnlyWhereTheyMoved) {
  EXPECT_FALSE(TrainingOutcomeJson(outcome_).contains("shares"));
  outcome_.shares = {6, 2};
  EXPECT_EQ(TrainingOutcomeJson(outcome_)["shares"], nlohmann::ordered_json({6, 2}));
}

}  // namespace
}  // namespace weft
