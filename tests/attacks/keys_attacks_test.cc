// Who comes to a worker with keys that are not right for it: a process whose certificate the
// cluster did not issue, not for now, or not for that; and one that lacks the token. None is let
// in, the worker goes on, and nobody says a secret.
//
// WEFT_RUNNER: graph_runner.
#include <sys/stat.h>

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "distributed/keys/certificate.h"
#include "distributed/keys/key_folder.h"
#include "distributed/keys/key_maker.h"
#include "distributed/keys/testing/tls_client.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/attacks/attacked_worker.h"
#include "tests/attacks/http2_bytes.h"
#include "tests/command_run.h"
#include "tools/console/exit_code.h"

namespace weft::testing {
namespace {

using ::testing::HasSubstr;

class KeysAttacksTest : public ::testing::Test {
 protected:
  void SetUp() override {
    worker_ = AttackedWorker::Start(AttackedWorker::Door::kKeys);
    ASSERT_NE(worker_, nullptr);
    authority_ = worker_->Authority();
    own_authority_pem_ = worker_->ReadKeyFile("coordinator", kAuthorityFile);
    other_ = OtherAuthority("other");
  }

  static Identity OtherAuthority(const std::string& name) {
    return MakeAuthority(name, absl::Now() - absl::Hours(24), absl::Now() + absl::Hours(240))
        .value();
  }
  // The keys of a coordinator whose certificate this authority has signed.
  KeySet KeysBy(const Identity& authority, const CertificateRequest& request) const {
    return {IssueCertificate(authority, request).value().pem(), own_authority_pem_, {}};
  }

  // `graph_runner train` with these words instead of an honest job's.
  void ExpectRefused(const std::string& name, const Arguments& credentials, ExitCode code,
                     const std::string& part) {
    SCOPED_TRACE(name);
    const std::string model = worker_->Path("stolen.onnx");
    const CommandResult result = RunProgram(worker_->Job(2) + credentials + Arguments{"-o", model});
    EXPECT_EQ(result.exit_code, static_cast<int>(code)) << result.err;
    EXPECT_THAT(result.err, HasSubstr(part));
    EXPECT_FALSE(std::filesystem::exists(model));
    worker_->ExpectNoSecret(absl::StrCat(result.out, result.err));
    worker_->ExpectUnharmed();
  }
  // A folder whose token is another one; its keys are the coordinator's.
  Arguments WithToken(const std::string& token) {
    const std::string path = worker_->Path("other_token");
    std::filesystem::remove(path);
    WriteTestFile(path, token + "\n");
    chmod(path.c_str(), 0600);
    return {"--keys", worker_->KeyFolder("coordinator"), "--token-file", path};
  }

