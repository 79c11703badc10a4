// Certificates as OpenSSL's own functions see them.
#include "distributed/keys/key_maker.h"

#include <openssl/pem.h>

#include <string>

#include "absl/strings/str_replace.h"
#include "absl/time/clock.h"
#include "distributed/keys/openssl.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

constexpr absl::Duration kDay = absl::Hours(24);

Identity Authority() {
  return MakeAuthority("test", absl::Now() - kDay, absl::Now() + 10 * kDay).value();
}

CertificateRequest RequestOf(Role role) {
  CertificateRequest request;
  request.name = "a";
  request.names = {"a.example"};
  request.addresses = {"10.0.0.7", "fd00::7"};
  request.role = role;
  request.not_before = absl::FromUnixSeconds(1'700'000'000);
  request.not_after = absl::FromUnixSeconds(1'800'000'000);
  return request;
}

OpenSsl<X509> Read(const std::string& pem) {
  const OpenSsl<BIO> bio = ReadingBio(pem);
  return OpenSsl<X509>(PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr));
}

TEST(KeyMaker, AnAuthoritySignsItselfAndHostsAlone) {
  const OpenSsl<X509> authority = Read(Authority().certificate_pem);
  ASSERT_NE(authority, nullptr);
  EXPECT_EQ(X509_check_ca(authority.get()), 1);
  EXPECT_EQ(X509_get_pathlen(authority.get()), 0);
  EXPECT_EQ(X509_get_key_usage(authority.get()), static_cast<uint32_t>(KU_KEY_CERT_SIGN));
  EVP_PKEY* const key = X509_get0_pubkey(authority.get());
  EXPECT_EQ(EVP_PKEY_id(key), EVP_PKEY_ED25519);
  EXPECT_EQ(X509_verify(authority.get(), key), 1);
}

TEST(KeyMaker, ACertificateIsSignedNamedAndTimed) {
  const Identity authority = Authority();
  const Identity made = IssueCertificate(authority, RequestOf(Role::kWorker)).value();
  const OpenSsl<X509> issuer = Read(authority.certificate_pem);
  const OpenSsl<X509> other = Read(Authority().certificate_pem);
  const OpenSsl<X509> certificate = Read(made.certificate_pem);
  ASSERT_NE(certificate, nullptr);
  EXPECT_EQ(X509_get_version(certificate.get()), X509_VERSION_3);
  EXPECT_EQ(X509_verify(certificate.get(), X509_get0_pubkey(issuer.get())), 1);
  EXPECT_NE(X509_verify(certificate.get(), X509_get0_pubkey(other.get())), 1);
  EXPECT_EQ(X509_check_issued(issuer.get(), certificate.get()), X509_V_OK);
  EXPECT_EQ(X509_check_ca(certificate.get()), 0);
  EXPECT_EQ(X509_check_host(certificate.get(), "a.example", 0, 0, nullptr), 1);
  EXPECT_EQ(X509_check_host(certificate.get(), "b.example", 0, 0, nullptr), 0);
  EXPECT_EQ(X509_check_host(certificate.get(), "a", 0, 0, nullptr), 0) << "the common name";
  EXPECT_EQ(X509_check_ip_asc(certificate.get(), "10.0.0.7", 0), 1);
  EXPECT_EQ(X509_check_ip_asc(certificate.get(), "fd00:0::7", 0), 1);
  EXPECT_EQ(X509_check_ip_asc(certificate.get(), "10.0.0.8", 0), 0);
  time_t begin = 1'700'000'000;
  time_t end = 1'800'000'000;
  EXPECT_EQ(ASN1_TIME_cmp_time_t(X509_get0_notBefore(certificate.get()), begin), 0);
  EXPECT_EQ(ASN1_TIME_cmp_time_t(X509_get0_notAfter(certificate.get()), end), 0);
}

TEST(KeyMaker, AKeyIsThatOfItsCertificateAndNoOther) {
  const Identity authority = Authority();
  const Identity one = IssueCertificate(authority, RequestOf(Role::kWorker)).value();
  const Identity two = IssueCertificate(authority, RequestOf(Role::kWorker)).value();
  const std::string pem = one.pem();
  const OpenSsl<BIO> bio = ReadingBio(pem);
  const OpenSsl<EVP_PKEY> key(PEM_read_bio_PrivateKey(bio.get(), nullptr, nullptr, nullptr));
  ASSERT_NE(key, nullptr);
  EXPECT_EQ(X509_check_private_key(Read(one.pem()).get(), key.get()), 1);
  EXPECT_EQ(X509_check_private_key(Read(two.pem()).get(), key.get()), 0);
  EXPECT_NE(ASN1_INTEGER_cmp(X509_get0_serialNumber(Read(one.pem()).get()),
                             X509_get0_serialNumber(Read(two.pem()).get())),
            0);
}

TEST(KeyMaker, AnObserverMayNotServe) {
  const Identity authority = Authority();
  for (const Role role : {Role::kWorker, Role::kCoordinator, Role::kObserver}) {
    const Identity made = IssueCertificate(authority, RequestOf(role)).value();
    const uint32_t usage = X509_get_extended_key_usage(Read(made.certificate_pem).get());
    EXPECT_EQ(usage, role == Role::kObserver ? XKU_SSL_CLIENT : XKU_SSL_SERVER | XKU_SSL_CLIENT);
    EXPECT_EQ(ParseCertificate(made.certificate_pem)->role, role);
  }
}

// In OpenSSL's configuration syntax, a comma would begin another name.
TEST(KeyMaker, ANameIsOneName) {
  const Identity authority = Authority();
  for (const std::string name : {"a,DNS:b", "a b", "", "a\n", "weft:role:worker", "*"}) {
    CertificateRequest request = RequestOf(Role::kWorker);
    request.names = {name};
    EXPECT_EQ(IssueCertificate(authority, request).status().code(),
              absl::StatusCode::kInvalidArgument)
        << name;
  }
  for (const std::string address : {"10.0.0", "a", "10.0.0.7/8", ""}) {
    CertificateRequest request = RequestOf(Role::kWorker);
    request.addresses = {address};
    EXPECT_EQ(IssueCertificate(authority, request).status().code(),
              absl::StatusCode::kInvalidArgument)
        << address;
  }
}

}  // namespace
}  // namespace weft
