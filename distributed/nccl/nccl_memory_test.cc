#include "distributed/nccl/nccl_memory.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

using ::testing::ElementsAre;

constexpr int64_t kMiB = int64_t{1} << 20;

TEST(NcclMemoryTest, EachCommunicatorHasItsOwnBuffers) {
  const std::vector<RankId> two = {RankId(0), RankId(1)};
  const std::vector<RankId> three = {RankId(0), RankId(1), RankId(2)};
  EXPECT_THAT(NcclBytes(3, {}, {}), ElementsAre(0, 0, 0));
  // 16 channels of 12 MiB, with one neighbour and with two.
  EXPECT_THAT(NcclBytes(3, {two}, {}), ElementsAre(192 * kMiB, 192 * kMiB, 0));
  EXPECT_THAT(NcclBytes(3, {two, three}, {}), ElementsAre(576 * kMiB, 576 * kMiB, 384 * kMiB));
  // 8 channels: 2 MiB each where it sends, 10 MiB where it receives.
  EXPECT_THAT(NcclBytes(3, {}, {{RankId(0), RankId(1)}, {RankId(1), RankId(2)}}),
              ElementsAre(16 * kMiB, 96 * kMiB, 80 * kMiB));
}

TEST(NcclMemoryTest, OfARankAreThoseThatItHasJoined) {
  const std::vector<CardGroup> joined = {{{RankId(0), RankId(1)}, ""},
                                         {{RankId(0), RankId(1), RankId(2)}, ""},
                                         {{RankId(0), RankId(1)}, "", /*sends=*/true},
                                         {{RankId(1), RankId(2)}, "", /*sends=*/true}};
  for (int rank = 0; rank < 4; ++rank) {
    const std::vector<int64_t> all = NcclBytes(4, {joined[0].members, joined[1].members},
                                               {{RankId(0), RankId(1)}, {RankId(1), RankId(2)}});
    EXPECT_EQ(NcclBytesOf(RankId(rank), joined), all[static_cast<size_t>(rank)]) << rank;
  }
}

}  // namespace
}  // namespace weft
