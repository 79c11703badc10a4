#include "tools/chaos/run_watch.h"

#include <fstream>
#include <ios>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

class RunWatchTest : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const std::string& path : {metrics_, log_}) std::ofstream(path, std::ios::trunc);
  }
  static void Add(const std::string& path, const std::string& text) {
    std::ofstream(path, std::ios::app) << text;
  }
  const std::string metrics_ = ::testing::TempDir() + "/metrics.csv";
  const std::string log_ = ::testing::TempDir() + "/job.log";
  RunWatch watch_{metrics_, log_};
};

TEST_F(RunWatchTest, TakesWholeLinesAsTheyCome) {
  Add(metrics_, "step,loss,learning_rate\n0,2.5,0.1\n1,2.2");
  Add(log_, "plan dp=2\nlost   wor");
  EXPECT_THAT(watch_.Look(), ElementsAre("plan dp=2"));
  EXPECT_EQ(watch_.steps(), 1);
  Add(metrics_, "5,0.1\n");
  Add(log_, "ker:1\n");
  EXPECT_THAT(watch_.Look(), ElementsAre("lost   worker:1"));
  EXPECT_THAT(watch_.losses(), ElementsAre(Pair(0, "2.5"), Pair(1, "2.25")));
  EXPECT_THAT(watch_.Look(), IsEmpty());
  EXPECT_EQ(watch_.complaint(), "");
}

TEST_F(RunWatchTest, BeginsWithTheFirstStepOfAResumedRun) {
  Add(metrics_, "step,loss\n40,1.5\n41,1.4\n");
  watch_.Look();
  EXPECT_EQ(watch_.steps(), 42);
  EXPECT_EQ(watch_.complaint(), "");
}

TEST_F(RunWatchTest, FindsAStepThatIsLeftOutOrDoneAgain) {
  Add(metrics_, "step,loss\n0,1.5\n2,1.4\n");
  watch_.Look();
  EXPECT_EQ(watch_.complaint(), "step 2 is told after step 0");
  RunWatch again(metrics_, log_);
  Add(metrics_, "2,1.3\n");
  again.Look();
  EXPECT_EQ(again.complaint(), "step 2 is told after step 0");
}

TEST(NewsTest, IsWhatTellsOfMembersCheckpointsAndEnds) {
  EXPECT_TRUE(IsLoss("lost   worker:1 (pid 7); 2 of 3 workers go on as dp=2"));
  EXPECT_FALSE(IsLoss("losses differ"));
  EXPECT_TRUE(IsNews("warning: no checkpoint of step 3: disk full; training goes on"));
  EXPECT_TRUE(IsNews("left   worker:1 (pid 7) on purpose; 2 workers instead of 3 go on as dp=2"));
  EXPECT_TRUE(IsNews("resume step 170 from the memory of 2 workers, whose coordinator was lost"));
  EXPECT_FALSE(IsNews("memory worker:0 needs 3 MiB"));
}

}  // namespace
}  // namespace weft
