// All-reduces other than the ring, trees and all-to-all: run on numbers, and held against the
// published numbers of bytes.
#include <functional>
#include <random>

#include "gmock/gmock.h"
#include "graph/schedule/collective_schedule.h"
#include "graph/schedule/testing/numeric_executor.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

using testing::kSizes;
using testing::NumericExecutor;
using testing::RandomIntegers;
using testing::SumOf;

using Generator = std::function<CollectiveSchedule(int members, int member, int64_t elements)>;

std::vector<CollectiveSchedule> SchedulesOf(const Generator& generate, int members,
                                            int64_t elements) {
  std::vector<CollectiveSchedule> schedules;
  for (int m = 0; m < members; ++m) schedules.push_back(generate(members, m, elements));
  return schedules;
}

int RoundsOf(int members) {
  int rounds = 0;
  while ((1 << rounds) < members) ++rounds;
  return rounds;
}

// The sum on every member, for 1 to 9 members and sizes around and below their number.
void ExpectSums(const Generator& generate) {
  for (int members = 1; members <= 9; ++members) {
    for (const int64_t elements : kSizes) {
      SCOPED_TRACE(::testing::Message() << members << " members, " << elements << " elements");
      const auto schedules = SchedulesOf(generate, members, elements);
      ASSERT_TRUE(ValidateSchedules(schedules).ok()) << ValidateSchedules(schedules);
      const auto data = RandomIntegers(members, elements, 3);
      for (const auto& result : NumericExecutor<int64_t>(schedules, data).Run()) {
        EXPECT_EQ(result, SumOf(data));
      }
    }
  }
}

TEST(RecursiveDoublingAllReduceTest, EveryMemberGetsTheExactSum) {
  ExpectSums(RecursiveDoublingAllReduce);
}

TEST(RecursiveDoublingAllReduceTest, AMemberSendsTheDataOnceARound) {
  for (const int members : {2, 4, 8}) {
    for (int m = 0; m < members; ++m) {
      EXPECT_EQ(RecursiveDoublingAllReduce(members, m, 100).elements_sent(),
                100 * RoundsOf(members));
    }
  }
}

TEST(HalvingDoublingAllReduceTest, EveryMemberGetsTheExactSum) {
  ExpectSums(HalvingDoublingAllReduce);
}

TEST(HalvingDoublingAllReduceTest, APowerOfTwoSendsWhatTheRingSends) {
  for (const int members : {1, 2, 4, 8}) {
    for (int m = 0; m < members; ++m) {
      EXPECT_EQ(HalvingDoublingAllReduce(members, m, 2520).elements_sent(),
                2 * (members - 1) * 2520 / members);
    }
  }
}

// Thakur, Rabenseifner and Gropp, 2005, section 4.5, with n = p + r.
TEST(HalvingDoublingAllReduceTest, OtherNumbersFoldTheMembersBeyondAPowerOfTwo) {
  constexpr int64_t kElements = 840;  // halves and eighths are whole
  for (const int members : {3, 5, 6, 7, 9}) {
    const int power = members > 8 ? 8 : members > 4 ? 4 : 2;
    const int64_t core = 2 * (power - 1) * kElements / power;
    for (int m = 0; m < members; ++m) {
      SCOPED_TRACE(::testing::Message() << m << " of " << members);
      int64_t expected = core;
      if (m >= power) expected = kElements;
      if (m + power < members) expected = kElements / 2 + core + kElements;
      EXPECT_EQ(HalvingDoublingAllReduce(members, m, kElements).elements_sent(), expected);
    }
  }
}

TEST(HalvingDoublingAllReduceTest, TakesTwiceTheLogarithmOfTheRounds) {
  for (const int members : {2, 4, 8, 16}) {
    int sends = 0;
    for (const CollectiveStep& step : HalvingDoublingAllReduce(members, 1, 1600).steps) {
      if (step.kind == CollectiveStep::Kind::kSend) ++sends;
    }
    EXPECT_EQ(sends, 2 * RoundsOf(members));
  }
}

