#include "graph/schedule/collective_schedule.h"

#include <cmath>
#include <cstring>
#include <functional>
#include <random>

#include "gmock/gmock.h"
#include "graph/schedule/testing/numeric_executor.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::kSizes;
using testing::NumericExecutor;
using testing::RandomIntegers;
using testing::SumOf;

std::vector<int64_t> RandomCounts(int members, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<int64_t> counts;
  for (int m = 0; m < members; ++m) counts.push_back(static_cast<int64_t>(random() % 12));
  return counts;
}

TEST(RingAllReduceTest, EveryMemberGetsTheExactSum) {
  for (int members = 1; members <= 9; ++members) {
    for (int64_t elements : kSizes) {
      SCOPED_TRACE(::testing::Message() << members << " members, " << elements << " elements");
      std::vector<CollectiveSchedule> schedules;
      for (int m = 0; m < members; ++m) schedules.push_back(RingAllReduce(members, m, elements));
      ASSERT_TRUE(ValidateSchedules(schedules).ok()) << ValidateSchedules(schedules);
      const auto data = RandomIntegers(members, elements, 3);
      for (const auto& result : NumericExecutor<int64_t>(schedules, data).Run()) {
        EXPECT_EQ(result, SumOf(data));
      }
    }
  }
}

TEST(RingAllReduceTest, AMemberSendsTwiceTheDataButForItsShare) {
  for (int members = 1; members <= 9; ++members) {
    const int64_t elements = 2520;  // every n up to 9 divides it
    for (int m = 0; m < members; ++m) {
      EXPECT_EQ(RingAllReduce(members, m, elements).elements_sent(),
                2 * (members - 1) * elements / members);
    }
  }
}

TEST(RingAllGatherTest, EveryMemberGetsEveryShard) {
  for (int members = 1; members <= 9; ++members) {
    SCOPED_TRACE(members);
    const std::vector<int64_t> counts = RandomCounts(members, members);
    std::vector<CollectiveSchedule> schedules;
    std::vector<std::vector<int64_t>> data(members);
    std::vector<int64_t> expected;
    for (int m = 0; m < members; ++m) {
      schedules.push_back(RingAllGather(counts, m));
      for (int owner = 0; owner < members; ++owner) {
        data[m].insert(data[m].end(), counts[owner], owner == m ? 100 + m : -1);
      }
      expected.insert(expected.end(), counts[m], 100 + m);
    }
    ASSERT_TRUE(ValidateSchedules(schedules).ok()) << ValidateSchedules(schedules);
    for (const auto& result : NumericExecutor<int64_t>(schedules, data).Run()) {
      EXPECT_EQ(result, expected);
    }
  }
}

TEST(RingReduceScatterTest, EveryMemberGetsTheSumOfItsShard) {
  for (int members = 1; members <= 9; ++members) {
    SCOPED_TRACE(members);
    const std::vector<int64_t> counts = RandomCounts(members, 100 + members);
    int64_t total = 0;
    std::vector<CollectiveSchedule> schedules;
    for (int m = 0; m < members; ++m) {
      schedules.push_back(RingReduceScatter(counts, m));
      total += counts[m];
    }
    ASSERT_TRUE(ValidateSchedules(schedules).ok()) << ValidateSchedules(schedules);
    const auto data = RandomIntegers(members, total, 5);
    const std::vector<int64_t> sum = SumOf(data);
    const auto results = NumericExecutor<int64_t>(schedules, data).Run();
    int64_t first = 0;
    for (int m = 0; m < members; ++m) {
      for (int64_t i = first; i < first + counts[m]; ++i) EXPECT_EQ(results[m][i], sum[i]);
      EXPECT_EQ(schedules[m].elements_sent(), total - counts[m]);
      first += counts[m];
    }
  }
}

