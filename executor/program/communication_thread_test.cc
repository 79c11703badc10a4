// Run under --config=tsan too: the hand-over is two atomic counters.
#include "executor/program/communication_thread.h"

#include <atomic>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

using ::testing::ElementsAre;

TEST(CommunicationThreadTest, JobsRunInOrderAfterTheirSignals) {
  int signals_given = 0;  // written before Signal, read by the jobs after it
  std::vector<int> seen;  // written by the jobs, read after FinishStep
  CommunicationThread thread(
      3, [](int i) { return i + 1; },
      [&](int i) {
        EXPECT_GE(signals_given, i + 1);
        seen.push_back(i);
        return absl::OkStatus();
      });
  for (int step = 0; step < 100; ++step) {
    seen.clear();
    signals_given = 0;
    thread.StartStep();
    signals_given = 3;
    for (int signal = 1; signal <= 3; ++signal) thread.Signal(signal);
    ASSERT_TRUE(thread.Await(3).ok());
    ASSERT_TRUE(thread.FinishStep().ok());
    ASSERT_THAT(seen, ElementsAre(0, 1, 2));
  }
}

TEST(CommunicationThreadTest, AJobDoesNotStartBeforeItsSignal) {
  std::atomic<int> started{0};
  CommunicationThread thread(
      2, [](int i) { return i == 0 ? 0 : 1; },
      [&](int) {
        ++started;
        return absl::OkStatus();
      });
  thread.StartStep();
  ASSERT_TRUE(thread.Await(1).ok());
  EXPECT_EQ(started, 1);
  thread.Signal(1);
  ASSERT_TRUE(thread.Await(2).ok());
  EXPECT_EQ(started, 2);
  ASSERT_TRUE(thread.FinishStep().ok());
}

TEST(CommunicationThreadTest, WhatAJobWroteIsSeenAfterAwait) {
  std::vector<int> results(10, -1);
  CommunicationThread thread(
      10, [](int) { return 0; },
      [&](int i) {
        results[i] = i * i;
        return absl::OkStatus();
      });
  thread.StartStep();
  for (int i = 0; i < 10; ++i) {
    ASSERT_TRUE(thread.Await(i + 1).ok());
    EXPECT_EQ(results[i], i * i);
  }
  ASSERT_TRUE(thread.FinishStep().ok());
}

TEST(CommunicationThreadTest, TheFirstErrorEndsTheStepAndReachesEveryWait) {
  std::vector<int> ran;
  CommunicationThread thread(
      4, [](int) { return 0; },
      [&](int i) {
        ran.push_back(i);
        return i == 1 ? absl::UnavailableError("peer lost") : absl::OkStatus();
      });
  thread.StartStep();
  EXPECT_EQ(thread.Await(2).message(), "peer lost");
  EXPECT_EQ(thread.Await(4).code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(thread.FinishStep().message(), "peer lost");
  EXPECT_THAT(ran, ElementsAre(0, 1));
}

TEST(CommunicationThreadTest, AStepAfterAFailedOneStartsClean) {
  bool fail = true;
  CommunicationThread thread(
      1, [](int) { return 1; },
      [&](int) { return fail ? absl::InternalError("once") : absl::OkStatus(); });
  thread.StartStep();
  thread.Signal(1);
  EXPECT_FALSE(thread.FinishStep().ok());
  fail = false;
  thread.StartStep();
  thread.Signal(1);
  EXPECT_TRUE(thread.Await(1).ok());
  EXPECT_TRUE(thread.FinishStep().ok());
}

TEST(CommunicationThreadTest, CancellingSkipsJobsThatWaitForSignals) {
  std::vector<int> ran;
  CommunicationThread thread(
      3, [](int i) { return i; },
      [&](int i) {
        ran.push_back(i);
        return absl::OkStatus();
      });
  thread.StartStep();
  ASSERT_TRUE(thread.Await(1).ok());
  thread.CancelStep();
  EXPECT_EQ(thread.Await(3).code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(thread.FinishStep().code(), absl::StatusCode::kCancelled);
  EXPECT_THAT(ran, ElementsAre(0));
}

TEST(CommunicationThreadTest, CancellingAFinishedStepChangesNothing) {
  CommunicationThread thread(
      1, [](int) { return 0; }, [](int) { return absl::OkStatus(); });
  thread.StartStep();
  ASSERT_TRUE(thread.Await(1).ok());
  thread.CancelStep();
  EXPECT_TRUE(thread.FinishStep().ok());
  thread.StartStep();
  EXPECT_TRUE(thread.Await(1).ok());
  EXPECT_TRUE(thread.FinishStep().ok());
}

TEST(CommunicationThreadTest, ItEndsWithoutEverRunningAStep) {
  bool ran = false;
  {
    CommunicationThread thread(
        1, [](int) { return 0; },
        [&](int) {
          ran = true;
          return absl::OkStatus();
        });
  }
  EXPECT_FALSE(ran);
}

}  // namespace
}  // namespace weft
