#include "distributed/keys/certificate.h"

#include <openssl/pem.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "distributed/keys/key_maker.h"
#include "distributed/keys/openssl.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr absl::Duration kDay = absl::Hours(24);

class CertificateTest : public ::testing::Test {
 protected:
  std::string Issue(Role role, absl::Duration from = -kDay, absl::Duration until = kDay) {
    CertificateRequest request;
    request.name = "host a";
    request.names = {"a.example"};
    request.addresses = {"10.0.0.7"};
    request.role = role;
    request.not_before = now_ + from;
    request.not_after = now_ + until;
    return IssueCertificate(authority_, request)->certificate_pem;
  }
  absl::Status Verify(const std::string& pem, Purpose purpose) {
    return VerifyCertificate(authority_.certificate_pem, pem, purpose, now_);
  }
  void ExpectRefused(const absl::Status& status, const std::string& part) {
    EXPECT_EQ(status.code(), absl::StatusCode::kUnauthenticated) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(part));
    EXPECT_THAT(std::string(status.message()), HasSubstr("host a"));
  }
  const absl::Time now_ = absl::FromUnixSeconds(absl::ToUnixSeconds(absl::Now()));
  const Identity authority_ = MakeAuthority("one", now_ - kDay, now_ + 100 * kDay).value();
  const Identity other_ = MakeAuthority("two", now_ - kDay, now_ + 100 * kDay).value();
};

TEST_F(CertificateTest, FieldsComeBack) {
  const Certificate certificate = ParseCertificate(Issue(Role::kWorker)).value();
  EXPECT_EQ(certificate.subject, "host a");
  EXPECT_EQ(certificate.issuer, "one");
  EXPECT_THAT(certificate.names, ElementsAre("a.example"));
  EXPECT_THAT(certificate.addresses, ElementsAre("10.0.0.7"));
  EXPECT_EQ(certificate.role, Role::kWorker);
  EXPECT_EQ(certificate.not_before, now_ - kDay);
  EXPECT_EQ(certificate.not_after, now_ + kDay);
  EXPECT_EQ(certificate.fingerprint.size(), 64u);
  EXPECT_FALSE(certificate.is_authority);
  EXPECT_TRUE(ParseCertificate(authority_.certificate_pem)->is_authority);
  EXPECT_FALSE(ParseCertificate("nothing").ok());
  EXPECT_FALSE(ParseCertificate(authority_.private_key_pem).ok());
}

TEST_F(CertificateTest, IsForItsHostsAlone) {
  const Certificate certificate = ParseCertificate(Issue(Role::kWorker)).value();
  for (const char* const host : {"a.example", "A.Example", "a.example.", "10.0.0.7"}) {
    EXPECT_TRUE(certificate.IsFor(host)) << host;
  }
  for (const char* const host : {"b.example", "x.a.example", "example", "host a", "10.0.0.70",
                                 "10.0.0.8", "", ".", "*.example", "fd00::7"}) {
    EXPECT_FALSE(certificate.IsFor(host)) << host;
  }
  EXPECT_TRUE(CheckServer(certificate, "a.example").ok());
  ExpectRefused(CheckServer(certificate, "b.example"), "not for b.example");
  ExpectRefused(CheckServer(ParseCertificate(Issue(Role::kCoordinator)).value(), "a.example"),
                "role is coordinator");
}

// It may serve workers that ask to join, wherever it runs; and nobody else may do so.
TEST_F(CertificateTest, OfACoordinatorServesThoseThatJoin) {
  EXPECT_TRUE(Verify(Issue(Role::kCoordinator), Purpose::kServer).ok());
  EXPECT_TRUE(CheckCoordinator(ParseCertificate(Issue(Role::kCoordinator)).value()).ok());
  for (const Role role : {Role::kWorker, Role::kObserver}) {
    ExpectRefused(CheckCoordinator(ParseCertificate(Issue(role)).value()),
                  "workers join a coordinator alone");
  }
}

TEST_F(CertificateTest, IsBelievedIfItsAuthorityIs) {
  EXPECT_TRUE(Verify(Issue(Role::kWorker), Purpose::kServer).ok());
  EXPECT_TRUE(Verify(Issue(Role::kWorker), Purpose::kClient).ok());
  EXPECT_TRUE(Verify(Issue(Role::kCoordinator), Purpose::kClient).ok());
  ExpectRefused(
      VerifyCertificate(other_.certificate_pem, Issue(Role::kWorker), Purpose::kServer, now_),
      "another authority (one)");
  const std::string both = other_.certificate_pem + authority_.certificate_pem;
  EXPECT_TRUE(VerifyCertificate(both, Issue(Role::kWorker), Purpose::kServer, now_).ok());
}