TEST(AlignedBlocksTest, AreMaximalAlignedPowersOfTwoThatTile) {
  for (int total = 1; total <= 20; ++total) {
    for (int first = 0; first <= total; ++first) {
      for (int last = first; last <= total; ++last) {
        int at = first;
        for (const LeafRange& block : AlignedBlocks(first, last, total)) {
          const int size = block.last - block.first;
          EXPECT_EQ(block.first, at);
          EXPECT_EQ(size & (size - 1), 0);
          EXPECT_EQ(block.first % size, 0);
          // Maximal: the next larger aligned block around it sticks out.
          const int around = block.first / (2 * size) * 2 * size;
          EXPECT_TRUE(around < first || around + 2 * size > last);
          at = block.last;
        }
        EXPECT_EQ(at, last);
      }
    }
  }
}

TEST(TreeAdditionsTest, SplitAtTheLargestPowerOfTwoBelow) {
  const std::vector<LeafRange> leaves = {{0, 1}, {1, 2}, {2, 3}, {3, 4}, {4, 5}, {5, 6}};
  EXPECT_THAT(TreeAdditions(leaves), ElementsAre(std::pair(0, 1), std::pair(2, 3), std::pair(0, 2),
                                                 std::pair(4, 5), std::pair(0, 4)));
}

// The sum of leaves [first, last), by the definition of the tree.
float ReferenceTreeSum(const std::vector<float>& leaves, int first, int last) {
  if (last - first == 1) return leaves[first];
  int half = 1;
  while (half * 2 < last - first) half *= 2;
  return ReferenceTreeSum(leaves, first, first + half) +
         ReferenceTreeSum(leaves, first + half, last);
}

// All ways to give `leaves` consecutive leaves to `members` members in order, none left out.
void ForEachDivision(int leaves, int members, std::vector<int>& ends,
                     const std::function<void(const std::vector<int>&)>& visit) {
  if (static_cast<int>(ends.size()) == members - 1) {
    ends.push_back(leaves);
    visit(ends);
    ends.pop_back();
    return;
  }
  for (int end = ends.empty() ? 0 : ends.back(); end <= leaves; ++end) {
    ends.push_back(end);
    ForEachDivision(leaves, members, ends, visit);
    ends.pop_back();
  }
}

class OrderedTreeTest : public ::testing::Test {
 protected:
  static constexpr int64_t kElements = 5;

  void MakeLeaves(int count) {
    std::mt19937 random(count);
    std::normal_distribution<float> normal(0, 1);
    leaves_.assign(kElements, std::vector<float>(count));
    for (auto& column : leaves_) {
      for (float& value : column) value = std::exp(3 * normal(random));
    }
  }

  // Checks the division in which member m holds leaves [ends[m-1], ends[m]).
  void ExpectTreeBits(const std::vector<int>& ends) {
    const int total = ends.back();
    std::vector<std::vector<LeafRange>> blocks;
    int first = 0;
    for (int end : ends) {
      blocks.push_back(AlignedBlocks(first, end, total));
      first = end;
    }
    std::vector<CollectiveSchedule> schedules;
    std::vector<std::vector<float>> data(blocks.size());
    for (size_t m = 0; m < blocks.size(); ++m) {
      schedules.push_back(OrderedTreeAllReduce(blocks, static_cast<int>(m), total, kElements));
      for (const LeafRange& block : blocks[m]) {
        for (const auto& column : leaves_) {
          data[m].push_back(ReferenceTreeSum(column, block.first, block.last));
        }
      }
    }
    ASSERT_TRUE(ValidateSchedules(schedules).ok()) << ValidateSchedules(schedules);
    for (const auto& result : NumericExecutor<float>(schedules, data).Run()) {
      for (int64_t i = 0; i < kElements; ++i) {
        const float expected = ReferenceTreeSum(leaves_[i], 0, total);
        EXPECT_EQ(std::memcmp(&result[i], &expected, sizeof expected), 0)
            << result[i] << " vs " << expected;
      }
    }
  }

