#include "platform/log.h"

#include <unistd.h>

#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::IsEmpty;
using ::testing::MatchesRegex;
using ::testing::SizeIs;

class LogTest : public ::testing::Test {
 protected:
  LogTest() {
    SetLogSink([this](const std::string& line) { lines_.push_back(line); });
  }
  ~LogTest() override {
    SetLogSink(nullptr);
    SetLogLevel(LogLevel::kError);
    SetLogName("");
  }
  std::vector<std::string> lines_;
};

TEST_F(LogTest, ALevelHasThoseBeforeIt) {
  const std::vector<LogLevel> levels = {LogLevel::kError, LogLevel::kWarning, LogLevel::kInfo,
                                        LogLevel::kDebug};
  for (size_t set = 0; set < levels.size(); ++set) {
    lines_.clear();
    SetLogLevel(levels[set]);
    for (const LogLevel level : levels) Log(level, "x");
    EXPECT_THAT(lines_, SizeIs(set + 1));
  }
}

TEST_F(LogTest, ErrorsAloneAreTheLevelWithoutAWord) {
  Log(LogLevel::kWarning, "x");
  LoggedPhase phase("plan");
  phase.End();
  EXPECT_THAT(lines_, IsEmpty());
}

TEST_F(LogTest, ALineSaysWhenAndWho) {
  SetLogLevel(LogLevel::kInfo);
  SetLogName("worker:1");
  Log(LogLevel::kInfo, "joined job ", 7);
  ASSERT_THAT(lines_, SizeIs(1));
  EXPECT_THAT(lines_[0],
              MatchesRegex("20[0-9][0-9]-[0-9][0-9]-[0-9][0-9] [0-9][0-9]:[0-9][0-9]:[0-9][0-9]"
                           "\\.[0-9]+ info [0-9]+ worker:1: joined job 7"));
  EXPECT_NE(lines_[0].find(" " + std::to_string(getpid()) + " "), std::string::npos);
}

TEST_F(LogTest, NamesFromFilesSteerNoTerminal) {
  SetLogLevel(LogLevel::kInfo);
  Log(LogLevel::kInfo, "a\n\x1b[2Jb");
  ASSERT_THAT(lines_, SizeIs(1));
  EXPECT_THAT(lines_[0], EndsWith(" a\\x0a\\x1b[2Jb"));
}

TEST_F(LogTest, APhaseIsSaidWhenItEndsAndAtDebugWhenItBegins) {
  SetLogLevel(LogLevel::kDebug);
  {
    LoggedPhase phase("plan");
    EXPECT_THAT(lines_, ElementsAre(EndsWith(" plan ...")));
    phase.Note("dp=", 2);
    phase.Note("searched");
  }
  ASSERT_THAT(lines_, SizeIs(2));
  EXPECT_THAT(lines_[1], MatchesRegex(".* plan: [0-9.e-]+ m?s, dp=2, searched"));
}

TEST_F(LogTest, APhaseEndsOnce) {
  SetLogLevel(LogLevel::kInfo);
  {
    LoggedPhase phase("plan");
    phase.End();
  }
  EXPECT_THAT(lines_, SizeIs(1));
}

TEST_F(LogTest, LinesOfThreadsComeOneAtATime) {
  SetLogLevel(LogLevel::kInfo);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([] {
      for (int k = 0; k < 100; ++k) Log(LogLevel::kInfo, "line ", k);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(lines_, SizeIs(400));
}

TEST(LogLevelTest, NamesAreThoseOfTheFlag) {
  EXPECT_EQ(ParseLogLevel("debug"), LogLevel::kDebug);
  EXPECT_EQ(ParseLogLevel("error"), LogLevel::kError);
  EXPECT_EQ(ParseLogLevel("verbose"), std::nullopt);
}

}  // namespace
}  // namespace weft
