#include "placement/search/what_if.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

using ::testing::HasSubstr;

ClusterSpec TwoHosts() {
  ClusterSpec cluster;
  for (const char* const host : {"alpha", "alpha", "beta"}) {
    WorkerSpec worker;
    worker.name = "worker:" + std::to_string(cluster.workers.size());
    worker.host = host;
    worker.threads = 2;
    cluster.workers.push_back(worker);
  }
  LinkSpec link;
  link.from = "alpha";
  link.to = "beta";
  link.bandwidth_bytes_per_second = 1e6;
  link.latency_seconds = 1e-3;
  cluster.links.push_back(link);
  return cluster;
}

TEST(WhatIfTest, NodesAreAsTheFirstOne) {
  const ClusterSpec cluster = ClusterWhatIf(TwoHosts(), "nodes=3").value();
  ASSERT_EQ(cluster.workers.size(), 6u);
  EXPECT_EQ(cluster.workers[0].host, cluster.workers[1].host);
  EXPECT_NE(cluster.workers[1].host, cluster.workers[2].host);
  EXPECT_EQ(cluster.workers[5].threads, 2);
  EXPECT_EQ(cluster.workers[5].name, "worker:5");
  ASSERT_EQ(cluster.links.size(), 3u);
  EXPECT_EQ(cluster.links[2].bandwidth_bytes_per_second, 1e6);
}

TEST(WhatIfTest, LinksChange) {
  const ClusterSpec cluster = ClusterWhatIf(TwoHosts(), "link=25Gbit,latency=5us").value();
  ASSERT_EQ(cluster.links.size(), 1u);
  EXPECT_DOUBLE_EQ(cluster.links[0].bandwidth_bytes_per_second, 25e9 / 8);
  EXPECT_DOUBLE_EQ(cluster.links[0].latency_seconds, 5e-6);
}

TEST(WhatIfTest, WorkersChange) {
  const ClusterSpec cluster =
      ClusterWhatIf(TwoHosts(), "workers=4,memory=2GiB,model=A100-80GB").value();
  ASSERT_EQ(cluster.workers.size(), 8u);
  for (const WorkerSpec& worker : cluster.workers) {
    EXPECT_EQ(worker.memory_bytes, int64_t{2} << 30);
    EXPECT_EQ(worker.model, "A100-80GB");
  }
}

// Workers of one card would reach each other through the host.
TEST(WhatIfTest, EachWorkerWithAGpuHasItsOwn) {
  ClusterSpec cluster = TwoHosts();
  for (WorkerSpec& worker : cluster.workers) worker.device = DeviceKind::kCuda;
  cluster.workers[1].device_index = 1;
  const ClusterSpec more = ClusterWhatIf(cluster, "workers=4,nodes=2").value();
  ASSERT_EQ(more.workers.size(), 8u);
  for (size_t i = 0; i < more.workers.size(); ++i) {
    EXPECT_EQ(more.workers[i].device_index, static_cast<int>(i % 4));
  }
}

TEST(WhatIfTest, MistakesAreNamed) {
  const auto message = [](const std::string& text) {
    return std::string(ClusterWhatIf(TwoHosts(), text).status().message());
  };
  EXPECT_THAT(message("node=2"), HasSubstr("unknown key 'node', did you mean 'nodes'?"));
  EXPECT_THAT(message("nodes=none"), HasSubstr("nodes is 'none', not a whole number"));
  EXPECT_THAT(message("nodes=2,nodes=3"), HasSubstr("nodes comes twice"));
  EXPECT_THAT(message("link=fast"), HasSubstr("what-if 'link=fast': "));
  EXPECT_THAT(message("nodes"), HasSubstr("'nodes' is not KEY=VALUE"));
}

}  // namespace
}  // namespace weft
