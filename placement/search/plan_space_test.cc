#include "placement/search/plan_space.h"

#include <set>
#include <vector>

#include "gtest/gtest.h"
#include "ops/node_runner.h"
#include "placement/search/plan_evaluator.h"
#include "placement/search/testing/layers.h"

namespace weft {
namespace {

TEST(PlanSpaceTest, MicroBatchesAreEqualWhereTheyCanBe) {
  const Layers model(4, 64);
  SearchOptions options;
  options.global_batch = 280;
  const CostModel cost = CostModel::OfSpec(ClusterOf(1, 2, 1e10)).value();
  const auto plans =
      PlanEvaluator::Create(model.graph(), cost, options, CpuNodeEvaluator()).value();
  std::set<int> counts;
  for (const PlanChoice& choice : AllChoices(PlanSpace(*plans))) {
    EXPECT_EQ(280 % choice.micro_batches, 0) << ParallelText(choice);
    counts.insert(choice.micro_batches);
  }
  EXPECT_TRUE(counts.contains(280)) << "one sample each";
}

TEST(PlanSpaceTest, AWholeBatchIsCutOverReplicasAlone) {
  const Layers model(4, 64);
  const CostModel cost = CostModel::OfSpec(ClusterOf(1, 4, 1e10)).value();
  SearchOptions options;
  options.global_batch = 24;
  options.may_leave_out = true;
  options.given.whole_batch = true;
  for (const int max_replicas : {0, 1}) {
    options.max_replicas = max_replicas;
    const auto plans =
        PlanEvaluator::Create(model.graph(), cost, options, CpuNodeEvaluator()).value();
    std::set<int> replicas;
    for (const PlanChoice& choice : AllChoices(PlanSpace(*plans))) {
      EXPECT_EQ(choice.micro_batches, choice.mesh.data) << ParallelText(choice);
      replicas.insert(choice.mesh.data);
    }
    EXPECT_EQ(replicas, (max_replicas == 1 ? std::set<int>{1} : std::set<int>{1, 2, 3, 4}));
  }
}

TEST(PlanSpaceTest, SharesOfUnequalWorkersAreMovedByOne) {
  const Layers model(4, 256);
  SearchOptions options;
  options.global_batch = 24;
  const auto shares_beside = [&](const CostModel& cost) {
    const auto plans =
        PlanEvaluator::Create(model.graph(), cost, options, CpuNodeEvaluator()).value();
    PlanChoice equal;
    equal.mesh = {2, 1, 1};
    equal.micro_batches = 12;
    equal.workers = {0, 1};
    std::set<std::vector<int>> shares;
    for (const PlanChoice& other : PlanSpace(*plans).Neighbours(equal)) {
      if (other.micro_batches == 12 && !other.shares.empty()) shares.insert(other.shares);
    }
    return shares;
  };
  const CostModel equal_workers = CostModel::OfSpec(ClusterOf(1, 2, 1e10)).value();
  EXPECT_TRUE(shares_beside(equal_workers).empty());
  ClusterProfile profile = equal_workers.profile();
  profile.devices.resize(1);
  profile.devices.push_back(profile.devices[0]);
  profile.devices[1].name = "slower";
  for (auto& [dtype, curve] : profile.devices[1].contraction) {
    for (RateCurve::Point& point : curve.points) point.per_second *= 0.99;
  }
  profile.device_of = {0, 1};
  const std::set<std::vector<int>> expected = {{5, 7}, {7, 5}};
  EXPECT_EQ(shares_beside(CostModel::Create(profile).value()), expected);
}

}  // namespace
}  // namespace weft
