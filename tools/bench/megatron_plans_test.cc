// The simulator attains what the paper's authors measured.
#include "tools/bench/megatron_plans.h"

#include <cmath>
#include <string>

#include "gtest/gtest.h"

namespace weft {
namespace {

constexpr double kMostOff = 0.1;

class MegatronPlansTest : public ::testing::TestWithParam<MegatronRun> {};

TEST_P(MegatronPlansTest, TakeAsLongAsPublished) {
  const MegatronRun& run = GetParam();
  const auto job = MegatronJob::Create(run);
  ASSERT_TRUE(job.ok()) << job.status();
  const auto hand = (*job)->HandMade();
  ASSERT_TRUE(hand.ok()) << hand.status();
  EXPECT_TRUE(hand->fits) << hand->memory_bytes << " bytes";
  const double attained = MegatronUtilisation(run, hand->step_seconds) / MegatronPublished(run);
  EXPECT_LE(std::abs(attained - 1), kMostOff) << "simulated / published is " << attained;
}

INSTANTIATE_TEST_SUITE_P(Table1, MegatronPlansTest,
                         ::testing::ValuesIn(MegatronRuns().begin(), MegatronRuns().end()),
                         [](const auto& info) {
                           std::string name = info.param.name;
                           for (char& c : name) c = c == '.' ? '_' : c;
                           return name;
                         });

// The paper's numbers of parameters and its formula agree with its table's aggregate figures.
TEST(MegatronRunsTest, TheLargestStepHasTheFlopsOfThePaper) {
  const MegatronRun& run = MegatronRuns().back();
  // 1.008e12 parameters, 8 FLOPs for each and token, besides attention's products.
  const double by_parameters = 8 * 1.008e12 * static_cast<double>(run.batch) * 2048;
  EXPECT_NEAR(MegatronFlops(run) / by_parameters, 1, 0.02);
}

}  // namespace
}  // namespace weft
