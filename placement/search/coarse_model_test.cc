#include "placement/search/coarse_model.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "placement/cost/cost_model.h"

namespace weft {
namespace {

// Hosts of one worker with a slow or a fast link between any two.
CostModel ClusterOf(int hosts, double bytes_per_second) {
  ClusterSpec cluster;
  for (int i = 0; i < hosts; ++i) {
    WorkerSpec worker;
    worker.name = "worker:" + std::to_string(i);
    worker.host = "host" + std::to_string(i);
    worker.address = worker.host + ":4000";
    cluster.workers.push_back(worker);
  }
  LinkSpec link;
  link.from = link.to = "*";
  link.bandwidth_bytes_per_second = bytes_per_second;
  link.latency_seconds = 1e-4;
  cluster.links = {link};
  return CostModel::OfSpec(cluster).value();
}

// Buckets of a model's gradients: of a few bytes to a few times the largest that share one.
TEST(CoarseModelTest, RoundedBucketsTakeAsLong) {
  std::mt19937_64 random(3);
  double worst = 0;
  for (int round = 0; round < 200; ++round) {
    const int hosts = 2 + static_cast<int>(random() % 5);
    const CostModel cost = ClusterOf(hosts, round % 2 == 0 ? 1e8 : 1e10);
    CollectiveCosts collectives(cost);
    std::vector<int> workers;
    for (int i = 0; i < hosts; ++i) workers.push_back(i);
    PlaceSums sums;
    double exact = 0;
    const int buckets = 1 + static_cast<int>(random() % 12);
    for (int i = 0; i < buckets; ++i) {
      const int64_t bytes =
          8 + static_cast<int64_t>(random() % (uint64_t{1} << (3 + random() % 22)));
      sums.sums.push_back({bytes});
      sums.groups.later.push_back({{i}});
      exact += collectives.Seconds({CollectiveKind::kAllReduce, bytes}, workers);
    }
    const double rounded = SecondsOfBuckets(sums, workers, collectives);
    EXPECT_NEAR(rounded / exact, 1, 1.0 / 16) << "round " << round;
    worst = std::max(worst, std::abs(rounded / exact - 1));
  }
  EXPECT_GT(worst, 0.001);  // there is something to be off by
}

TEST(CoarseModelTest, WhatIsScatteredIsNoBucket) {
  const CostModel cost = ClusterOf(2, 1e9);
  CollectiveCosts collectives(cost);
  PlaceSums sums;
  sums.sums = {{1000, DType::kFloat32, true}};
  sums.groups.later = {{{0}, true}};
  EXPECT_EQ(SecondsOfBuckets(sums, {0, 1}, collectives), 0);
}

}  // namespace
}  // namespace weft
