#include "platform/task_thread.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <set>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

namespace weft {
namespace {

TEST(TaskThread, RunsTasksOfSeveralThreadsOneByOneOnOneOther) {
  constexpr int kCallers = 4;
  constexpr int kTasks = 100;
  TaskThread tasks;
  std::set<std::thread::id> ran_on;  // not guarded: tasks exclude each other
  int ran = 0;
  std::atomic<int> ended_early = 0;
  std::vector<std::thread> callers;
  for (int i = 0; i < kCallers; ++i) {
    callers.emplace_back([&] {
      for (int k = 0; k < kTasks; ++k) {
        bool done = false;
        tasks.Run([&] {
          ran_on.insert(std::this_thread::get_id());
          ++ran;
          done = true;
        });
        if (!done) ++ended_early;
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(ran, kCallers * kTasks);
  EXPECT_EQ(ended_early, 0);
  EXPECT_EQ(ran_on.size(), 1);
  EXPECT_EQ(ran_on.count(std::this_thread::get_id()), 0);
}

TEST(TaskThread, AThreadThatGivesWayIsAlone) {
  int own = 0;
  std::thread other([&] {
    GiveWayToOthers();
    own = getpriority(PRIO_PROCESS, static_cast<id_t>(gettid()));
  });
  const int before = getpriority(PRIO_PROCESS, static_cast<id_t>(gettid()));
  other.join();
  EXPECT_EQ(own, 19);
  EXPECT_EQ(getpriority(PRIO_PROCESS, static_cast<id_t>(gettid())), before);
}

TEST(RunOnThreads, TheWorkIsDoneOnceAndOnThreadsThatHaveEnded) {
  for (const int threads : {0, 1, 2, 5}) {
    constexpr int kPieces = 1000;
    std::vector<std::atomic<int>> done(kPieces);
    std::atomic<int> next = 0, calls = 0;
    RunOnThreads(threads, [&] {
      ++calls;
      for (int piece = next++; piece < kPieces; piece = next++) ++done[static_cast<size_t>(piece)];
    });
    EXPECT_EQ(calls, std::max(threads, 1));
    for (const std::atomic<int>& one : done) EXPECT_EQ(one, 1);
  }
}

TEST(TaskThread, EndsWithoutATask) { TaskThread tasks; }

}  // namespace
}  // namespace weft
