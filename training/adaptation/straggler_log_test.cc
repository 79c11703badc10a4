#include "training/adaptation/straggler_log.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "platform/testing/fake_clock.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class StragglerLogTest : public ::testing::Test {
 protected:
  void Change(SpeedChange::Kind kind, const std::string& line, double factor = 2) {
    SpeedChange change;
    change.kind = kind;
    change.rank = 1;
    change.factor = factor;
    log_.Add(change, "worker:1", line);
  }
  void Slower(const std::string& line, double factor = 2) {
    Change(SpeedChange::Kind::kSlower, line, factor);
  }
  void Recovered(const std::string& line) { Change(SpeedChange::Kind::kRecovered, line, 1); }
  // A step each tenth of a second.
  void Pass(absl::Duration duration) {
    for (absl::Duration passed; passed < duration; passed += absl::Milliseconds(100)) {
      clock_.Advance(absl::Milliseconds(100));
      log_.Update();
    }
  }

  testing::FakeClock clock_;
  std::vector<std::string> lines_;
  StragglerLog log_{clock_, [this](const std::string& line) { lines_.push_back(line); }};
};

// On a busy machine each such moment was two lines: 20 in ten seconds.
TEST_F(StragglerLogTest, MomentsAreNotWorthALine) {
  for (int i = 0; i < 20; ++i) {
    Slower("slow");
    Pass(absl::Milliseconds(50));
    Recovered("as before");
    Pass(absl::Milliseconds(400));
  }
  EXPECT_THAT(lines_, IsEmpty());
}

TEST_F(StragglerLogTest, MomentsAreSummedUpAtTheEnd) {
  for (int i = 0; i < 20; ++i) {
    Slower("slow", i == 7 ? 3 : 1.5);
    Pass(absl::Milliseconds(200));
    Recovered("as before");
    Pass(absl::Milliseconds(300));
  }
  log_.Finish();
  EXPECT_THAT(lines_, ElementsAre("slow   worker:1 in all: slower than usual 20 times, for 4.0 of "
                                  "10.0 s, at most 3.0 times"));
}

TEST_F(StragglerLogTest, OneThatLastsGetsALine) {
  Slower("three times slower", 3);
  Pass(StragglerLog::kLasting);
  EXPECT_THAT(lines_, ElementsAre("three times slower"));
  Pass(absl::Seconds(60));
  EXPECT_THAT(lines_, SizeIs(1));
}

TEST_F(StragglerLogTest, ThenThereIsALineInHalfAMinuteAtMost) {
  Slower("first");
  Pass(StragglerLog::kLasting);
  for (int i = 0; i < 40; ++i) {  // a minute
    Recovered("as before");
    Pass(absl::Milliseconds(500));
    Slower("slow again");
    Pass(absl::Seconds(1));
  }
  EXPECT_THAT(lines_, SizeIs(3));
}

TEST_F(StragglerLogTest, WhoIsSlowWhenTheRunEndsIsNamed) {
  Slower("slow since the last step but one");
  Pass(absl::Milliseconds(300));
  log_.Finish();
  EXPECT_THAT(lines_, ElementsAre("slow since the last step but one"));
}

TEST_F(StragglerLogTest, WhoIsRelievedIsNamedAtOnce) {
  Slower("slow");
  log_.SayWhoIsSlow();
  log_.SayWhoIsSlow();
  EXPECT_THAT(lines_, ElementsAre("slow"));
}

TEST_F(StragglerLogTest, RecoveryIsSaidOfThoseThatWereNamed) {
  Slower("slow");
  Pass(StragglerLog::kLasting);
  Recovered("as before");
  Pass(StragglerLog::kInterval);
  EXPECT_THAT(lines_, ElementsAre("slow", "as before"));
}

}  // namespace
}  // namespace weft
