#include "tools/flags/run_limits.h"

#include <string>
#include <vector>

#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "platform/process_memory.h"
#include "platform/testing/fake_clock.h"
#include "platform/testing/fake_file_system.h"
#include "tools/console/exit_code.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

RunLimitFlags FlagsOf(const std::vector<std::string>& arguments) {
  RunLimitFlags flags;
  CLI::App app;
  flags.AddTo(app);
  app.parse(std::vector<std::string>(arguments.rbegin(), arguments.rend()));
  return flags;
}

TEST(FreeMemoryTest, IsWhatTheMachineHasAvailable) {
  testing::FakeFileSystem files;
  ASSERT_TRUE(files.CreateDirectories("/proc").ok());
  ASSERT_TRUE(files
                  .WriteFileAtomically("/proc/meminfo",
                                       "MemTotal:       9000 kB\nMemFree:         100 kB\n"
                                       "MemAvailable:     64 kB\n")
                  .ok());
  EXPECT_EQ(FreeMemory(files), 64 * 1024);
}

TEST(FreeMemoryTest, WhereNobodySaysItIsWhatTheProcessMayHave) {
  testing::FakeFileSystem files;
  EXPECT_EQ(FreeMemory(files), ProcessMemoryLimit(files).bytes);
}

TEST(RunLimitFlagsTest, TakesASize) {
  testing::FakeFileSystem files;
  EXPECT_EQ(FlagsOf({"--memory-limit", "3MiB"}).MemoryBytes(files).value_or(0), 3 << 20);
  for (const std::string text : {"0", "-1GiB", "much"}) {
    const auto bytes = FlagsOf({"--memory-limit=" + text}).MemoryBytes(files);
    EXPECT_EQ(ExitCodeOf(bytes.status()), ExitCode::kUsage) << text;
    EXPECT_THAT(std::string(bytes.status().message()), HasSubstr("--memory-limit '" + text + "'"));
  }
}

TEST(RunLimitFlagsTest, TheTimeEndsTheRun) {
  testing::FakeClock clock;
  const auto check = FlagsOf({"--time-limit", "2.5"}).Check(clock, nullptr);
  EXPECT_TRUE(check().ok());
  clock.Advance(absl::Seconds(2));
  EXPECT_TRUE(check().ok());
  clock.Advance(absl::Seconds(1));
  EXPECT_EQ(check().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(check().message()), HasSubstr("after 2.5 s, the limit of --time-limit"));
}

TEST(RunLimitFlagsTest, WithoutALimitALongLoopIsToldOfOnce) {
  testing::FakeClock clock;
  std::vector<std::string> notes;
  const auto check =
      FlagsOf({}).Check(clock, [&notes](const std::string& note) { notes.push_back(note); });
  clock.Advance(absl::Seconds(9));
  EXPECT_TRUE(check().ok());
  EXPECT_THAT(notes, IsEmpty());
  clock.Advance(absl::Seconds(2));
  EXPECT_TRUE(check().ok());
  clock.Advance(absl::Hours(2));
  EXPECT_TRUE(check().ok());
  EXPECT_THAT(notes, ElementsAre(HasSubstr("--time-limit SECONDS")));
}

}  // namespace
}  // namespace weft
