// Who keeps copies of whose state.
#include "training/job/replication.h"

#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

Plan OnHosts(std::vector<int> hosts) {
  Plan plan;
  plan.mesh.data = static_cast<int>(hosts.size());
  plan.hosts = std::move(hosts);
  return plan;
}

TEST(ReplicationTest, KeepersAreOnOtherHosts) {
  EXPECT_THAT(KeepersOf(OnHosts({0, 0, 1, 1})), ElementsAre(2, 3, 0, 1));
  EXPECT_THAT(KeepersOf(OnHosts({0, 1, 0, 1})), ElementsAre(1, 2, 3, 0));
  EXPECT_THAT(KeepersOf(OnHosts({0, 0, 1, 1, 2, 2})), ElementsAre(2, 3, 4, 5, 0, 1));
}

TEST(ReplicationTest, OnOneHostTheNextRankKeeps) {
  Plan plan;
  plan.mesh.pipeline = 3;
  EXPECT_THAT(KeepersOf(plan), ElementsAre(1, 2, 0));
}

// Whatever the hosts are: nobody keeps its own, or that of its host, and none keeps two more than
// another of its host.
TEST(ReplicationTest, HostsOfAnySize) {
  for (int bits = 1; bits < 63; ++bits) {
    std::vector<int> hosts;
    for (int rank = 0; rank < 6; ++rank) hosts.push_back((bits >> rank) & 1);
    const std::vector<int32_t> keepers = KeepersOf(OnHosts(hosts));
    std::vector<int> kept(6, 0);
    for (size_t rank = 0; rank < 6; ++rank) {
      const auto keeper = static_cast<size_t>(keepers[rank]);
      EXPECT_NE(hosts[keeper], hosts[rank]) << "hosts " << bits << ", rank " << rank;
      ++kept[keeper];
    }
    for (size_t a = 0; a < 6; ++a) {
      for (size_t b = 0; b < 6; ++b) {
        if (hosts[a] != hosts[b]) continue;
        EXPECT_LE(kept[a], kept[b] + 1) << "hosts " << bits;
      }
    }
  }
}

TEST(ReplicationTest, OneRankHasNobodyForIt) {
  EXPECT_EQ(ReplicationOf({}, Plan(), 5), Replication());
  EXPECT_THAT(ReplicationOf({}, OnHosts({0, 0}), 0).keepers, IsEmpty());
}

}  // namespace
}  // namespace weft
