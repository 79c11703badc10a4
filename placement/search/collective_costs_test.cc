#include "placement/search/collective_costs.h"

#include <algorithm>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "graph/cluster_spec.h"
#include "gtest/gtest.h"
#include "placement/cost/cost_model.h"

namespace weft {
namespace {

// Hosts of one to three workers, some of them slower, with a few links that differ from the others.
CostModel RandomCluster(std::mt19937_64& random) {
  ClusterSpec cluster;
  const auto add_link = [&](const std::string& from, const std::string& to, double speed) {
    LinkSpec link;
    link.from = from;
    link.to = to;
    link.bandwidth_bytes_per_second = speed;
    link.latency_seconds = 1e-4;
    cluster.links.push_back(link);
  };
  add_link("*", "*", 1e9);
  for (int host = 0; host < 6; ++host) {
    const std::string name = "host" + std::to_string(host);
    const int threads = random() % 3 == 0 ? 1 : 8;
    for (uint64_t i = 0; i < 1 + random() % 3; ++i) {
      WorkerSpec worker;
      worker.name = "worker:" + std::to_string(cluster.workers.size());
      worker.host = name;
      worker.address = name + ":" + std::to_string(4000 + i);
      worker.threads = threads;
      cluster.workers.push_back(worker);
    }
    if (host > 0 && random() % 3 == 0) add_link(name, "host0", 1e8);
  }
  return CostModel::OfSpec(cluster).value();
}

std::vector<int> RandomGroup(int workers, std::mt19937_64& random) {
  std::vector<int> group;
  for (int worker = 0; worker < workers; ++worker) group.push_back(worker);
  std::shuffle(group.begin(), group.end(), random);
  group.resize(2 + random() % std::min<size_t>(4, group.size() - 1));
  return group;
}

// Places of a pipeline have groups of other workers each. What one that is alike took is said of it
// only where the cost model says the same.
TEST(CollectiveCostsTest, GroupsThatAreAlikeTakeAlike) {
  std::mt19937_64 random(5);
  for (int round = 0; round < 20; ++round) {
    const CostModel cost = RandomCluster(random);
    CollectiveCosts all(cost);
    for (int i = 0; i < 60; ++i) {
      const std::vector<int> group = RandomGroup(cost.num_workers(), random);
      for (const CollectiveKind kind :
           {CollectiveKind::kAllReduce, CollectiveKind::kGatherOrScatter,
            CollectiveKind::kAllToAll}) {
        const CollectiveUse use = {kind, int64_t{1} << (10 + random() % 2 * 10)};
        EXPECT_EQ(all.Seconds(use, group), CollectiveCosts(cost).Seconds(use, group))
            << "round " << round << ", group " << i;
      }
    }
  }
}

}  // namespace
}  // namespace weft