TEST(TreeAllReduceTest, EveryMemberGetsTheExactSum) { ExpectSums(TreeAllReduce); }

TEST(TreeAllReduceTest, TheDataGoesOnceUpAndOnceDownEachEdge) {
  for (int members = 1; members <= 9; ++members) {
    int64_t sent = 0;
    for (int m = 0; m < members; ++m) {
      const int64_t own = TreeAllReduce(members, m, 10).elements_sent();
      sent += own;
      EXPECT_LE(own, 10 * (1 + RoundsOf(members)));
      const int64_t up = m > 0 ? 10 : 0;
      EXPECT_EQ(own, up + TreeBroadcast(members, m, 0, 10).elements_sent());
    }
    EXPECT_EQ(sent, 2 * 10 * (members - 1));
  }
}

TEST(TreeReduceTest, AnyRootGetsTheSumAndTheOthersSendOnce) {
  for (int members = 1; members <= 9; ++members) {
    for (int root = 0; root < members; ++root) {
      SCOPED_TRACE(::testing::Message() << root << " of " << members);
      const auto schedules = SchedulesOf(
          [&](int n, int m, int64_t elements) { return TreeReduce(n, m, root, elements); }, members,
          13);
      ASSERT_TRUE(ValidateSchedules(schedules).ok()) << ValidateSchedules(schedules);
      const auto data = RandomIntegers(members, 13, 4);
      EXPECT_EQ(NumericExecutor<int64_t>(schedules, data).Run()[root], SumOf(data));
      for (int m = 0; m < members; ++m) {
        EXPECT_EQ(schedules[m].elements_sent(), m == root ? 0 : 13);
      }
    }
  }
}

TEST(TreeBroadcastTest, EveryRootReachesEveryMember) {
  for (int members = 1; members <= 9; ++members) {
    for (int root = 0; root < members; ++root) {
      SCOPED_TRACE(::testing::Message() << root << " of " << members);
      const auto schedules = SchedulesOf(
          [&](int n, int m, int64_t elements) { return TreeBroadcast(n, m, root, elements); },
          members, 5);
      ASSERT_TRUE(ValidateSchedules(schedules).ok()) << ValidateSchedules(schedules);
      int64_t sent = 0;
      for (const CollectiveSchedule& schedule : schedules) sent += schedule.elements_sent();
      EXPECT_EQ(sent, 5 * (members - 1));
      const auto data = RandomIntegers(members, 5, 9);
      for (const auto& result : NumericExecutor<int64_t>(schedules, data).Run()) {
        EXPECT_EQ(result, data[root]);
      }
    }
  }
}

TEST(PairwiseAllToAllTest, EveryPieceReachesItsReceiver) {
  for (int members = 1; members <= 9; ++members) {
    SCOPED_TRACE(members);
    std::mt19937 random(members);
    std::vector<std::vector<int64_t>> counts(members);
    for (auto& row : counts) {
      for (int to = 0; to < members; ++to) row.push_back(static_cast<int64_t>(random() % 8));
    }
    std::vector<CollectiveSchedule> schedules;
    std::vector<std::vector<int64_t>> data(members);
    std::vector<std::vector<int64_t>> expected(members);
    for (int m = 0; m < members; ++m) {
      schedules.push_back(PairwiseAllToAll(counts, m));
      int64_t given = 0;
      for (int other = 0; other < members; ++other) {
        for (int64_t i = 0; i < counts[m][other]; ++i)
          data[m].push_back(10000 * m + 100 * other + i);
        for (int64_t i = 0; i < counts[other][m]; ++i) {
          expected[m].push_back(10000 * other + 100 * m + i);
        }
        if (other != m) given += counts[m][other];
      }
      EXPECT_EQ(schedules[m].elements_sent(), given);
    }
    ASSERT_TRUE(ValidateSchedules(schedules).ok()) << ValidateSchedules(schedules);
    EXPECT_EQ(NumericExecutor<int64_t>(schedules, data, /*data_buffer=*/1).Run(), expected);
  }
}

