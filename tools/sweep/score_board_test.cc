#include "tools/sweep/score_board.h"

#include <atomic>
#include <optional>
#include <thread>
#include <vector>

#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "platform/clock.h"
#include "platform/testing/fake_clock.h"

namespace weft {
namespace {

using ::testing::ElementsAre;

TEST(ScoreBoard, ATrialWaitsForThoseBeforeIt) {
  testing::FakeClock clock;
  ScoreBoard board(2, false, true, clock);
  std::atomic<bool> returned = false;
  std::thread second([&] {
    board.Report(1, 5, nullptr);
    returned = true;
  });
  clock.AwaitWaiters(1);
  EXPECT_FALSE(returned);
  board.Report(0, 7, nullptr);
  second.join();
  EXPECT_TRUE(returned);
  EXPECT_THAT(board.scores(0), ElementsAre(7));
  EXPECT_THAT(board.scores(1), ElementsAre(5));
}

TEST(ScoreBoard, ATrialThatHasEndedIsNotWaitedFor) {
  testing::FakeClock clock;
  ScoreBoard board(2, false, true, clock);
  std::thread second([&] { board.Report(1, 5, nullptr); });
  clock.AwaitWaiters(1);
  board.End(0);
  second.join();
  EXPECT_THAT(board.scores(0), ::testing::IsEmpty());
}

TEST(ScoreBoard, AStopEndsTheWait) {
  testing::FakeClock clock;
  ScoreBoard board(2, false, true, clock);
  std::atomic<bool> stop = false;
  std::thread second(
      [&] { EXPECT_EQ(board.Report(1, 5, [&] { return stop.load(); }), std::nullopt); });
  clock.AwaitWaiters(1);
  stop = true;
  clock.Advance(absl::Seconds(1));
  second.join();
}

// Whichever trial is the fastest: trials 0 to 2 report 1, 2 and 3, whose median is 2.
TEST(ScoreBoard, DecisionsDoNotDependOnTheOrderOfReports) {
  for (int last = 0; last < 4; ++last) {
    ScoreBoard board(4, false, true, RealClock());
    std::vector<std::optional<double>> verdicts(4);
    const std::vector<double> scores = {1, 2, 3, 2.5};
    std::vector<std::thread> threads;
    for (size_t i = 0; i < 4; ++i) {
      const size_t trial = (static_cast<size_t>(last) + i + 1) % 4;
      threads.emplace_back([&, trial] {
        verdicts[trial] = board.Report(static_cast<int>(trial), scores[trial], nullptr);
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_THAT(verdicts, ElementsAre(std::nullopt, std::nullopt, std::nullopt, 2.0));
  }
}

TEST(ScoreBoard, AtTheLastRungNobodyWaits) {
  testing::FakeClock clock;
  ScoreBoard board(2, false, true, clock);
  for (int rung = 0; rung < 3; ++rung) {
    for (int trial = 0; trial < 2; ++trial) board.Report(trial, rung, nullptr);
  }
  // The first one has not come to it, and has not ended.
  EXPECT_EQ(board.Report(1, 3, nullptr), std::nullopt);
}

TEST(ScoreBoard, WithoutAnEarlyEndNobodyWaitsOrEnds) {
  testing::FakeClock clock;
  ScoreBoard board(4, false, false, clock);
  EXPECT_EQ(board.Report(3, 9, nullptr), std::nullopt);
  for (int trial = 0; trial < 3; ++trial) board.Report(trial, 1, nullptr);
  EXPECT_EQ(board.Report(3, 9, nullptr), std::nullopt);
}

}  // namespace
}  // namespace weft
