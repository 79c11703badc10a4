#include "training/scaling/batch_rule.h"

#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

using ::testing::HasSubstr;

constexpr BatchQuestion kQuestion = {
    .noise_scale = 500, .base_batch = 128, .rate_exponent = 1, .samples = 60000, .epochs = 20};

TEST(BatchRuleTest, TheBatchIsThePowerOfTwoNearestToTheNoiseScale) {
  BatchQuestion question = kQuestion;
  for (const auto& [scale, batch] : std::vector<std::pair<double, int64_t>>{
           {500, 512}, {90, 64}, {91, 128}, {0.01, 1}, {1.5, 2}, {1448, 1024}, {1449, 2048}}) {
    question.noise_scale = scale;
    const BatchProposal proposal = ProposeBatch(question);
    EXPECT_EQ(proposal.batch, batch) << scale;
    EXPECT_EQ(proposal.limit, "the noise scale");
  }
}

// Of equation 2.5 the largest rate follows from the base, and the chosen batch's from that.
TEST(BatchRuleTest, TheRateFollowsThePapersFormula) {
  const double base = 0.1;
  const double largest = base * (1 + 500.0 / 128);
  EXPECT_NEAR(base * ProposeBatch(kQuestion).rate_factor, largest / (1 + 500.0 / 512), 1e-12);
  BatchQuestion adaptive = kQuestion;
  adaptive.rate_exponent = RateExponent(/*is_linear=*/false);
  EXPECT_NEAR(ProposeBatch(adaptive).rate_factor, std::sqrt(ProposeBatch(kQuestion).rate_factor),
              1e-12);
}

TEST(BatchRuleTest, FarBelowTheNoiseScaleTheRateIsLinearInTheBatch) {
  BatchQuestion question = kQuestion;
  question.noise_scale = 1e9;
  question.max_batch = 1024;
  EXPECT_NEAR(ProposeBatch(question).rate_factor, 8, 1e-4);
  EXPECT_EQ(RateExponent(true), 1);
}

TEST(BatchRuleTest, LimitsAreNamed) {
  BatchQuestion question = kQuestion;
  question.max_batch = 100;
  EXPECT_EQ(ProposeBatch(question).batch, 64);
  EXPECT_EQ(ProposeBatch(question).limit, "the given maximum");
  question = kQuestion;
  question.samples = 1000;
  EXPECT_EQ(ProposeBatch(question).batch, 64);  // 125 would be 8 steps
  EXPECT_THAT(ProposeBatch(question).limit, HasSubstr("8 steps an epoch"));
  question = kQuestion;
  question.noise_scale = 2;
  question.min_batch = 6;
  EXPECT_EQ(ProposeBatch(question).batch, 6);
  EXPECT_THAT(ProposeBatch(question).limit, HasSubstr("micro-batches"));
}

TEST(BatchRuleTest, TheWarmUpIsATwentiethOfTheRunAndAnEpochAtMost) {
  BatchQuestion question = kQuestion;  // 118 steps an epoch, 2360 in all
  EXPECT_EQ(ProposeBatch(question).warmup, 118);
  question.epochs = 10;
  EXPECT_EQ(ProposeBatch(question).warmup, 59);
  question.epochs = 0;
  question.steps = 100;
  EXPECT_EQ(ProposeBatch(question).warmup, 5);
  question.steps = 1;  // a schedule needs a step behind it
  EXPECT_EQ(ProposeBatch(question).warmup, 0);
  question.steps = 100;
  question.noise_scale = 30;  // the rate falls
  EXPECT_LT(ProposeBatch(question).rate_factor, 1);
  EXPECT_EQ(ProposeBatch(question).warmup, 0);
}

TEST(BatchRuleTest, WhatDoesNotFitIntoMemoryHasTheRateOfItsOwnBatch) {
  const BatchProposal less = ProposalFor(kQuestion, 256, "memory");
  EXPECT_EQ(less.batch, 256);
  EXPECT_EQ(less.limit, "memory");
  EXPECT_NEAR(less.rate_factor, (1 + 500.0 / 128) / (1 + 500.0 / 256), 1e-12);
}

// 512 and 256 are too large: the third is the first that fits.
TEST(BatchRuleTest, TheBatchIsHalvedUntilItFits) {
  std::vector<int64_t> asked;
  const auto fits_128 = [&asked](int64_t batch) {
    asked.push_back(batch);
    return batch <= 128 ? absl::OkStatus() : absl::ResourceExhaustedError("too large");
  };
  const auto proposal = ProposeFittingBatch(kQuestion, fits_128);
  ASSERT_TRUE(proposal.ok()) << proposal.status();
  EXPECT_EQ(proposal->batch, 128);
  EXPECT_EQ(proposal->rate_factor, 1);  // that of the base batch
  EXPECT_THAT(proposal->limit, HasSubstr("memory"));
  EXPECT_EQ(asked, (std::vector<int64_t>{512, 256, 128}));
  const auto at_once = ProposeFittingBatch(kQuestion, [](int64_t) { return absl::OkStatus(); });
  ASSERT_TRUE(at_once.ok()) << at_once.status();
  EXPECT_EQ(at_once->batch, 512);
  EXPECT_EQ(at_once->limit, "the noise scale");
}

TEST(BatchRuleTest, HalvingEndsAtTheMicroBatchesAndOtherErrorsAreTold) {
  BatchQuestion question = kQuestion;
  question.min_batch = 100;
  const auto never = [](int64_t) { return absl::ResourceExhaustedError("too large"); };
  const auto proposal = ProposeFittingBatch(question, never);
  ASSERT_TRUE(proposal.ok()) << proposal.status();
  EXPECT_EQ(proposal->batch, 128);
  const auto broken = [](int64_t) { return absl::InvalidArgumentError("shapes do not fit"); };
  EXPECT_EQ(ProposeFittingBatch(question, broken).status(),
            absl::InvalidArgumentError("shapes do not fit"));
}

}  // namespace
}  // namespace weft
