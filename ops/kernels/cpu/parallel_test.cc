#include "ops/kernels/cpu/parallel.h"

#include <atomic>
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

TEST(ParallelFor, NoItemsNoCall) {
  bool called = false;
  ParallelFor(2, 0, 1e6, 1, [&](int64_t, int64_t) { called = true; });
  EXPECT_FALSE(called);
}

}  // namespace
}  // namespace weft::cpu
