#include "training/recovery/survivor_plan.h"

#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

Plan PlanOf(Mesh mesh) {
  Plan plan;
  plan.mesh = mesh;
  plan.micro_batches = 8;
  plan.workers.resize(static_cast<size_t>(mesh.size()));
  std::iota(plan.workers.begin(), plan.workers.end(), 10);
  return plan;
}

std::vector<int> AllBut(const Plan& plan, const std::vector<int>& lost) {
  std::vector<int> left;
  for (int rank = 0; rank < plan.mesh.size(); ++rank) {
    if (std::find(lost.begin(), lost.end(), rank) == lost.end()) left.push_back(rank);
  }
  return left;
}

TEST(SurvivorPlanTest, ThreeOfFourReplicasShareTheBatch) {
  Plan plan = PlanOf({.data = 4});
  plan.rank_threads = {1, 2, 3, 4};
  const auto survivors = PlanWithout(plan, AllBut(plan, {1}));
  ASSERT_TRUE(survivors.ok()) << survivors.status();
  EXPECT_EQ(survivors->plan.mesh, (Mesh{.data = 3}));
  EXPECT_THAT(survivors->ranks, ElementsAre(0, 2, 3));
  EXPECT_THAT(survivors->plan.workers, ElementsAre(10, 12, 13));
  EXPECT_THAT(survivors->plan.rank_threads, ElementsAre(1, 3, 4));
  EXPECT_EQ(survivors->plan.micro_batches, 8);
  EXPECT_THAT(survivors->plan.shares, IsEmpty());
  // All micro-batches are somebody's: 2, 3 and 3.
  EXPECT_EQ(survivors->plan.FirstMicroBatch(1, 8), 2);
  EXPECT_EQ(survivors->plan.FirstMicroBatch(2, 8), 5);
  EXPECT_EQ(survivors->plan.FirstMicroBatch(3, 8), 8);
}

TEST(SurvivorPlanTest, SharesKeepTheirProportion) {
  Plan plan = PlanOf({.data = 3});
  plan.shares = {4, 3, 1};
  const auto survivors = PlanWithout(plan, AllBut(plan, {1}));
  ASSERT_TRUE(survivors.ok()) << survivors.status();
  EXPECT_THAT(survivors->plan.shares, ElementsAre(4, 1));
}

// Every rank that stays has the stage and the shard that it had, whoever is lost.
TEST(SurvivorPlanTest, RanksKeepTheirStageAndShard) {
  for (const Mesh mesh :
       {Mesh{.data = 3, .tensor = 2, .pipeline = 2}, Mesh{2, 1, 3}, Mesh{2, 4, 1}}) {
    const Plan plan = PlanOf(mesh);
    for (int lost = 0; lost < mesh.size(); ++lost) {
      const auto survivors = PlanWithout(plan, AllBut(plan, {lost}));
      ASSERT_TRUE(survivors.ok()) << survivors.status();
      const Mesh& next = survivors->plan.mesh;
      EXPECT_EQ(next, (Mesh{mesh.data - 1, mesh.tensor, mesh.pipeline}));
      ASSERT_EQ(static_cast<int>(survivors->ranks.size()), next.size());
      for (int rank = 0; rank < next.size(); ++rank) {
        const Mesh::Coordinate now = next.CoordinateOf(RankId(rank));
        const Mesh::Coordinate before =
            mesh.CoordinateOf(RankId(survivors->ranks[static_cast<size_t>(rank)]));
        EXPECT_EQ(now.tensor, before.tensor);
        EXPECT_EQ(now.pipeline, before.pipeline);
        EXPECT_EQ(now.data, before.data - (before.data > mesh.CoordinateOf(RankId(lost)).data));
      }
    }
  }
}

TEST(SurvivorPlanTest, WhatMixesSamplesHasOneMicroBatchAReplica) {
  Plan plan = PlanOf({.data = 4});
  plan.whole_batch = true;
  plan.micro_batches = 4;
  const auto survivors = PlanWithout(plan, AllBut(plan, {0, 3}));
  ASSERT_TRUE(survivors.ok()) << survivors.status();
  EXPECT_EQ(survivors->plan.micro_batches, 2);
}

