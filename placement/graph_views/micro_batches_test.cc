#include "placement/graph_views/micro_batches.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

using ::testing::ElementsAre;

std::vector<int64_t> Samples(const std::vector<MicroBatch>& micro_batches) {
  std::vector<int64_t> samples;
  for (const MicroBatch& micro_batch : micro_batches) samples.push_back(micro_batch.samples);
  return samples;
}

void ExpectAllCovered(const BatchSplit& split, const Plan& plan) {
  int next = 0;
  for (int replica = 0; replica < plan.mesh.data; ++replica) {
    for (const MicroBatch& micro_batch : split.OfReplica(plan, replica)) {
      EXPECT_EQ(micro_batch.index, next++);
    }
  }
  EXPECT_EQ(next, split.total()) << plan.mesh.data << " replicas";
}

TEST(SplitBatchTest, TheFirstOnesAreOneLonger) {
  const BatchSplit split = *SplitBatch(14, 4);
  EXPECT_THAT(Samples(split.micro_batches), ElementsAre(4, 4, 3, 3));
  EXPECT_THAT(split.sizes, ElementsAre(4, 3));
  EXPECT_EQ(split.micro_batches[2].first, 8);
  EXPECT_EQ(split.micro_batches[2].graph, 1);
}

TEST(SplitBatchTest, EqualSharesAreOneSize) {
  EXPECT_THAT(SplitBatch(12, 4)->sizes, ElementsAre(3));
}

TEST(SplitBatchTest, NoMicroBatchIsEmpty) {
  EXPECT_THAT(Samples(SplitBatch(3, 4)->micro_batches), ElementsAre(1, 1, 1));
}

TEST(SplitBatchTest, ReplicasCoverAllInOrder) {
  for (int total = 1; total <= 9; ++total) {
    const BatchSplit split = *SplitBatch(100, total);
    for (int replicas = 1; replicas <= 12; ++replicas) {
      Plan plan;
      plan.mesh.data = replicas;
      ExpectAllCovered(split, plan);
      for (int replica = 0; replica < replicas; ++replica) plan.shares.push_back(1 + replica % 3);
      ExpectAllCovered(split, plan);
    }
  }
}

TEST(SplitBatchTest, SharesSayHowMuchEachReplicaRuns) {
  const BatchSplit split = *SplitBatch(100, 6);
  Plan plan;
  plan.mesh.data = 3;
  plan.shares = {3, 1, 2};
  EXPECT_EQ(split.OfReplica(plan, 0).size(), 3u);
  EXPECT_EQ(split.OfReplica(plan, 1).size(), 1u);
  EXPECT_EQ(split.OfReplica(plan, 2).size(), 2u);
}

TEST(SplitBatchTest, AStepNeedsASample) {
  EXPECT_EQ(SplitBatch(0, 4).status().message(),
            "a step of 0 samples in 4 micro-batches; expected at least one of both");
  EXPECT_FALSE(SplitBatch(4, 0).ok());
}

}  // namespace
}  // namespace weft