int64_t SentTo(const CollectiveSchedule& schedule, const std::vector<int>& hosts, int member,
               bool other_host) {
  int64_t sent = 0;
  for (const CollectiveStep& step : schedule.steps) {
    const bool leaves = step.peer >= 0 && hosts[step.peer] != hosts[member];
    if (step.kind == CollectiveStep::Kind::kSend && leaves == other_host) sent += step.source.count;
  }
  return sent;
}

TEST(HierarchicalAllReduceTest, EveryMemberGetsTheExactSumOnAnyHosts) {
  const std::vector<std::vector<int>> kHosts = {{4},
                                                {0, 0},
                                                {0, 1},
                                                {0, 0, 1},
                                                {0, 0, 1, 1},
                                                {0, 1, 0, 1},
                                                {7, 7, 7, 2},
                                                {0, 0, 1, 1, 2},
                                                {0, 0, 0, 1, 1, 1},
                                                {0, 0, 1, 1, 2, 2},
                                                {3, 1, 2, 3, 1, 2, 3, 1, 2},
                                                {0, 0, 0, 0, 1, 1, 1, 1},
                                                {0, 0, 0, 0, 0, 1, 1, 2, 2}};
  for (const std::vector<int>& hosts : kHosts) {
    for (const int64_t elements : kSizes) {
      SCOPED_TRACE(::testing::PrintToString(hosts) + ", " + std::to_string(elements));
      const auto schedules = SchedulesOf(
          [&](int, int m, int64_t size) { return HierarchicalAllReduce(hosts, m, size); },
          static_cast<int>(hosts.size()), elements);
      ASSERT_TRUE(ValidateSchedules(schedules).ok()) << ValidateSchedules(schedules);
      const auto data = RandomIntegers(static_cast<int>(hosts.size()), elements, 5);
      for (const auto& result : NumericExecutor<int64_t>(schedules, data).Run()) {
        EXPECT_EQ(result, SumOf(data));
      }
    }
  }
}

TEST(HierarchicalAllReduceTest, SendsTheLeastInsideAndBetweenHosts) {
  constexpr int64_t kElements = 5040;
  for (int host_count = 1; host_count <= 5; ++host_count) {
    for (int each = 1; each <= 4; ++each) {
      std::vector<int> hosts;
      for (int m = 0; m < host_count * each; ++m) hosts.push_back(m / each);
      for (size_t m = 0; m < hosts.size(); ++m) {
        SCOPED_TRACE(::testing::Message() << host_count << " hosts of " << each);
        const int member = static_cast<int>(m);
        const CollectiveSchedule schedule = HierarchicalAllReduce(hosts, member, kElements);
        EXPECT_EQ(SentTo(schedule, hosts, member, false), 2 * (each - 1) * kElements / each);
        EXPECT_EQ(SentTo(schedule, hosts, member, true),
                  2 * (host_count - 1) * kElements / host_count / each);
      }
    }
  }
}

TEST(HierarchicalAllReduceTest, SendsLessBetweenHostsThanTheRing) {
  const std::vector<int> hosts = {0, 0, 0, 0, 1, 1, 1, 1};
  int64_t ring = 0;
  int64_t hierarchical = 0;
  for (int m = 0; m < 8; ++m) {
    ring += SentTo(RingAllReduce(8, m, 840), hosts, m, true);
    hierarchical += SentTo(HierarchicalAllReduce(hosts, m, 840), hosts, m, true);
  }
  EXPECT_EQ(ring, 2 * 2 * 7 * 840 / 8);
  EXPECT_EQ(hierarchical, 2 * 840);
}

}  // namespace
}  // namespace weft