// The ranks of the plan that was are those of the wider one, without the further replicas.
TEST(SurvivorPlanTest, FurtherReplicasAreLikeTheFirst) {
  Plan plan = PlanOf({.data = 2, .tensor = 1, .pipeline = 2});
  plan.workers = {3, 1, 0, 5};
  plan.hosts = {0, 0, 1, 1};
  plan.rank_threads = {1, 2, 3, 4};
  plan.shares = {1, 3};
  const Plan wide = PlanWithMore(plan, 2);
  EXPECT_EQ(wide.mesh, (Mesh{.data = 4, .tensor = 1, .pipeline = 2}));
  EXPECT_THAT(wide.workers, ElementsAre(3, 1, 6, 7, 0, 5, 8, 9)) << "each once";
  EXPECT_THAT(wide.hosts, ElementsAre(0, 0, 2, 3, 1, 1, 2, 3));
  EXPECT_THAT(wide.rank_threads, ElementsAre(1, 2, 1, 1, 3, 4, 3, 3));
  EXPECT_THAT(wide.shares, ElementsAre(1, 3, 2, 2));
  EXPECT_EQ(wide.micro_batches, plan.micro_batches);
  const auto back = PlanWithout(wide, {0, 1, 4, 5});
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(back->plan.mesh, plan.mesh);
  EXPECT_EQ(back->plan.workers, plan.workers);
  EXPECT_EQ(back->plan.shares, plan.shares);
}

TEST(SurvivorPlanTest, StateThatNobodyHasIsToldOf) {
  const Plan stages = PlanOf({.data = 2, .tensor = 1, .pipeline = 2});
  const absl::Status no_replica = PlanWithout(stages, AllBut(stages, {0, 3})).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(no_replica)) << no_replica;
  EXPECT_THAT(std::string(no_replica.message()), HasSubstr("no replica of the model is whole"));
  Plan zero = PlanOf({.data = 4});
  zero.zero = 1;
  const absl::Status parts = PlanWithout(zero, AllBut(zero, {1})).status();
  EXPECT_THAT(std::string(parts.message()), HasSubstr("zero=1"));
}

// The state comes from elsewhere: any worker may have any part.
TEST(PlanForFewerTest, ReplicasGoFirst) {
  Plan plan = PlanOf({.data = 4});
  plan.zero = 3;
  plan.hosts = {0, 0, 1, 1};
  plan.rank_threads = {1, 2, 3, 4};
  const auto fewer = PlanForFewer(plan, AllBut(plan, {1}));
  ASSERT_TRUE(fewer.ok()) << fewer.status();
  EXPECT_EQ(fewer->plan.mesh, (Mesh{.data = 3}));
  EXPECT_EQ(fewer->plan.zero, 3);
  EXPECT_EQ(fewer->plan.micro_batches, 8);
  EXPECT_THAT(fewer->ranks, ElementsAre(0, 2, 3));
  EXPECT_THAT(fewer->plan.workers, ElementsAre(10, 12, 13));
  EXPECT_THAT(fewer->plan.hosts, ElementsAre(0, 1, 1));
  EXPECT_THAT(fewer->plan.rank_threads, ElementsAre(1, 3, 4));
  // Stages of two replicas make one up.
  const Plan stages = PlanOf({.data = 2, .tensor = 1, .pipeline = 2});
  const auto one = PlanForFewer(stages, AllBut(stages, {0, 3}));
  ASSERT_TRUE(one.ok()) << one.status();
  EXPECT_EQ(one->plan.mesh, (Mesh{.data = 1, .tensor = 1, .pipeline = 2}));
  EXPECT_THAT(one->ranks, ElementsAre(1, 2));
  // One more than a replica has no work.
  const auto three = PlanForFewer(stages, AllBut(stages, {3}));
  ASSERT_TRUE(three.ok()) << three.status();
  EXPECT_THAT(three->ranks, ElementsAre(0, 1));
}