TEST_F(CertificateTest, IsBelievedInItsTime) {
  const std::string expired = Issue(Role::kWorker, -2 * kDay, -kDay);
  ExpectRefused(Verify(expired, Purpose::kServer),
                absl::StrCat("has expired on ", DateText(now_ - kDay)));
  const std::string early = Issue(Role::kWorker, kDay, 2 * kDay);
  ExpectRefused(Verify(early, Purpose::kServer),
                absl::StrCat("valid only from ", DateText(now_ + kDay)));
}

TEST_F(CertificateTest, OfAnotherRoleIsNoServers) {
  ExpectRefused(Verify(Issue(Role::kObserver), Purpose::kServer), "only a worker's may serve");
}

// A host's key cannot make certificates, though its holder can try.
TEST_F(CertificateTest, OfAHostSignsNoOther) {
  CertificateRequest request;
  request.name = "host a";
  request.role = Role::kWorker;
  request.names = {"a.example"};
  request.not_before = now_ - kDay;
  request.not_after = now_ + kDay;
  const Identity host = IssueCertificate(authority_, request).value();
  request.role = Role::kCoordinator;
  const Identity forged = IssueCertificate(host, request).value();
  EXPECT_EQ(Verify(forged.certificate_pem + host.certificate_pem, Purpose::kClient).code(),
            absl::StatusCode::kUnauthenticated);
}

// The signature covers the names.
TEST_F(CertificateTest, ThatWasChangedIsRefused) {
  const std::string pem = Issue(Role::kObserver);
  ASSERT_TRUE(Verify(pem, Purpose::kClient).ok());
  const OpenSsl<BIO> bio = ReadingBio(pem);
  const OpenSsl<X509> parsed(PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr));
  unsigned char* der = nullptr;
  const int size = i2d_X509(parsed.get(), &der);
  ASSERT_GT(size, 0);
  std::string bytes(reinterpret_cast<char*>(der), static_cast<size_t>(size));
  OPENSSL_free(der);
  const size_t at = bytes.find("a.example");
  ASSERT_NE(at, std::string::npos);
  bytes[at] = 'b';
  const auto* cursor = reinterpret_cast<const unsigned char*>(bytes.data());
  const OpenSsl<X509> changed(d2i_X509(nullptr, &cursor, static_cast<long>(bytes.size())));
  ASSERT_NE(changed, nullptr);
  const OpenSsl<BIO> text(BIO_new(BIO_s_mem()));
  ASSERT_EQ(PEM_write_bio_X509(text.get(), changed.get()), 1);
  EXPECT_TRUE(ParseCertificate(BytesOf(*text))->IsFor("b.example"));
  ExpectRefused(Verify(BytesOf(*text), Purpose::kClient), "signed by another authority");
}

// Made by OpenSSL's configuration syntax, as we never do.
TEST_F(CertificateTest, WithTwoRolesOrAnUnknownOneIsRefused) {
  for (const char* const names :
       {"URI:weft:role:observer,URI:weft:role:coordinator", "URI:weft:role:root"}) {
    const OpenSsl<EVP_PKEY> key(EVP_PKEY_Q_keygen(nullptr, nullptr, "ED25519"));
    const OpenSsl<X509> made(X509_new());
    X509_set_version(made.get(), X509_VERSION_3);
    X509_set_pubkey(made.get(), key.get());
    const OpenSsl<X509_EXTENSION> extension(
        X509V3_EXT_conf_nid(nullptr, nullptr, NID_subject_alt_name, names));
    ASSERT_EQ(X509_add_ext(made.get(), extension.get(), -1), 1);
    ASSERT_NE(X509_sign(made.get(), key.get(), nullptr), 0);
    const OpenSsl<BIO> text(BIO_new(BIO_s_mem()));
    PEM_write_bio_X509(text.get(), made.get());
    EXPECT_EQ(ParseCertificate(BytesOf(*text)).status().code(), absl::StatusCode::kInvalidArgument)
        << names;
  }
}

TEST(Roles, HaveNames) {
  for (const Role role : {Role::kCoordinator, Role::kWorker, Role::kObserver}) {
    EXPECT_EQ(ParseRole(RoleName(role)), role);
  }
  EXPECT_FALSE(ParseRole("Worker").has_value());
  EXPECT_FALSE(ParseRole("").has_value());
}

}  // namespace
}  // namespace weft
