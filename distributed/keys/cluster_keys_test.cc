#include "distributed/keys/cluster_keys.h"

#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "distributed/job_token.h"
#include "distributed/keys/key_folder.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr absl::Duration kDay = absl::Hours(24);

std::string BytesOfFile(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

class ClusterKeysTest : public ::testing::Test {
 protected:
  void TearDown() override { std::filesystem::remove_all(folder_); }
  absl::StatusOr<ClusterKeys> Make(const std::string& hosts, int64_t days = 365) {
    const auto parsed = ParseHosts(hosts);
    if (!parsed.ok()) return parsed.status();
    return MakeClusterKeys({folder_, *parsed, days, now_});
  }
  std::string Path(const std::string& name) { return absl::StrCat(folder_, "/", name); }
  absl::StatusOr<KeySet> Read(const std::string& name, absl::Duration later = {}) {
    return ReadKeyFolder(Path(name), now_ + later);
  }
  void ExpectRefused(const absl::Status& status, absl::StatusCode code, const std::string& part) {
    EXPECT_EQ(status.code(), code) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(part));
    EXPECT_THAT(std::string(status.message()), Not(HasSubstr("PRIVATE KEY")));
  }
  const absl::Time now_ = absl::Now();
  const std::string folder_ = absl::StrCat(::testing::TempDir(), "/keys-", getpid());
};

TEST_F(ClusterKeysTest, HostsAreParsed) {
  const auto hosts = ParseHosts("a,b.example=10.0.0.2,10.0.0.3,d=10.0.0.4+fd00::4").value();
  ASSERT_EQ(hosts.size(), 4u);
  EXPECT_EQ(hosts[0].name, "a");
  EXPECT_THAT(hosts[0].addresses, IsEmpty());
  EXPECT_THAT(hosts[1].addresses, ElementsAre("10.0.0.2"));
  EXPECT_EQ(hosts[2].name, "10.0.0.3");
  EXPECT_THAT(hosts[3].addresses, ElementsAre("10.0.0.4", "fd00::4"));
  for (const char* const text : {"", "a,", "a=b", "a=", "../a", ".", "a/b", "-a", "coordinator",
                                 "authority", "a:4000", "a b", "a,observer"}) {
    EXPECT_EQ(ParseHosts(text).status().code(), absl::StatusCode::kInvalidArgument) << text;
  }
}

TEST_F(ClusterKeysTest, EachFolderHasKeysThatWork) {
  const ClusterKeys made = Make("a=10.0.0.1,10.0.0.2").value();
  EXPECT_TRUE(made.is_new_authority);
  EXPECT_EQ(made.made.size(), 4u);
  const KeySet a = Read("a").value();
  EXPECT_EQ(a.certificate.role, Role::kWorker);
  EXPECT_THAT(a.certificate.names, ElementsAre("a"));
  EXPECT_THAT(a.certificate.addresses, ElementsAre("10.0.0.1"));
  const KeySet b = Read("10.0.0.2").value();
  EXPECT_THAT(b.certificate.names, IsEmpty());
  EXPECT_TRUE(b.certificate.IsFor("10.0.0.2"));
  EXPECT_EQ(Read("coordinator")->certificate.role, Role::kCoordinator);
  EXPECT_EQ(Read("coordinator")->certificate.HostsText(), "no host");
  EXPECT_EQ(Read("observer")->certificate.role, Role::kObserver);
  // Any two believe each other.
  EXPECT_TRUE(VerifyCertificate(a.authority_pem, b.identity_pem, Purpose::kServer, now_).ok());
}

TEST_F(ClusterKeysTest, NobodyElseCanReadThem) {
  const mode_t before = umask(0);
  ASSERT_TRUE(Make("a").ok());
  umask(before);
  std::map<std::string, int> private_keys;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder_)) {
    struct stat status = {};
    ASSERT_EQ(stat(entry.path().c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 0777, entry.is_directory() ? 0700u : 0600u) << entry.path();
    if (entry.is_directory()) continue;
    if (BytesOfFile(entry.path()).find("PRIVATE KEY") != std::string::npos) {
      ++private_keys[entry.path().filename()];
    }
  }
  EXPECT_EQ(private_keys, (std::map<std::string, int>{{"identity.pem", 4}}));
}

