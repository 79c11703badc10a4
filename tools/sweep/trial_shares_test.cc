#include "tools/sweep/trial_shares.h"

#include <string>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tools/console/exit_code.h"

namespace weft {
namespace {

using ::testing::HasSubstr;
using ::testing::Pair;

// How many shares, and the workers of each.
std::pair<int, int> Cut(const ShareQuestion& question) {
  const auto share = CutWorkers(question);
  EXPECT_TRUE(share.ok()) << share.status();
  if (!share.ok()) return {0, 0};
  EXPECT_LE(share->count * share->workers, question.workers);
  return {share->count, share->workers};
}

TEST(TrialSharesTest, EachWorkerHasATrialWhereNothingElseIsSaid) {
  EXPECT_THAT(Cut({.workers = 4, .trials = 6}), Pair(4, 1));
}

TEST(TrialSharesTest, FewTrialsShareAllWorkersButTheRest) {
  EXPECT_THAT(Cut({.workers = 5, .trials = 2}), Pair(2, 2));
  EXPECT_THAT(Cut({.workers = 5, .trials = 6, .side_by_side = 3}), Pair(3, 1));
}

// Two trials of dp=2 on six workers were given three each, which no such plan takes.
TEST(TrialSharesTest, AShareHasTheWorkersOfThePlan) {
  EXPECT_THAT(Cut({.workers = 6, .needed = 2, .trials = 2}), Pair(2, 2));
  EXPECT_THAT(Cut({.workers = 5, .needed = 2, .trials = 9}), Pair(2, 2));
  EXPECT_THAT(Cut({.workers = 3, .needed = 2, .trials = 9}), Pair(1, 2));
  EXPECT_THAT(Cut({.workers = 8, .needed = 2, .trials = 9, .side_by_side = 3}), Pair(3, 2));
}

TEST(TrialSharesTest, TooFewWorkersForOneTrialAreOneShare) {
  EXPECT_THAT(Cut({.workers = 3, .needed = 4, .trials = 2}), Pair(1, 3));
}

TEST(TrialSharesTest, MoreTrialsAtOnceThanThereAreWorkersFor) {
  const absl::Status local =
      CutWorkers({.workers = 3, .needed = 2, .trials = 4, .side_by_side = 2}).status();
  EXPECT_EQ(ExitCodeOf(local), ExitCode::kUsage);
  EXPECT_EQ(local.message(),
            "--side-by-side 2 needs 4 workers, as the plan has 2 for each, and there are 3; give "
            "--local 4");
  const absl::Status cluster =
      CutWorkers({.workers = 3, .trials = 4, .side_by_side = 4, .of_a_cluster = true}).status();
  EXPECT_THAT(std::string(cluster.message()), HasSubstr("name more in the cluster file"));
}

TEST(TrialSharesTest, APlanNeedsItsMeshOrTheWorkersThatItNames) {
  Plan plan;
  EXPECT_EQ(WorkersNeeded(plan), 0);
  plan.mesh.data = 2;
  plan.mesh.pipeline = 3;
  EXPECT_EQ(WorkersNeeded(plan), 6);
  plan = Plan();
  plan.workers = {2, 0};
  EXPECT_EQ(WorkersNeeded(plan), 3);
}

}  // namespace
}  // namespace weft
