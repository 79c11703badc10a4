#include "platform/secret_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kSecret[] = "the secret itself";

class SecretFileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::ofstream(path_) << kSecret;
    ASSERT_EQ(chmod(path_.c_str(), 0600), 0);
  }
  void TearDown() override {
    unlink(path_.c_str());
    unlink(link_.c_str());
  }
  absl::StatusOr<std::string> Read(const std::string& path, int64_t maximum_bytes = 100) {
    return ReadSecretFile(path, maximum_bytes, "key file", "or make another");
  }
  const std::string path_ = absl::StrCat(::testing::TempDir(), "/secret-", getpid());
  const std::string link_ = path_ + ".link";
};

TEST_F(SecretFileTest, GivesItsBytes) { EXPECT_EQ(Read(path_).value(), kSecret); }

TEST_F(SecretFileTest, MayHaveTheMaximumAndNoByteMore) {
  EXPECT_EQ(Read(path_, sizeof(kSecret) - 1).value(), kSecret);
  const absl::Status status = Read(path_, sizeof(kSecret) - 2).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), Not(HasSubstr(kSecret)));
}

TEST_F(SecretFileTest, IsRefusedWhereAnotherUserCouldReadIt) {
  for (const mode_t mode : {0640, 0604, 0620, 0602, 0777}) {
    ASSERT_EQ(chmod(path_.c_str(), mode), 0);
    const absl::Status status = Read(path_).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kPermissionDenied) << mode;
    EXPECT_THAT(std::string(status.message()), HasSubstr(absl::StrCat("key file ", path_)));
    EXPECT_THAT(std::string(status.message()), HasSubstr("chmod 600 it, or make another"));
    EXPECT_THAT(std::string(status.message()), Not(HasSubstr(kSecret)));
  }
}

TEST_F(SecretFileTest, MayBeNoLinkNoFolderAndNoDevice) {
  ASSERT_EQ(symlink(path_.c_str(), link_.c_str()), 0);
  EXPECT_FALSE(Read(link_).ok());
  EXPECT_EQ(Read(::testing::TempDir()).status().code(), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(Read("/dev/zero").status().code(), absl::StatusCode::kPermissionDenied);
}

TEST_F(SecretFileTest, ThatIsMissingIsNotFound) {
  EXPECT_EQ(Read(path_ + ".none").status().code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace weft
