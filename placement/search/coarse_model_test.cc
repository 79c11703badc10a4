#include "placement/search/coarse_model.h"

#include <random>
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
TEST(CoarseModelTest, BucketsOfMeanSizeTakeNearlyAsLong) {
  std::mt19937_64 random(3);
  double worst = 0;
  for (int round = 0; round < 200; ++round) {
    const int hosts = 2 + static_cast<int>(random() % 5);
    const CostModel cost = ClusterOf(hosts, round % 2 == 0 ? 1e8 : 1e10);
    CollectiveCosts collectives(cost);
    std::vector<int> workers;
    for (int i = 0; i < hosts; ++i) workers.push_back(i);
    CollectiveTotal buckets;
    double exact = 0;
    for (int i = 0; i < 1 + static_cast<int>(random() % 12); ++i) {
      const int64_t bytes =
          8 + static_cast<int64_t>(random() % (int64_t{1} << (3 + random() % 22)));
      ++buckets.collectives;
      buckets.bytes += bytes;
      exact += collectives.Seconds({CollectiveKind::kAllReduce, bytes}, workers);
    }
    const double mean = SecondsOfBuckets(buckets, workers, collectives);
    EXPECT_GE(mean, 0.9 * exact) << "round " << round;
    EXPECT_LE(mean, 1.4 * exact) << "round " << round;
    worst = std::max(worst, mean / exact);
  }
  EXPECT_GT(worst, 1.0);  // there is something to be off by
}

TEST(CoarseModelTest, NoBucketsTakeNoTime) {
  const CostModel cost = ClusterOf(2, 1e9);
  CollectiveCosts collectives(cost);
  EXPECT_EQ(SecondsOfBuckets({}, {0, 1}, collectives), 0);
}

}  // namespace
}  // namespace weft
