#include "platform/folders.h"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "platform/file_system.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class FoldersTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char pattern[] = "/tmp/weft-folders-XXXXXX";
    ASSERT_NE(mkdtemp(pattern), nullptr);
    root_ = pattern;
    ASSERT_TRUE(files_.CreateDirectories(Path("a")).ok());
    ASSERT_TRUE(files_.WriteFileAtomically(Path("a/one"), "1").ok());
    ASSERT_TRUE(files_.WriteFileAtomically(Path("a/two"), "2").ok());
  }
  void TearDown() override { std::filesystem::remove_all(root_); }
  std::string Path(const std::string& name) const { return root_ + "/" + name; }

  FileSystem& files_ = RealFileSystem();
  Folders& folders_ = RealFolders();
  std::string root_;
};

TEST_F(FoldersTest, RenameMovesAllThatIsInIt) {
  ASSERT_TRUE(folders_.Rename(Path("a"), Path("b")).ok());
  EXPECT_THAT(*files_.ListDirectory(root_), ElementsAre("b"));
  EXPECT_THAT(*files_.ListDirectory(Path("b")), ElementsAre("one", "two"));
  EXPECT_EQ(*files_.ReadFile(Path("b/two")), "2");
}

// The system's own rename would take the place of an empty one without a word.
TEST_F(FoldersTest, RenameReplacesNothing) {
  ASSERT_TRUE(files_.CreateDirectories(Path("b")).ok());
  const absl::Status status = folders_.Rename(Path("a"), Path("b"));
  EXPECT_EQ(status.code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(std::string(status.message()), HasSubstr(Path("b")));
  EXPECT_TRUE(files_.Exists(Path("a/one")));
}

TEST_F(FoldersTest, RenameOfAMissingFolderNamesIt) {
  const absl::Status status = folders_.Rename(Path("c"), Path("b"));
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()), HasSubstr(Path("c")));
}

TEST_F(FoldersTest, RemoveTakesTheFilesToo) {
  EXPECT_TRUE(folders_.Remove(Path("a")).ok());
  EXPECT_FALSE(files_.Exists(Path("a")));
  EXPECT_TRUE(folders_.Remove(Path("a")).ok()) << "fine when it is not there";
}

TEST_F(FoldersTest, RemoveDoesNotFollowLinks) {
  ASSERT_TRUE(files_.CreateDirectories(Path("b")).ok());
  ASSERT_EQ(symlink(Path("a").c_str(), Path("b/link").c_str()), 0);
  ASSERT_EQ(symlink(Path("a").c_str(), Path("outer").c_str()), 0);
  EXPECT_TRUE(folders_.Remove(Path("b")).ok());
  EXPECT_FALSE(folders_.Remove(Path("outer")).ok());
  EXPECT_TRUE(files_.Exists(Path("a/one")));
}

TEST_F(FoldersTest, RemoveStopsAtAFolderInside) {
  ASSERT_TRUE(files_.CreateDirectories(Path("a/inner")).ok());
  const absl::Status status = folders_.Remove(Path("a"));
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("inner"));
}

}  // namespace
}  // namespace weft
