#include "tools/flags/cluster_share.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "placement/cost/cluster_profile.h"
#include "placement/files/plan_file.h"

namespace weft {
namespace {

using ::testing::ElementsAre;

constexpr int kCores = 8;

// Five workers of two hosts, with a link between these and one within each.
constexpr char kTwoHosts[] = R"(
hosts:
  - name: a
    workers:
      - {address: "a:1"}
      - {address: "a:2", threads: 3}
      - {address: "a:3"}
  - name: b
    workers:
      - {address: "b:1"}
      - {address: "b:2"}
links:
  - {within: a, latency: 1us}
  - {within: b, latency: 2us}
  - {from: a, to: b, latency: 5us}
  - {from: "*", to: "*", latency: 9us}
)";

ClusterSpec TwoHosts() { return ParseClusterFile(kTwoHosts, "c.yaml").value(); }

std::vector<std::string> AddressesOf(const ClusterSpec& cluster) {
  std::vector<std::string> addresses;
  for (const WorkerSpec& worker : cluster.workers) addresses.push_back(worker.address);
  return addresses;
}

TEST(ClusterShareTest, SharesHaveNeighboursAndTheRestIsNobodys) {
  EXPECT_THAT(AddressesOf(ShareOf(TwoHosts(), {0, 2, 2}, kCores)), ElementsAre("a:1", "a:2"));
  EXPECT_THAT(AddressesOf(ShareOf(TwoHosts(), {1, 2, 2}, kCores)), ElementsAre("a:3", "b:1"));
}

// A share with a link to a host that it is not on was refused: no worker is on it.
TEST(ClusterShareTest, EachShareIsAValidCluster) {
  for (const int workers : {1, 2, 3, 4}) {
    const int count = 5 / workers;
    for (int index = 0; index < count; ++index) {
      const ClusterSpec share = ShareOf(TwoHosts(), {index, count, workers}, kCores);
      const auto profile = ProfileOfSpec(share);
      EXPECT_TRUE(profile.ok()) << profile.status();
      const auto read = ParseClusterFile(ClusterToYaml(share), "c.yaml");
      ASSERT_TRUE(read.ok()) << read.status();
      EXPECT_EQ(*read, share);
    }
  }
}

TEST(ClusterShareTest, AShareKeepsTheLinksOfItsHosts) {
  const auto latencies = [](const ClusterSpec& cluster) {
    std::vector<int> microseconds;
    for (const LinkSpec& link : cluster.links) {
      microseconds.push_back(static_cast<int>(link.latency_seconds * 1e6 + 0.5));
    }
    return microseconds;
  };
  EXPECT_THAT(latencies(ShareOf(TwoHosts(), {0, 2, 2}, kCores)), ElementsAre(1, 9));
  EXPECT_THAT(latencies(ShareOf(TwoHosts(), {1, 2, 2}, kCores)), ElementsAre(1, 2, 5, 9));
}

// 8 cores of each host: 2 for each of three workers, 4 for each of two.
TEST(ClusterShareTest, WorkersHaveTheThreadsThatAllOthersLeave) {
  std::vector<int> threads;
  for (int index = 0; index < 5; ++index) {
    threads.push_back(ShareOf(TwoHosts(), {index, 5, 1}, kCores).workers.front().threads);
  }
  EXPECT_THAT(threads, ElementsAre(2, 3, 2, 4, 4));
}

TEST(ClusterShareTest, WorkersThatWeStartAreNamedAsIfAlone) {
  const ClusterSpec share = ShareOf(ClusterSpec::Local(4, 2), {1, 2, 2}, kCores);
  EXPECT_EQ(share, ClusterSpec::Local(2, 2));
}

TEST(ClusterShareTest, AllWorkersAreTheClusterItself) {
  EXPECT_EQ(ShareOf(TwoHosts(), {}, kCores), TwoHosts());
  EXPECT_EQ(ShareOf(TwoHosts(), {0, 1, 5}, kCores), TwoHosts());
  EXPECT_THAT(WorkersOf({}, 3), ElementsAre(0, 1, 2));
}

TEST(ClusterShareTest, SharesOfOtherThreadsOrPlacesDiffer) {
  EXPECT_TRUE(SharesAreAlike(ClusterSpec::Local(5, 1), {0, 2, 2}, kCores));
  EXPECT_FALSE(SharesAreAlike(TwoHosts(), {0, 5, 1}, kCores));
  ClusterSpec even = TwoHosts();
  for (WorkerSpec& worker : even.workers) worker.threads = 1;
  EXPECT_TRUE(SharesAreAlike(even, {0, 5, 1}, kCores));
  // The second one has a worker on each host.
  EXPECT_FALSE(SharesAreAlike(even, {0, 2, 2}, kCores));
}

}  // namespace
}  // namespace weft
