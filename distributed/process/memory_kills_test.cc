#include "distributed/process/memory_kills.h"

#include <string>

#include "gtest/gtest.h"
#include "platform/testing/fake_file_system.h"

namespace weft {
namespace {

int64_t KillsOf(const std::string& vmstat) {
  testing::FakeFileSystem files;
  EXPECT_TRUE(files.CreateDirectories("/proc").ok());
  EXPECT_TRUE(files.WriteFileAtomically("/proc/vmstat", vmstat).ok());
  return MemoryKills(files);
}

TEST(MemoryKillsTest, AreWhatTheSystemCounts) {
  EXPECT_EQ(KillsOf("nr_free_pages 7\noom_kill 12\noom_kill_other 3\n"), 12);
  EXPECT_EQ(KillsOf("oom_kill 1"), 1);
}

TEST(MemoryKillsTest, AreNoneWhereTheSystemDoesNotSay) {
  EXPECT_EQ(KillsOf("nr_free_pages 7\n"), 0);
  EXPECT_EQ(KillsOf("oom_kill many\noom_killer 3\n"), 0);
  EXPECT_EQ(KillsOf(""), 0);
  testing::FakeFileSystem none;
  EXPECT_EQ(MemoryKills(none), 0);
}

TEST(MemoryKillsTest, TheRealOneCanBeRead) { EXPECT_GE(MemoryKills(RealFileSystem()), 0); }

}  // namespace
}  // namespace weft
