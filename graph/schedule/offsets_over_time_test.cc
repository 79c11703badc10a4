#include "graph/schedule/offsets_over_time.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "gtest/gtest.h"

namespace weft {
namespace {

struct Taken {
  int first;
  int last;
  int64_t offset;
  int64_t bytes;
};

// The same by looking at all that was taken.
int64_t GapAmong(std::vector<Taken> all, int first, int last, int64_t bytes) {
  std::sort(all.begin(), all.end(),
            [](const Taken& a, const Taken& b) { return a.offset < b.offset; });
  int64_t end = 0;
  int64_t best = -1;
  int64_t best_gap = std::numeric_limits<int64_t>::max();
  for (const Taken& taken : all) {
    if (taken.last < first || last < taken.first) continue;
    const int64_t gap = taken.offset - end;
    if (gap >= bytes && gap < best_gap) {
      best_gap = gap;
      best = end;
    }
    end = std::max(end, taken.offset + taken.bytes);
  }
  return best >= 0 ? best : end;
}

TEST(OffsetsOverTimeTest, NothingIsTakenAtFirst) {
  OffsetsOverTime offsets(1);
  EXPECT_EQ(offsets.FindGap(0, 0, 10), 0);
}

TEST(OffsetsOverTimeTest, TakesTheSmallestGapThatFitsAndTheLowestOfEqualOnes) {
  OffsetsOverTime offsets(3);
  for (const int64_t offset : {20, 40, 70, 90}) offsets.Take(1, 1, offset, 10);
  EXPECT_EQ(offsets.FindGap(1, 1, 5), 30);    // of 10 bytes, as the one at 80
  EXPECT_EQ(offsets.FindGap(0, 2, 15), 0);    // of 20 bytes, as the one at 50
  EXPECT_EQ(offsets.FindGap(1, 1, 25), 100);  // behind all
  EXPECT_EQ(offsets.FindGap(0, 0, 25), 0);    // at another time
}

TEST(OffsetsOverTimeTest, ClearFreesAll) {
  OffsetsOverTime offsets(5);
  offsets.Take(0, 4, 0, 64);
  offsets.Clear();
  EXPECT_EQ(offsets.FindGap(2, 3, 64), 0);
}

TEST(OffsetsOverTimeTest, FindsTheGapThatALookAtAllFinds) {
  std::mt19937 random(5);
  for (int round = 0; round < 100; ++round) {
    SCOPED_TRACE(round);
    const int times = 1 + static_cast<int>(random() % 50);
    OffsetsOverTime offsets(times);
    std::vector<Taken> all;
    for (int i = 0; i < 150; ++i) {
      const int first = static_cast<int>(random() % times);
      const int last = first + static_cast<int>(random() % (times - first));
      const int64_t bytes = 1 + static_cast<int64_t>(random() % 20);
      const int64_t gap = offsets.FindGap(first, last, bytes);
      ASSERT_EQ(gap, GapAmong(all, first, last, bytes)) << "search " << i;
      // Elsewhere now and then, which leaves gaps and overlaps.
      const int64_t offset = i % 4 == 0 ? static_cast<int64_t>(random() % 200) : gap;
      offsets.Take(first, last, offset, bytes);
      all.push_back({first, last, offset, bytes});
    }
  }
}

}  // namespace
}  // namespace weft
