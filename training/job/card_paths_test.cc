#include "training/job/card_paths.h"

#include "gmock/gmock.h"
#include "graph/graph_builder.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

using ::testing::ElementsAre;

constexpr int64_t kBytesOfPair = int64_t{192} << 20;    // of a group of two
constexpr int64_t kBytesOfThree = int64_t{384} << 20;   // of a larger one
constexpr int64_t kBytesSending = int64_t{16} << 20;    // to one rank
constexpr int64_t kBytesReceiving = int64_t{80} << 20;  // from one

ClusterSpec ClusterOfCards(const std::vector<int>& cards) {
  ClusterSpec cluster = ClusterSpec::Local(static_cast<int>(cards.size()), 1);
  for (size_t i = 0; i < cards.size(); ++i) {
    if (cards[i] < 0) continue;
    cluster.workers[i].device = DeviceKind::kCuda;
    cluster.workers[i].device_index = cards[i];
  }
  return cluster;
}

TEST(CardPathsTest, WorkersOfOneCardAreKnownBeforehand) {
  ClusterSpec cluster = ClusterOfCards({0, 0, 1, -1, 0, -1});
  cluster.workers[4].host = "other";
  const DeviceWays ways = WaysOfWorkers(cluster, Plan());
  ASSERT_EQ(ways.cards.size(), 6u);
  EXPECT_EQ(ways.cards[0], ways.cards[1]);
  EXPECT_NE(ways.cards[0], ways.cards[2]);
  EXPECT_NE(ways.cards[0], ways.cards[4]);
  EXPECT_NE(ways.cards[3], ways.cards[5]);  // they may be planned for as other devices
  EXPECT_FALSE(ways.host_collectives);
  Plan strict;
  strict.strict = true;
  EXPECT_TRUE(WaysOfWorkers(cluster, strict).host_collectives);
}

TEST(CardPathsTest, HostsHaveWhatNcclDoesNotJoin) {
  PlannedCards cards;
  cards.groups.groups = {{RankId(0), RankId(1)}};
  cards.groups.host = {{{RankId(0), RankId(2)}, "why"}};
  cards.sends.sends = {{{RankId(0), RankId(1)}, {3, 4}}};
  cards.sends.host = {{{RankId(0), RankId(1)}, {5}, "why"},
                      {{RankId(1), RankId(2)}, {7, 9}, "why"}};
  const HostPaths host = HostPathsOf(cards);
  EXPECT_THAT(host.groups, ElementsAre(ElementsAre(RankId(0), RankId(2))));
  EXPECT_THAT(host.channels, ElementsAre(5, 7, 9));
}

// A job's evaluation joins no group again that its training has.
TEST(CardPathsTest, ProgramsShareCommunicators) {
  PlannedCards training;
  training.groups.groups = {{RankId(0), RankId(1)}};
  training.sends.sends = {{{RankId(0), RankId(1)}, {3, 4}}};
  PlannedCards evaluation = training;
  evaluation.sends.sends.push_back({{RankId(1), RankId(0)}, {1}});
  EXPECT_THAT(NcclBytesOfPrograms({training}, 2),
              ElementsAre(kBytesOfPair + kBytesSending, kBytesOfPair + kBytesReceiving));
  EXPECT_THAT(NcclBytesOfPrograms({training, evaluation}, 2),
              ElementsAre(kBytesOfPair + kBytesSending + kBytesReceiving,
                          kBytesOfPair + kBytesReceiving + kBytesSending));
}

// Rank 1 of three: in a group of all, and receiving two values of rank 0.
TEST(CardPathsTest, OfOneRankItsOwnPartitionSays) {
  Partition partition;
  partition.rank = RankId(1);
  partition.mesh.data = 3;
  const ValueId sum = partition.end.AddInput("sum", {ValueKind::kTensor, DType::kFloat32, Shape{4}},
                                             InputRole::kStep);
  GraphBuilder builder(partition.end);
  builder.WeftOp("AllReduce", {sum},
                 {{"group", std::vector<int64_t>{0, 1, 2}},
                  {"axis", std::string("data")},
                  {"algorithm", std::string("ring")}});
  ASSERT_TRUE(builder.status().ok()) << builder.status();
  for (const int id : {4, 5}) {
    Channel channel;
    channel.id = ChannelId(id);
    channel.from = RankId(0);
    channel.to = RankId(1);
    partition.channels.push_back(channel);
  }
  EXPECT_EQ(NcclBytesOfRank(partition, /*strict=*/false), kBytesOfThree + kBytesReceiving);
  EXPECT_EQ(NcclBytesOfRank(partition, /*strict=*/true), kBytesReceiving);
}

}  // namespace
}  // namespace weft