TEST(PlanForFewerTest, StagesThatWereBesideEachOtherBecomeOne) {
  Plan plan = PlanOf({.data = 1, .tensor = 1, .pipeline = 4});
  plan.schedule = "1f1b";
  plan.stages = {{"a", 0}, {"b", 1}, {"c", 2}, {"d", 3}};
  plan.pins = {{"d", "worker:3"}};
  const auto three = PlanForFewer(plan, AllBut(plan, {2}));
  ASSERT_TRUE(three.ok()) << three.status();
  EXPECT_EQ(three->plan.mesh, (Mesh{.data = 1, .tensor = 1, .pipeline = 3}));
  EXPECT_EQ(three->plan.stages,
            (std::map<std::string, int>{{"a", 0}, {"b", 0}, {"c", 1}, {"d", 2}}));
  EXPECT_EQ(three->plan.schedule, "1f1b");
  EXPECT_THAT(three->plan.pins, IsEmpty());
  const auto one = PlanForFewer(plan, {3});
  ASSERT_TRUE(one.ok()) << one.status();
  EXPECT_EQ(one->plan.mesh, Mesh());
  EXPECT_EQ(one->plan.stages, (std::map<std::string, int>{{"a", 0}, {"b", 0}, {"c", 0}, {"d", 0}}));
  EXPECT_EQ(one->plan.schedule, "gpipe");
  // Of several stages a rank.
  plan.chunks = 2;
  plan.schedule = "interleaved";
  plan.stages["e"] = 7;
  const auto chunks = PlanForFewer(plan, AllBut(plan, {0, 1}));
  ASSERT_TRUE(chunks.ok()) << chunks.status();
  EXPECT_EQ(chunks->plan.chunks, 1);
  EXPECT_EQ(chunks->plan.schedule, "1f1b");
  EXPECT_EQ(chunks->plan.stages.at("e"), 1);
  EXPECT_EQ(chunks->plan.stages.at("d"), 0);
}

TEST(PlanForFewerTest, ShardsOfAStrictPlanStay) {
  Plan plan = PlanOf({.data = 1, .tensor = 2, .pipeline = 2});
  plan.tensor_shardings = {{"w", AxisSharding::Split(0)}};
  plan.strict = true;
  const auto two = PlanForFewer(plan, {1, 2});
  ASSERT_TRUE(two.ok()) << two.status();
  EXPECT_EQ(two->plan.mesh, (Mesh{.data = 1, .tensor = 2, .pipeline = 1}));
  EXPECT_EQ(two->plan.tensor_shardings.size(), 1u);
  const absl::Status one = PlanForFewer(plan, {2}).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(one)) << one;
  EXPECT_THAT(std::string(one.message()), HasSubstr("keeps its 2 shards (tp)"));
  plan.strict = false;
  const auto alone = PlanForFewer(plan, {2});
  ASSERT_TRUE(alone.ok()) << alone.status();
  EXPECT_EQ(alone->plan.mesh, Mesh());
  EXPECT_THAT(alone->plan.tensor_shardings, IsEmpty());
  EXPECT_TRUE(absl::IsUnavailable(PlanForFewer(plan, {}).status()));
}

TEST(PlanForFewerTest, WithAllItIsThePlan) {
  Plan plan = PlanOf({.data = 2, .tensor = 1, .pipeline = 2});
  plan.shares = {3, 1};
  const auto all = PlanForFewer(plan, AllBut(plan, {}));
  ASSERT_TRUE(all.ok()) << all.status();
  EXPECT_EQ(all->plan.mesh, plan.mesh);
  EXPECT_THAT(all->plan.shares, ElementsAre(3, 1));
  EXPECT_THAT(all->ranks, ElementsAre(0, 1, 2, 3));
}

}  // namespace
}  // namespace weft
