#include "distributed/recovery/step_decision.h"

#include <random>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

StepProgress At(int64_t steps, StepState state, bool alone = true) {
  return {.runs = 4, .steps = steps, .state = state, .finishes_alone = alone};
}

TEST(StepDecisionTest, WhatOneHasDoneTheOthersFinish) {
  const auto decision = DecideStep({At(7, StepState::kReady), At(8, StepState::kDone),
                                    At(8, StepState::kUnchanged), At(7, StepState::kReady)},
                                   4);
  ASSERT_TRUE(decision.ok()) << decision.status();
  EXPECT_EQ(decision->steps, 8);
  EXPECT_THAT(decision->finish, ElementsAre(0, 3));
}

TEST(StepDecisionTest, WhatNobodyHasDoneIsLeftOut) {
  const auto decision = DecideStep(
      {At(7, StepState::kReady), At(7, StepState::kUnchanged), At(7, StepState::kDone)}, 4);
  ASSERT_TRUE(decision.ok()) << decision.status();
  EXPECT_EQ(decision->steps, 7);
  EXPECT_THAT(decision->finish, IsEmpty());
}

TEST(StepDecisionTest, WhatAllHaveSummedIsNotComputedAgain) {
  const auto decision = DecideStep({At(7, StepState::kReady), At(7, StepState::kReady)}, 4);
  ASSERT_TRUE(decision.ok()) << decision.status();
  EXPECT_EQ(decision->steps, 8);
  EXPECT_THAT(decision->finish, ElementsAre(0, 1));
}

// Its call had not come when the others lost a peer.
TEST(StepDecisionTest, ARankThatHasNotHeardOfTheRunHasDoneNothingOfIt) {
  const StepProgress before = {.runs = 3, .steps = 100, .state = StepState::kDone};
  const auto decision = DecideStep({before, At(0, StepState::kUnchanged)}, 4);
  ASSERT_TRUE(decision.ok()) << decision.status();
  EXPECT_EQ(decision->steps, 0);
  EXPECT_THAT(decision->finish, IsEmpty());
}

TEST(StepDecisionTest, ThoseThatCannotComeToOneStepAreAnError) {
  struct Case {
    std::vector<StepProgress> ranks;
    const char* text;
  };
  const Case cases[] = {
      {{At(7, StepState::kTorn), At(7, StepState::kDone)}, "neither that before nor after"},
      {{At(7, StepState::kUnchanged), At(8, StepState::kDone)}, "cannot follow"},
      {{At(6, StepState::kReady), At(8, StepState::kDone)}, "cannot follow"},
      // Its updates need other ranks.
      {{At(7, StepState::kReady, false), At(8, StepState::kDone)}, "cannot follow"},
      {{At(7, StepState::kDone), {.runs = 2, .steps = 7}}, "2 stretches"},
      // It had failed in the run before.
      {{At(0, StepState::kDone), {.runs = 3, .steps = 7, .state = StepState::kReady}},
       "3 stretches"},
  };
  for (const Case& one : cases) {
    const absl::Status status = DecideStep(one.ranks, 4).status();
    EXPECT_TRUE(absl::IsDataLoss(status)) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(one.text));
  }
  EXPECT_FALSE(DecideStep({}, 4).ok());
}

// Ranks that keep law 1 and are stopped at any moment come to one step, which none of them has to
// take back.
TEST(StepDecisionTest, ComesToOneStepWhereverRanksAreStopped) {
  std::mt19937 random(1);
  const auto draw = [&](int below) {
    return static_cast<int>(random() % static_cast<unsigned>(below));
  };
  for (int round = 0; round < 2000; ++round) {
    const int ranks = 1 + draw(5);
    // 0: sums gradients; 1: waits at the barrier; 2: updates are done.
    std::vector<int64_t> step(static_cast<size_t>(ranks)), phase(static_cast<size_t>(ranks));
    for (int moves = draw(60); moves > 0; --moves) {
      const auto i = static_cast<size_t>(draw(ranks));
      if (phase[i] == 0) {
        phase[i] = 1;
        continue;
      }
      // It goes on when all have come to the barrier of its step.
      bool all = true;
      for (size_t k = 0; k < step.size(); ++k) {
        all = all && (step[k] > step[i] || (step[k] == step[i] && phase[k] == 1));
      }
      if (!all) continue;
      ++step[i];
      phase[i] = 0;
    }
    std::vector<StepProgress> left;
    int64_t max_done = 0;
    for (size_t i = 0; i < step.size(); ++i) {
      if (ranks > 1 && left.size() + 1 < step.size() && draw(4) == 0) continue;  // it is lost
      left.push_back(At(step[i], phase[i] == 1 ? StepState::kReady : StepState::kUnchanged));
      max_done = std::max(max_done, step[i]);
    }
    if (left.empty()) continue;
    const auto decision = DecideStep(left, 4);
    ASSERT_TRUE(decision.ok()) << decision.status();
    EXPECT_GE(decision->steps, max_done);
    EXPECT_LE(decision->steps, max_done + 1);
    size_t finish = 0;
    for (size_t i = 0; i < left.size(); ++i) {
      const bool finishes =
          finish < decision->finish.size() && decision->finish[finish] == static_cast<int>(i);
      if (finishes) ++finish;
      EXPECT_EQ(left[i].steps + (finishes ? 1 : 0), decision->steps);
      EXPECT_TRUE(!finishes || left[i].state == StepState::kReady);
    }
  }
}

}  // namespace
}  // namespace weft
