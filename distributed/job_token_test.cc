#include "distributed/job_token.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

using ::testing::HasSubstr;

class JobTokenTest : public ::testing::Test {
 protected:
  const std::string path_ = absl::StrCat(::testing::TempDir(), "/token-", getpid());
  void TearDown() override { unlink(path_.c_str()); }
};

TEST_F(JobTokenTest, TokensDifferAndHave256Bits) {
  const std::string one = NewJobToken().value();
  EXPECT_EQ(one.size(), 64u);
  EXPECT_NE(one, NewJobToken().value());
  EXPECT_TRUE(SameToken(one, one));
  EXPECT_FALSE(SameToken(one, one.substr(1)));
  EXPECT_FALSE(SameToken(one, NewJobToken().value()));
}

TEST_F(JobTokenTest, AFileGivesItsTokenBack) {
  const std::string token = NewJobToken().value();
  ASSERT_TRUE(WriteTokenFile(path_, token).ok());
  EXPECT_EQ(ReadTokenFile(path_).value(), token);
  EXPECT_EQ(WriteTokenFile(path_, token).code(), absl::StatusCode::kAlreadyExists);
}

TEST_F(JobTokenTest, AFileThatOthersCanReadIsRefused) {
  ASSERT_TRUE(WriteTokenFile(path_, NewJobToken().value()).ok());
  for (const mode_t mode : {0640, 0604, 0620, 0777}) {
    ASSERT_EQ(chmod(path_.c_str(), mode), 0);
    const auto token = ReadTokenFile(path_);
    EXPECT_EQ(token.status().code(), absl::StatusCode::kPermissionDenied) << mode;
    EXPECT_THAT(std::string(token.status().message()), HasSubstr("chmod 600"));
  }
}

TEST_F(JobTokenTest, LinksAndShortTokensAreRefused) {
  ASSERT_TRUE(WriteTokenFile(path_, "short").ok());
  EXPECT_EQ(ReadTokenFile(path_).status().code(), absl::StatusCode::kInvalidArgument);
  const std::string link = path_ + ".link";
  ASSERT_EQ(symlink(path_.c_str(), link.c_str()), 0);
  EXPECT_FALSE(ReadTokenFile(link).ok());
  unlink(link.c_str());
}

TEST_F(JobTokenTest, TheDefaultFileIsMadeOnceAndReadThen) {
  const std::string home = absl::StrCat(::testing::TempDir(), "/home-", getpid());
  ASSERT_EQ(mkdir(home.c_str(), 0700), 0);
  ASSERT_EQ(setenv("HOME", home.c_str(), 1), 0);
  const std::string token = ReadOrMakeDefaultToken().value();
  EXPECT_EQ(ReadOrMakeDefaultToken().value(), token);
  EXPECT_EQ(DefaultTokenFile().value(), home + "/.weft/token");
}

}  // namespace
}  // namespace weft