TEST_F(ClusterKeysTest, ASecondCallRenewsAndKeepsAuthorityAndToken) {
  ASSERT_TRUE(Make("a").ok());
  const KeySet first = Read("a").value();
  const std::string token = ReadTokenFile(Path("a/token")).value();
  const ClusterKeys again = Make("a,b").value();
  EXPECT_FALSE(again.is_new_authority);
  const KeySet second = Read("a").value();
  EXPECT_NE(second.certificate.fingerprint, first.certificate.fingerprint);
  EXPECT_NE(second.identity_pem, first.identity_pem);
  EXPECT_EQ(second.authority_pem, first.authority_pem);
  EXPECT_EQ(ReadTokenFile(Path("a/token")).value(), token);
  EXPECT_EQ(ReadTokenFile(Path("b/token")).value(), token);
  EXPECT_TRUE(
      VerifyCertificate(first.authority_pem, Read("b")->identity_pem, Purpose::kServer, now_).ok());
}

TEST_F(ClusterKeysTest, WhatCannotBeMadeIsSaid) {
  ExpectRefused(Make("a,a").status(), absl::StatusCode::kInvalidArgument, "'a' is given twice");
  ExpectRefused(Make("a", 0).status(), absl::StatusCode::kInvalidArgument, "at least 1");
  ExpectRefused(Make("a", 10'000).status(), absl::StatusCode::kFailedPrecondition, "--days");
  ASSERT_TRUE(Make("a").ok());
  ASSERT_EQ(chmod(Path("authority/identity.pem").c_str(), 0644), 0);
  ExpectRefused(Make("a").status(), absl::StatusCode::kPermissionDenied, "chmod 600");
}

TEST_F(ClusterKeysTest, AFolderIsCheckedWhenItIsRead) {
  ASSERT_TRUE(Make("a,b", 30).ok());
  EXPECT_TRUE(Read("a", 29 * kDay).ok());
  ExpectRefused(Read("a", 31 * kDay).status(), absl::StatusCode::kUnauthenticated,
                "a/identity.pem: the certificate of 'a' (for a) has expired on ");
  ExpectRefused(Read("a", -kDay).status(), absl::StatusCode::kUnauthenticated, "valid only from");
  ExpectRefused(Read("c").status(), absl::StatusCode::kNotFound, "c/identity.pem");
  EXPECT_EQ(ExpiryNote(Read("a")->certificate, now_), "");
  EXPECT_THAT(ExpiryNote(Read("a")->certificate, now_ + 20 * kDay), HasSubstr("expires on"));

  for (const char* const name : {"a/identity.pem", "a/authority.pem"}) {
    ASSERT_EQ(chmod(Path(name).c_str(), 0640), 0);
    ExpectRefused(Read("a").status(), absl::StatusCode::kPermissionDenied, name);
    ASSERT_EQ(chmod(Path(name).c_str(), 0600), 0);
  }
  // The key of one, the certificate of the other: what a copy that was cut short leaves.
  const std::string a = BytesOfFile(Path("a/identity.pem"));
  const std::string b = BytesOfFile(Path("b/identity.pem"));
  const size_t at = a.find("-----BEGIN CERTIFICATE");
  std::ofstream(Path("a/identity.pem")) << a.substr(0, at) << b.substr(b.find("-----BEGIN CERT"));
  ExpectRefused(Read("a").status(), absl::StatusCode::kInvalidArgument, "not that of");
  std::ofstream(Path("a/identity.pem")) << a.substr(0, at);
  ExpectRefused(Read("a").status(), absl::StatusCode::kInvalidArgument, "no certificate");
  std::ofstream(Path("a/identity.pem")) << a.substr(at);
  ExpectRefused(Read("a").status(), absl::StatusCode::kInvalidArgument, "no private key");
}

}  // namespace
}  // namespace weft
