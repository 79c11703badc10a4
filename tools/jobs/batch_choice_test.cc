#include "tools/jobs/batch_choice.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

TEST(BatchChoiceTest, TheRecordKeepsItToTheBit) {
  const BatchChoice choice = {512, 2.0 / 3, 17, 489.123456789};
  FlagRecord flags = {{"--batch", "auto"}};
  RecordChoice(choice, flags);
  const auto read = RecordedChoice(flags);
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(read->batch, 512);
  EXPECT_EQ(read->rate_factor, choice.rate_factor);
  EXPECT_EQ(read->warmup, 17);
  EXPECT_EQ(read->noise_scale, choice.noise_scale);
  EXPECT_FALSE(RecordedChoice({{"--batch", "auto"}}).has_value());
}

TEST(BatchChoiceTest, AllRatesAreScaledAndTheLastOneStays) {
  TrainingSpec training;
  training.optimizer.learning_rate = 0.1;
  training.groups.learning_rates = {{"head/*", 0.01}};
  training.schedule.end = 0.5;  // of 0.1
  ApplyChoice({.batch = 512, .rate_factor = 4, .warmup = 30}, training);
  EXPECT_DOUBLE_EQ(training.optimizer.learning_rate, 0.4);
  EXPECT_DOUBLE_EQ(training.groups.learning_rates.at("head/*"), 0.04);
  EXPECT_DOUBLE_EQ(training.optimizer.learning_rate * training.schedule.end, 0.05);
  EXPECT_EQ(training.schedule.warmup, 30);
}

// A smaller batch may bring the rate below the last one.
TEST(BatchChoiceTest, TheLastRateIsNotAboveTheFirst) {
  TrainingSpec training;
  training.optimizer.learning_rate = 0.1;
  training.schedule.kind = "linear";
  training.schedule.total = 10;
  training.schedule.end = 0.5;
  ApplyChoice({.batch = 16, .rate_factor = 0.25}, training);
  EXPECT_EQ(training.schedule.end, 1);
  EXPECT_TRUE(ValidateRateSchedule(training.schedule).ok());
}

TEST(BatchChoiceTest, AGivenWarmUpStaysAndOneCycleHasItsOwn) {
  TrainingSpec training;
  training.schedule.warmup = 5;
  ApplyChoice({.batch = 512, .rate_factor = 4, .warmup = 30}, training);
  EXPECT_EQ(training.schedule.warmup, 5);
  TrainingSpec brief;
  brief.schedule.kind = "cosine";
  brief.schedule.total = 20;  // --schedule-steps
  ApplyChoice({.batch = 512, .rate_factor = 4, .warmup = 30}, brief);
  EXPECT_EQ(brief.schedule.warmup, 19);
  EXPECT_TRUE(ValidateRateSchedule(brief.schedule).ok());
  TrainingSpec cycle;
  cycle.schedule.kind = "one_cycle";
  ApplyChoice({.batch = 512, .rate_factor = 4, .warmup = 30}, cycle);
  EXPECT_EQ(cycle.schedule.warmup, 0);
}

TEST(BatchChoiceTest, TheFlagSaysLimitAndBase) {
  EXPECT_EQ(ParseAutoBatch("auto")->max, 0);
  EXPECT_EQ(ParseAutoBatch("auto")->base, 128);
  EXPECT_EQ(ParseAutoBatch("auto:1024")->max, 1024);
  EXPECT_EQ(ParseAutoBatch("auto:1024:32")->base, 32);
  for (const char* bad :
       {"", "auto:", "auto:0", "auto:1:2:3", "automatic", "auto:x", "auto:8:-1"}) {
    EXPECT_FALSE(ParseAutoBatch(bad).ok()) << bad;
  }
}

}  // namespace
}  // namespace weft
