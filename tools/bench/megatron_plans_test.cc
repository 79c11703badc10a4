// The simulator attains what the paper's authors measured, and the search plans that are as good.
#include "tools/bench/megatron_plans.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace weft {
namespace {

constexpr double kMaxOff = 0.1;

std::string NameOf(const MegatronRun& run) {
  std::string name = run.name;
  std::replace(name.begin(), name.end(), '.', '_');
  return name;
}

class MegatronPlansTest : public ::testing::TestWithParam<MegatronRun> {};

TEST_P(MegatronPlansTest, TakeAsLongAsPublished) {
  const MegatronRun& run = GetParam();
  const auto job = MegatronJob::Create(run);
  ASSERT_TRUE(job.ok()) << job.status();
  const auto hand = (*job)->HandMade();
  ASSERT_TRUE(hand.ok()) << hand.status();
  EXPECT_TRUE(hand->fits) << hand->memory_bytes << " bytes";
  const double attained = MegatronUtilisation(run, hand->step_seconds) / MegatronPublished(run);
  EXPECT_LE(std::abs(attained - 1), kMaxOff) << "simulated / published is " << attained;
}

INSTANTIATE_TEST_SUITE_P(Table1, MegatronPlansTest,
                         ::testing::ValuesIn(MegatronRuns().begin(), MegatronRuns().end()),
                         [](const auto& info) { return NameOf(info.param); });

// The larger ones take a search of half a minute each: `megatron_table --searched` has them too.
constexpr int kMaxGpus = 1536;

class MegatronSearchTest : public ::testing::TestWithParam<MegatronRun> {};

TEST_P(MegatronSearchTest, FindsAPlanThatIsAsGoodAsTheHandMadeOne) {
  const auto job = MegatronJob::Create(GetParam());
  ASSERT_TRUE(job.ok()) << job.status();
  const auto hand = (*job)->HandMade();
  ASSERT_TRUE(hand.ok()) << hand.status();
  const auto found = (*job)->Searched();
  ASSERT_TRUE(found.ok()) << found.status();
  const PlanCandidate& chosen = found->chosen;
  EXPECT_TRUE(chosen.fits) << chosen.memory_bytes << " bytes";
  EXPECT_LE(chosen.memory_bytes, chosen.memory_limit);
  EXPECT_EQ(chosen.choice.mesh.size(), GetParam().gpus);
  EXPECT_LE(chosen.step_seconds, hand->step_seconds)
      << ParallelText(chosen.choice) << " instead of " << ParallelText(hand->choice);
}

std::vector<MegatronRun> QuickRuns() {
  std::vector<MegatronRun> runs;
  for (const MegatronRun& run : MegatronRuns()) {
    if (run.gpus <= kMaxGpus) runs.push_back(run);
  }
  return runs;
}

INSTANTIATE_TEST_SUITE_P(Table1, MegatronSearchTest, ::testing::ValuesIn(QuickRuns()),
                         [](const auto& info) { return NameOf(info.param); });

// The paper's numbers of parameters and its formula agree with its table's aggregate values.
TEST(MegatronRunsTest, TheLargestStepHasTheFlopsOfThePaper) {
  const MegatronRun& run = MegatronRuns().back();
  // 1.008e12 parameters, 8 FLOPs for each and token, besides attention's products.
  const double by_parameters = 8 * 1.008e12 * static_cast<double>(run.batch) * 2048;
  EXPECT_NEAR(MegatronFlops(run) / by_parameters, 1, 0.02);
}

}  // namespace
}  // namespace weft
