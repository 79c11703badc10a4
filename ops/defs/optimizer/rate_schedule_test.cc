// Factors of ten steps against torch.optim.lr_scheduler (torch 1.13): the schedulers named, over an
// SGD optimizer with learning rate 1, `get_last_lr()[0]` before each step.
#include "ops/defs/optimizer/rate_schedule.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace weft {
namespace {

void ExpectFactors(const RateSchedule& schedule, const std::vector<double>& expected) {
  ASSERT_TRUE(ValidateRateSchedule(schedule).ok()) << ValidateRateSchedule(schedule);
  for (size_t step = 0; step < expected.size(); ++step) {
    EXPECT_NEAR(RateFactor(schedule, static_cast<int64_t>(step)), expected[step], 1e-12) << step;
  }
}

TEST(RateScheduleTest, StepLR) {
  ExpectFactors({.kind = "step", .every = 3, .gamma = 0.5},
                {1.0, 1.0, 1.0, 0.5, 0.5, 0.5, 0.25, 0.25, 0.25, 0.125});
}

TEST(RateScheduleTest, ExponentialLR) {
  ExpectFactors(
      {.kind = "exponential", .gamma = 0.9},
      {1.0, 0.9, 0.81, 0.7290000000000001, 0.6561000000000001, 0.5904900000000002,
       0.5314410000000002, 0.47829690000000014, 0.43046721000000016, 0.38742048900000015});
}

TEST(RateScheduleTest, LinearLR) {
  ExpectFactors({.kind = "linear", .total = 8, .end = 0.25},
                {1.0, 0.90625, 0.8125, 0.71875, 0.625, 0.53125, 0.4375, 0.34375, 0.25, 0.25});
}

TEST(RateScheduleTest, CosineAnnealingLR) {
  ExpectFactors(
      {.kind = "cosine", .total = 10, .end = 0.125},
      {1.0, 0.9785872258791297, 0.9164449350390395, 0.819656047877957, 0.6976949350390395, 0.5625,
       0.42730506496096055, 0.30534395212204307, 0.20855506496096055, 0.14641277412087034});
}

TEST(RateScheduleTest, PolynomialLR) {
  ExpectFactors({.kind = "polynomial", .total = 8, .power = 2},
                {1.0, 0.765625, 0.5625, 0.39062500000000006, 0.2500000000000001,
                 0.14062500000000006, 0.06250000000000003, 0.01562500000000001, 0.0, 0.0});
}

TEST(RateScheduleTest, OneCycleLR) {
  ExpectFactors(
      {.kind = "one_cycle", .total = 10},
      {0.04000000000000004, 0.52, 1.0, 0.9504846320134737, 0.8117456539497631, 0.6112620219362893,
       0.38874197806371075, 0.18825834605023697, 0.04951936798652629, 4e-06});
}

TEST(RateScheduleTest, AWarmUpComesBeforeAnyOther) {
  ExpectFactors({.kind = "step", .warmup = 4, .every = 2, .gamma = 0.5},
                {0.25, 0.5, 0.75, 1, 1, 1, 0.5, 0.5, 0.25});
}

TEST(RateScheduleTest, TheLastFactorStays) {
  const RateSchedule schedule{.kind = "cosine", .total = 10, .end = 0.25};
  EXPECT_DOUBLE_EQ(RateFactor(schedule, 10), 0.25);
  EXPECT_DOUBLE_EQ(RateFactor(schedule, 1000), 0.25);
}

TEST(RateScheduleTest, AttributesKeepTheNumbersAsWritten) {
  const RateSchedule schedule{.kind = "polynomial",
                              .warmup = 3,
                              .total = 70,
                              .every = 5,
                              .gamma = 0.97,
                              .power = 0.9,
                              .end = 0.01};
  const RateSchedule again = RateScheduleOf(ToAttributes(schedule));
  for (const int64_t step : {0, 3, 17, 69}) {
    EXPECT_EQ(RateFactor(again, step), RateFactor(schedule, step)) << step;
  }
}

TEST(RateScheduleTest, WhatIsOutOfRangeIsNamed) {
  const auto message = [](const RateSchedule& schedule) {
    return std::string(ValidateRateSchedule(schedule).message());
  };
  EXPECT_EQ(message({.kind = "cosin"}),
            "no schedule 'cosin'; there are: constant, cosine, exponential, linear, one_cycle, "
            "polynomial, step");
  EXPECT_EQ(message({.kind = "cosine", .warmup = 20, .total = 20}),
            "a cosine schedule of 20 steps, warm-up of 20 included, has none left; it needs the "
            "number of steps of the whole run (--schedule-steps)");
  EXPECT_EQ(message({.kind = "step", .every = 0}),
            "the schedule's interval is 0, expected 1 or more steps");
  EXPECT_EQ(message({.kind = "exponential", .gamma = 1.5}),
            "the schedule's gamma is 1.5, expected a number in (0, 1]");
}

}  // namespace
}  // namespace weft
