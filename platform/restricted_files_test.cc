#include "platform/restricted_files.h"

#include <unistd.h>

#include <filesystem>
#include <string>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

class RestrictedFilesTest : public ::testing::Test {
 protected:
  RestrictedFilesTest() {
    std::filesystem::create_directories(absl::StrCat(root_, "/allowed/inner"));
    std::filesystem::create_directories(absl::StrCat(root_, "/allowed-not"));
    EXPECT_TRUE(RealFileSystem().WriteFileAtomically(absl::StrCat(root_, "/secret"), "s").ok());
    EXPECT_TRUE(
        RealFileSystem().WriteFileAtomically(absl::StrCat(root_, "/allowed/data"), "d").ok());
  }
  ~RestrictedFilesTest() override { std::filesystem::remove_all(root_); }
  absl::StatusCode Read(const std::string& path) {
    return files_.ReadFile(absl::StrCat(root_, path)).status().code();
  }

  const std::string root_ = absl::StrCat(::testing::TempDir(), "/restricted-", getpid());
  RestrictedFiles files_{RealFileSystem(), {absl::StrCat(root_, "/allowed")}};
};

TEST_F(RestrictedFilesTest, WhatIsBelowCanBeUsed) {
  EXPECT_EQ(*files_.ReadFile(absl::StrCat(root_, "/allowed/data")), "d");
  EXPECT_TRUE(files_.WriteFileAtomically(absl::StrCat(root_, "/allowed/inner/new"), "n").ok());
  EXPECT_EQ(Read("/allowed/missing"), absl::StatusCode::kNotFound);
}

// A stranger read a 0600 file of the worker's user, and replaced another, by naming it.
TEST_F(RestrictedFilesTest, WhatIsElsewhereIsRefusedWhetherItIsThereOrNot) {
  EXPECT_EQ(Read("/secret"), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(Read("/no-such-file"), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(Read("/allowed/../secret"), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(Read("/allowed-not"), absl::StatusCode::kPermissionDenied);
  EXPECT_FALSE(files_.WriteFileAtomically(absl::StrCat(root_, "/secret"), "x").ok());
  EXPECT_FALSE(files_.Exists(absl::StrCat(root_, "/secret")));
  EXPECT_EQ(*RealFileSystem().ReadFile(absl::StrCat(root_, "/secret")), "s");
}

TEST_F(RestrictedFilesTest, LinksThatLeadOutsideAreRefused) {
  std::filesystem::create_symlink(absl::StrCat(root_, "/secret"),
                                  absl::StrCat(root_, "/allowed/rank-00000.safetensors"));
  std::filesystem::create_symlink(root_, absl::StrCat(root_, "/allowed/up"));
  EXPECT_EQ(Read("/allowed/rank-00000.safetensors"), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(Read("/allowed/up/secret"), absl::StatusCode::kPermissionDenied);
  EXPECT_FALSE(
      files_.WriteFileAtomically(absl::StrCat(root_, "/allowed/rank-00000.safetensors"), "x").ok());
  EXPECT_EQ(*RealFileSystem().ReadFile(absl::StrCat(root_, "/secret")), "s");
}

}  // namespace
}  // namespace weft
