#include "platform/write_beneath.h"

#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "platform/file_system.h"

namespace weft {
namespace {

using ::testing::ElementsAre;

class WriteBeneathTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char pattern[] = "/tmp/weft-write-beneath-XXXXXX";
    ASSERT_NE(mkdtemp(pattern), nullptr);
    folder_ = pattern;
    std::filesystem::create_directories(Path("saved/rank"));
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string Path(const std::string& name) const { return folder_ + "/" + name; }
  absl::Status Write(const std::string& name, std::string_view bytes) {
    return WriteFileBeneath(Path("saved"), name, bytes);
  }
  static std::string Read(const std::string& path) {
    return RealFileSystem().ReadFile(path).value_or("none");
  }
  std::string folder_;
};

TEST_F(WriteBeneathTest, ReplacesAFileAndLeavesNothingElse) {
  for (const char* text : {"a longer first text", "short"}) {
    ASSERT_TRUE(Write("rank/0", text).ok());
    EXPECT_EQ(Read(Path("saved/rank/0")), text);
  }
  ASSERT_TRUE(Write("index", "x").ok());
  EXPECT_THAT(RealFileSystem().ListDirectory(Path("saved")).value(), ElementsAre("index", "rank"));
  EXPECT_THAT(RealFileSystem().ListDirectory(Path("saved/rank")).value(), ElementsAre("0"));
}

TEST_F(WriteBeneathTest, KeepsTheModeOfAFileThatIsThere) {
  ASSERT_TRUE(Write("file", "old").ok());
  ASSERT_EQ(chmod(Path("saved/file").c_str(), 0640), 0);
  ASSERT_TRUE(Write("file", "new").ok());
  struct stat status = {};
  ASSERT_EQ(stat(Path("saved/file").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0640u);
}

// A worker was killed while it wrote, and the next one in its container had the same id: its first
// checkpoint failed, since the temporary file was there.
TEST_F(WriteBeneathTest, WhatAKilledProcessLeftIsNotInTheWay) {
  for (int i = 0; i < 20; ++i) {
    const std::string left = absl::StrCat("saved/.weft-", getpid(), "b", i, ".tmp");
    ASSERT_TRUE(RealFileSystem().WriteFileAtomically(Path(left), "left").ok());
  }
  const absl::Status written = Write("file", "new");
  ASSERT_TRUE(written.ok()) << written;
  EXPECT_EQ(Read(Path("saved/file")), "new");
}

TEST_F(WriteBeneathTest, RefusesToLeaveTheFolder) {
  ASSERT_TRUE(RealFileSystem().WriteFileAtomically(Path("secret"), "s").ok());
  for (const std::string& name :
       {std::string("../secret"), Path("secret"), std::string("rank/../../secret"),
        std::string(".."), std::string("."), std::string(""), std::string("rank/")}) {
    EXPECT_EQ(Write(name, "forged").code(), absl::StatusCode::kInvalidArgument) << name;
  }
  EXPECT_EQ(Read(Path("secret")), "s");
}

TEST_F(WriteBeneathTest, FollowsNoLinkAndReplacesNoFolder) {
  ASSERT_TRUE(RealFileSystem().WriteFileAtomically(Path("secret"), "s").ok());
  std::filesystem::create_symlink(Path("secret"), Path("saved/link"));
  std::filesystem::create_directory_symlink(folder_, Path("saved/up"));
  for (const char* name : {"link", "up/secret", "rank"}) {
    EXPECT_EQ(Write(name, "forged").code(), absl::StatusCode::kInvalidArgument) << name;
  }
  EXPECT_EQ(Read(Path("secret")), "s");
  EXPECT_EQ(Write("none/file", "x").code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace weft
