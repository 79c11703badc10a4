#include "ops/kernels/cpu/blocks/parallel.h"

#include <array>
#include <atomic>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

namespace weft::cpu {
namespace {

TEST(UsefulThreads, SmallWorkStaysOnOneThread) {
  EXPECT_EQ(UsefulThreads(8, 1000, 1), 1);         // 1 microsecond
  EXPECT_EQ(UsefulThreads(8, 49'000, 1), 1);       // not worth a wake-up
  EXPECT_EQ(UsefulThreads(8, 60'000, 1), 2);       // 30 microseconds each
  EXPECT_EQ(UsefulThreads(8, 100'000'000, 1), 8);  // no more than allowed
  EXPECT_EQ(UsefulThreads(8, 3, 1e9), 3);          // no more than items
  EXPECT_EQ(UsefulThreads(1, 100'000'000, 1), 1);
  EXPECT_EQ(UsefulThreads(8, 0, 1), 1);
}

TEST(ParallelFor, CoversEveryItemOnceWithBordersOnTheGrain) {
  for (const int64_t items : {1, 63, 64, 65, 1000, 100'003}) {
    std::vector<std::atomic<int>> visits(items);
    std::atomic<bool> aligned = true;
    ParallelFor(3, items, 1e6, 64, [&](int64_t begin, int64_t end) {
      if (begin % 64 != 0 || (end % 64 != 0 && end != items)) aligned = false;
      for (int64_t i = begin; i < end; ++i) ++visits[i];
    });
    EXPECT_TRUE(aligned);
    for (int64_t i = 0; i < items; ++i) ASSERT_EQ(visits[i], 1) << "item " << i << " of " << items;
  }
}

TEST(ParallelFor, LoopsOfSeveralThreadsDoNotMeet) {
  const auto run_loops = [] {
    for (int64_t items = 1; items < 200; ++items) {
      std::vector<std::atomic<int>> visits(items);
      ParallelFor(3, items, 1e6, 1, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) ++visits[i];
      });
      for (int64_t i = 0; i < items; ++i) ASSERT_EQ(visits[i], 1);
    }
  };
  std::thread other(run_loops);
  run_loops();
  other.join();
}

TEST(ParallelFor, ALoopWithinALoopIsOneCall) {
  std::atomic<int> calls = 0;
  ParallelFor(3, 5, 1e6, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const std::thread::id caller = std::this_thread::get_id();
      ParallelFor(3, 1000, 1e6, 1, [&](int64_t first, int64_t last) {
        if (first == 0 && last == 1000 && std::this_thread::get_id() == caller) ++calls;
      });
    }
  });
  EXPECT_EQ(calls, 5);
}

TEST(ParallelForSlots, OneCallPerSlotAtATime) {
  constexpr int kThreads = 4;
  for (int round = 0; round < 200; ++round) {
    std::array<std::atomic<int>, kThreads> inside = {};
    std::atomic<int> visits = 0;
    std::atomic<bool> exclusive = true;
    ParallelForSlots(kThreads, 64, 1e6, 1, [&](int slot, int64_t begin, int64_t end) {
      if (inside[slot].fetch_add(1) != 0) exclusive = false;
      visits += static_cast<int>(end - begin);
      inside[slot].fetch_sub(1);
    });
    ASSERT_TRUE(exclusive);
    ASSERT_EQ(visits, 64);
  }
}

TEST(ParallelFor, NoItemsNoCall) {
  bool called = false;
  ParallelFor(2, 0, 1e6, 1, [&](int64_t, int64_t) { called = true; });
  EXPECT_FALSE(called);
}

}  // namespace
}  // namespace weft::cpu
