// Folders of jobs that were killed do not stay for ever, and nothing else is touched.
#include "distributed/process/job_folder.h"

#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

class JobFolderTest : public ::testing::Test {
 protected:
  void SetUp() override {
    place_ = absl::StrCat(::testing::TempDir(), "/job_folder_", getpid());
    fs::create_directories(place_);
  }
  void TearDown() override { fs::remove_all(place_); }

  // A folder as a job makes it, and as it is left where the job was killed.
  std::string Left(const std::string& name, const std::string& file = "lock") {
    const std::string path = absl::StrCat(place_, "/", name);
    fs::create_directory(path);
    chmod(path.c_str(), 0700);
    for (const std::string& one : {file, std::string("token"), std::string("12")}) {
      std::ofstream(absl::StrCat(path, "/", one)) << "x";
    }
    return path;
  }

  std::string place_;
};

TEST_F(JobFolderTest, IsTheUsersAloneAndGoesWithItsOwner) {
  std::string path;
  {
    auto folder = JobFolder::Create(place_);
    ASSERT_TRUE(folder.ok()) << folder.status();
    path = folder->path();
    struct stat info = {};
    ASSERT_EQ(stat(path.c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 07777, 0700u);
    std::ofstream(path + "/token") << "x";
    const JobFolder moved = *std::move(folder);
    EXPECT_TRUE(fs::exists(moved.path()));
  }
  EXPECT_FALSE(fs::exists(path));
}

TEST_F(JobFolderTest, WhatAKilledProcessLeftIsRemoved) {
  const std::string path = Left("weft-aB3xYz");
  EXPECT_THAT(RemoveEndedJobFolders(place_), ElementsAre(path));
  EXPECT_FALSE(fs::exists(path));
  EXPECT_THAT(RemoveEndedJobFolders(place_), IsEmpty());
}

TEST_F(JobFolderTest, ThatOfARunningJobStays) {
  const auto folder = JobFolder::Create(place_);
  ASSERT_TRUE(folder.ok()) << folder.status();
  EXPECT_THAT(RemoveEndedJobFolders(place_), IsEmpty());
  EXPECT_TRUE(fs::exists(folder->path() + "/lock"));
}

// Between its making and its lock; so are those of earlier versions.
TEST_F(JobFolderTest, OneWithoutALockStays) {
  const std::string path = Left("weft-aB3xYz", "0");
  EXPECT_THAT(RemoveEndedJobFolders(place_), IsEmpty());
  EXPECT_TRUE(fs::exists(path + "/token"));
}

TEST_F(JobFolderTest, WhatIsNotAJobsStays) {
  Left("weft-other");                        // another name
  Left("weft-aB3x_z");                       // no name of mkdtemp
  Left("weft-notes0", "notes.txt");          // a file that no job makes
  chmod(Left("weft-public").c_str(), 0755);  // not the user's alone
  std::ofstream(absl::StrCat(place_, "/weft-file01")) << "x";
  const std::string target = absl::StrCat(place_, "/elsewhere");
  fs::rename(Left("weft-target"), target);
  fs::create_directory_symlink(target, absl::StrCat(place_, "/weft-linked"));
  EXPECT_THAT(RemoveEndedJobFolders(place_), IsEmpty());
  EXPECT_TRUE(fs::exists(target + "/lock"));
  EXPECT_THAT(RemoveEndedJobFolders(place_ + "/none"), IsEmpty());
}

}  // namespace
}  // namespace weft