  std::vector<std::vector<float>> leaves_;  // by element, leaf
};

TEST_F(OrderedTreeTest, TheBitsDoNotDependOnWhoHoldsWhichLeaves) {
  for (int total = 1; total <= 9; ++total) {
    MakeLeaves(total);
    for (int members = 1; members <= std::min(total, 5); ++members) {
      std::vector<int> ends;
      ForEachDivision(total, members, ends, [&](const std::vector<int>& division) {
        SCOPED_TRACE(::testing::PrintToString(division));
        ExpectTreeBits(division);
      });
    }
  }
}

TEST_F(OrderedTreeTest, EvenSharesOfUpToNineMembersGiveTheSameBits) {
  for (int total = 1; total <= 9; ++total) {
    MakeLeaves(total);
    for (int members = 1; members <= total; ++members) {
      std::vector<int> ends;
      for (int m = 1; m <= members; ++m) ends.push_back(total * m / members);
      SCOPED_TRACE(::testing::PrintToString(ends));
      ExpectTreeBits(ends);
    }
  }
}

TEST_F(OrderedTreeTest, OneBlockEachCostsWhatTheRingCosts) {
  for (int members : {1, 2, 4, 8}) {
    std::vector<std::vector<LeafRange>> blocks;
    for (int m = 0; m < members; ++m)
      blocks.push_back(AlignedBlocks(2 * m, 2 * m + 2, 2 * members));
    for (int m = 0; m < members; ++m) {
      EXPECT_EQ(OrderedTreeAllReduce(blocks, m, 2 * members, 2520).elements_sent(),
                2 * (members - 1) * 2520 / members);
    }
  }
}

class ValidateSchedulesTest : public ::testing::Test {
 protected:
  ValidateSchedulesTest() {
    for (int m = 0; m < 2; ++m) schedules_.push_back(RingAllReduce(2, m, 10));
  }
  std::string Message() const { return std::string(ValidateSchedules(schedules_).message()); }
  std::vector<CollectiveSchedule> schedules_;
};

TEST_F(ValidateSchedulesTest, FindsAReceiveThatIsNeverSentTo) {
  schedules_[0].steps.erase(schedules_[0].steps.begin());
  schedules_[0].steps.pop_back();
  schedules_[1].steps.clear();
  EXPECT_EQ(Message(), "member 0, step 0: waits for ever for a message from member 1");
}

TEST_F(ValidateSchedulesTest, FindsAMessageThatNobodyReceives) {
  schedules_[1].steps.clear();
  schedules_[0].steps.resize(1);
  EXPECT_THAT(Message(), HasSubstr("member 0 sends 1 messages to member 1 that nobody receives"));
}

TEST_F(ValidateSchedulesTest, FindsSizesThatDiffer) {
  schedules_[0].steps[0].source.count = 4;
  EXPECT_THAT(Message(), HasSubstr("expects 5 elements from member 0, which sends 4"));
}

TEST_F(ValidateSchedulesTest, FindsARangeOutsideItsBuffer) {
  schedules_[0].steps[0].source.first = 6;
  EXPECT_THAT(Message(), HasSubstr("elements [6,11) are outside buffer 0 of 10"));
}

TEST_F(ValidateSchedulesTest, FindsASendToNobody) {
  schedules_[0].steps[0].peer = 2;
  EXPECT_THAT(Message(), HasSubstr("peer 2 is not another of the 2 members"));
}

TEST(CollectiveScheduleTest, PrintsAStepPerLine) {
  EXPECT_EQ(RingAllReduce(2, 0, 3).ToString(),
            "buffers 3 2\n"
            "send b0[2+1] to 1\n"
            "receive b1[0+2] from 1\n"
            "reduce b0[0+2] += b1[0+2]\n"
            "send b0[0+2] to 1\n"
            "receive b0[2+1] from 1");
}

}  // namespace
}  // namespace weft
