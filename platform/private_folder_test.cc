// Private folders on the machine's disk.
#include "platform/private_folder.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

using ::testing::HasSubstr;

// Root alone can give a file away, and only where other users exist (a sandbox may have one).
bool GiveAway(const std::string& path) {
  return chown(path.c_str(), 12345, static_cast<gid_t>(-1)) == 0;
}

class PrivateFolderTest : public ::testing::Test {
 protected:
  PrivateFolderTest() {
    std::filesystem::remove_all(root_);
    auto folder = OpenPrivateFolder(path_);
    EXPECT_TRUE(folder.ok()) << folder.status();
    if (folder.ok()) folder_ = *std::move(folder);
  }
  ~PrivateFolderTest() override { std::filesystem::remove_all(root_); }

  static int ModeOf(const std::string& path) {
    struct stat status = {};
    return lstat(path.c_str(), &status) == 0 ? static_cast<int>(status.st_mode & 07777) : -1;
  }
  std::string PathOf(const std::string& name) const { return absl::StrCat(path_, "/", name); }
  void Put(const std::string& path, const std::string& text, int mode) const {
    std::ofstream(path) << text;
    ASSERT_EQ(chmod(path.c_str(), mode), 0);
  }

  const std::string root_ = absl::StrCat(::testing::TempDir(), "/private-", getpid());
  const std::string path_ = root_ + "/above/kernels";
  std::unique_ptr<PrivateFolder> folder_;
};

TEST_F(PrivateFolderTest, IsForItsUserAlone) {
  EXPECT_EQ(ModeOf(root_ + "/above"), 0700);
  EXPECT_EQ(ModeOf(path_), 0700);
  const mode_t before = umask(0);
  ASSERT_TRUE(folder_->Write("a", "one").ok());
  umask(before);
  EXPECT_EQ(ModeOf(PathOf("a")), 0600);
  EXPECT_EQ(folder_->Read("a", 3).value(), "one");
  EXPECT_EQ(folder_->Read("a", 2).status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(folder_->Read("b", 3).status().code(), absl::StatusCode::kNotFound);
  ASSERT_TRUE(folder_->Write("a", "second").ok());
  EXPECT_EQ(folder_->Read("a", 10).value(), "second");
}

TEST_F(PrivateFolderTest, WhatOthersCanHaveWrittenIsNotRead) {
  const auto refused = [this](const char* name) {
    const absl::Status status = folder_->Read(name, 10).status();
    return status.code() == absl::StatusCode::kPermissionDenied;
  };
  Put(PathOf("group"), "text", 0620);
  Put(PathOf("world"), "text", 0602);
  Put(root_ + "/outside", "text", 0600);
  Put(PathOf("mine"), "text", 0644);
  ASSERT_EQ(symlink((root_ + "/outside").c_str(), PathOf("link").c_str()), 0);
  ASSERT_EQ(mkfifo(PathOf("pipe").c_str(), 0600), 0);
  ASSERT_EQ(mkdir(PathOf("folder").c_str(), 0700), 0);
  for (const char* const name : {"group", "world", "link", "pipe", "folder"}) {
    EXPECT_TRUE(refused(name)) << name << ": " << folder_->Read(name, 10).status();
  }
  EXPECT_EQ(folder_->Read("mine", 10).value(), "text");
  if (GiveAway(PathOf("mine"))) {
    EXPECT_TRUE(refused("mine"));
  }
  // Replaced, a link's target stays as it was.
  ASSERT_TRUE(folder_->Write("link", "new").ok());
  ASSERT_TRUE(folder_->Write("world", "new").ok());
  EXPECT_EQ(folder_->Read("link", 10).value(), "new");
  EXPECT_EQ(folder_->Read("world", 10).value(), "new");
  EXPECT_EQ(std::filesystem::file_size(root_ + "/outside"), 4);
}

TEST_F(PrivateFolderTest, FoldersOfOthersAreRefused) {
  ASSERT_EQ(chmod(path_.c_str(), 0770), 0);
  absl::Status status = OpenPrivateFolder(path_).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kPermissionDenied);
  EXPECT_THAT(std::string(status.message()), HasSubstr("chmod go-w"));
  ASSERT_EQ(chmod(path_.c_str(), 0755), 0);
  EXPECT_TRUE(OpenPrivateFolder(path_).ok());
  Put(root_ + "/file", "", 0600);
  EXPECT_FALSE(OpenPrivateFolder(root_ + "/file").ok());
  EXPECT_FALSE(OpenPrivateFolder(root_ + "/file/below").ok());
  EXPECT_EQ(OpenPrivateFolder("").status().code(), absl::StatusCode::kInvalidArgument);
  if (GiveAway(path_)) {
    status = OpenPrivateFolder(path_).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kPermissionDenied);
    EXPECT_THAT(std::string(status.message()), HasSubstr("another user"));
  }
}

TEST_F(PrivateFolderTest, NamesCannotLeaveIt) {
  Put(root_ + "/above/outside", "text", 0600);
  for (const char* const name : {"../outside", "", ".", "..", "/etc/passwd"}) {
    EXPECT_EQ(folder_->Read(name, 10).status().code(), absl::StatusCode::kInvalidArgument) << name;
    EXPECT_EQ(folder_->Write(name, "x").code(), absl::StatusCode::kInvalidArgument) << name;
    EXPECT_EQ(folder_->Remove(name).code(), absl::StatusCode::kInvalidArgument) << name;
  }
}

TEST_F(PrivateFolderTest, AWriteThatFailsLeavesTheOldFileAndNothingElse) {
  ASSERT_TRUE(folder_->Write("a", "old").ok());
  // A file may have 100 bytes here: a disk that is full.
  struct rlimit before = {};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const struct rlimit small = {100, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const absl::Status status = folder_->Write("a", std::string(1000, 'x'));
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, handler);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_EQ(folder_->Read("a", 10).value(), "old");
  EXPECT_EQ(folder_->List().value().size(), 1);
}

TEST_F(PrivateFolderTest, ListsWhatIsThereAndWhenItWasUsed) {
  ASSERT_TRUE(folder_->Write("a", "12345").ok());
  const struct timespec old[2] = {{1000, 0}, {1000, 0}};
  ASSERT_EQ(utimensat(AT_FDCWD, PathOf("a").c_str(), old, 0), 0);
  ASSERT_EQ(mkdir(PathOf("folder").c_str(), 0700), 0);
  auto entries = folder_->List();
  ASSERT_TRUE(entries.ok()) << entries.status();
  ASSERT_EQ(entries->size(), 1);
  EXPECT_EQ((*entries)[0].name, "a");
  EXPECT_EQ((*entries)[0].bytes, 5);
  EXPECT_EQ((*entries)[0].used, absl::FromUnixSeconds(1000));
  ASSERT_TRUE(folder_->MarkUsed("a").ok());
  EXPECT_GT(folder_->List().value()[0].used, absl::FromUnixSeconds(1000000));
  EXPECT_TRUE(folder_->Remove("a").ok());
  EXPECT_EQ(folder_->Remove("a").code(), absl::StatusCode::kNotFound);
  EXPECT_TRUE(PrivateFolder::IsUnfinished(".weft-12-0.tmp"));
  EXPECT_FALSE(PrivateFolder::IsUnfinished("a.tmp"));
}

}  // namespace
}  // namespace weft