  std::unique_ptr<AttackedWorker> worker_;
  Identity authority_;
  Identity other_;
  std::string own_authority_pem_;
};

TEST_F(KeysAttacksTest, OnlyTheClustersOwnCertificatesAreLetIn) {
  const CertificateRequest request = RequestOf(Role::kCoordinator);
  CertificateRequest expired = request, early = request;
  expired.not_after = absl::Now() - absl::Hours(1);
  early.not_before = absl::Now() + absl::Hours(1);
  const Certificate own = ParseCertificate(own_authority_pem_).value();
  const Identity namesake = OtherAuthority(own.subject);
  const std::string host_pem = worker_->ReadKeyFile("b", kIdentityFile);
  KeySet by_a_host = KeysBy({host_pem, host_pem}, request);
  by_a_host.identity_pem += host_pem.substr(host_pem.find("-----BEGIN CERTIFICATE"));
  const std::vector<std::pair<std::string, KeySet>> strangers = {
      {"OtherAuthority", KeysBy(other_, request)},
      {"AuthorityOfTheSameName", KeysBy(namesake, request)},
      {"Expired", KeysBy(authority_, expired)},
      {"NotYetValid", KeysBy(authority_, early)},
      {"SignedByAHost", by_a_host},
      {"SignedByItself", {other_.pem(), own_authority_pem_, {}}}};
  for (const auto& [name, keys] : strangers) {
    SCOPED_TRACE(name);
    EXPECT_FALSE(IsLetIn(worker_->address(), &keys, TlsVersion::k13));
    worker_->ExpectUnharmed();
  }
  EXPECT_FALSE(IsLetIn(worker_->address(), nullptr, TlsVersion::k13)) << "NoCertificate";
  const KeySet coordinator = KeysBy(authority_, request);
  EXPECT_FALSE(IsLetIn(worker_->address(), &coordinator, TlsVersion::k12)) << "OldTls";
  worker_->ExpectUnharmed();
  // The same with all that is right: it is the certificate that decides.
  EXPECT_TRUE(IsLetIn(worker_->address(), &coordinator, TlsVersion::k13));
}

// Who is let in, and then says what is no HTTP/2.
TEST_F(KeysAttacksTest, GarbageAfterTheHandshakeHarmsNobody) {
  const KeySet keys = KeysBy(authority_, RequestOf(Role::kCoordinator));
  const std::string call =
      ClientPreface() + Frame(FrameKind::kHeaders, kEndOfHeaders | kEndOfStream, 1,
                              CallHeaders("/weft.rpc.Control/Shutdown"));
  const std::vector<std::pair<std::string, std::string>> texts = {
      {"GarbageAfterTheHandshake", std::string(64 << 10, '\xa5')},
      {"HttpOneAfterTheHandshake", "GET / HTTP/1.1\r\n\r\n"},
      {"ShutdownWithACertificateAndNoToken", call}};
  for (const auto& [name, bytes] : texts) {
    SCOPED_TRACE(name);
    IsLetIn(worker_->address(), &keys, TlsVersion::k13, bytes);
    worker_->ExpectUnharmed();
  }
}

TEST_F(KeysAttacksTest, AJobNeedsTheRoleAndTheToken) {
  const std::string token = worker_->token();
  ExpectRefused("ObserversKeys", {"--keys", worker_->KeyFolder("observer")}, ExitCode::kRefused,
                "for the role coordinator");
  ExpectRefused("WorkersKeys", {"--keys", worker_->KeyFolder("b")}, ExitCode::kRefused,
                "for the role coordinator");
  ExpectRefused("NoKeys", {"--token-file", worker_->KeyFolder("coordinator") + "/" + kTokenFile},
                ExitCode::kPlan, "speaks TLS, and this end has no keys");
  ExpectRefused("OtherToken", WithToken(std::string(64, 'f')), ExitCode::kRefused, "token");
  ExpectRefused("LongerToken", WithToken(token + "0"), ExitCode::kRefused, "token");
  ExpectRefused("ShorterToken", WithToken(token.substr(0, token.size() - 1)), ExitCode::kRefused,
                "token");
  ExpectRefused("TokenTwice", WithToken(token + token), ExitCode::kRefused, "token");
  ExpectRefused("EmptyToken", WithToken(""), ExitCode::kUsage, "other_token");
  Arguments open = WithToken(token);
  chmod(open.back().c_str(), 0644);
  ExpectRefused("TokenThatOthersCanRead", open, ExitCode::kUsage, "chmod 600");
}

// All that its own `cluster keys` has made is right; it is not this cluster's.
TEST_F(KeysAttacksTest, AnotherClustersCoordinatorIsRefused) {
  const Identity coordinator = IssueCertificate(other_, RequestOf(Role::kCoordinator)).value();
  ExpectRefused(
      "KeysOfAnotherCluster",
      {"--keys", worker_->ForgeKeys("foreign", other_.certificate_pem, coordinator.pem())},
      ExitCode::kRefused, "another authority");
  // It trusts the worker, which does not trust it.
  ExpectRefused("TrustOfOneSide",
                {"--keys", worker_->ForgeKeys("half", own_authority_pem_ + other_.certificate_pem,
                                              coordinator.pem())},
                ExitCode::kRefused, "does not take the certificate of 'forged'");
}

// Keys that do not fit each other are refused by who has them, before anybody is talked to.
TEST_F(KeysAttacksTest, KeysThatDoNotFitAreUsedByNobody) {
  const Identity one = IssueCertificate(authority_, RequestOf(Role::kCoordinator)).value();
  const Identity two = IssueCertificate(authority_, RequestOf(Role::kCoordinator)).value();
  CertificateRequest expired = RequestOf(Role::kCoordinator);
  expired.not_after = absl::Now() - absl::Hours(1);
  const std::vector<std::pair<std::string, std::string>> identities = {
      {"KeyOfAnotherCertificate", one.private_key_pem + two.certificate_pem},
      {"KeysThatAreOver", IssueCertificate(authority_, expired).value().pem()},
      {"KeyCutOff", one.private_key_pem.substr(0, 60) + one.certificate_pem},
      {"NoKeyAtAll", one.certificate_pem}};
  for (const auto& [name, pem] : identities) {
    ExpectRefused(name, {"--keys", worker_->ForgeKeys(name, own_authority_pem_, pem)},
                  ExitCode::kUsage, name);
  }
}

}  // namespace
}  // namespace weft::testing
