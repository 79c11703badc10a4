#include "distributed/keys/key_folder.h"

#include <cstdint>

#include "absl/strings/str_cat.h"
#include "distributed/keys/certificate_store.h"
#include "distributed/keys/openssl.h"
#include "platform/secret_file.h"
#include "platform/status.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

constexpr int64_t kMaxPemBytes = 1 << 20;
constexpr char kAdvice[] = "or make new keys (graph_runner cluster keys)";

absl::Status CheckPair(const KeySet& keys) {
  WEFT_ASSIGN_OR_RETURN(const OpenSsl<EVP_PKEY> key, ReadPrivateKey(keys.identity_pem));
  WEFT_ASSIGN_OR_RETURN(const CertificateStack stack, ReadCertificates(keys.identity_pem));
  if (X509_check_private_key(stack.front().get(), key.get()) == 1) return absl::OkStatus();
  OpenSslError("compare a key with its certificate").IgnoreError();  // empties the queue
  return absl::InvalidArgumentError(
      "the private key is not that of the certificate; copy the whole file again");
}

}  // namespace

absl::Status CheckKeySet(const KeySet& keys, absl::Time now) {
  WEFT_RETURN_IF_ERROR(CheckPair(keys));
  return VerifyCertificate(
      keys.authority_pem, keys.identity_pem,
      keys.certificate.role == Role::kWorker ? Purpose::kServer : Purpose::kClient, now);
}

absl::StatusOr<KeySet> ReadKeyFolder(const std::string& folder, absl::Time now) {
  const std::string identity = absl::StrCat(folder, "/", kIdentityFile);
  const std::string authority = absl::StrCat(folder, "/", kAuthorityFile);
  KeySet keys;
  WEFT_ASSIGN_OR_RETURN(keys.identity_pem,
                        ReadSecretFile(identity, kMaxPemBytes, "key file", kAdvice));
  // No secret, but whoever can write it decides whom this process believes.
  WEFT_ASSIGN_OR_RETURN(keys.authority_pem,
                        ReadSecretFile(authority, kMaxPemBytes, "key file", kAdvice));
  auto certificate = ParseCertificate(keys.identity_pem);
  if (!certificate.ok()) return Annotate(certificate.status(), identity);
  keys.certificate = *std::move(certificate);
  if (const auto trusted = ParseCertificate(keys.authority_pem); !trusted.ok()) {
    return Annotate(trusted.status(), authority);
  }
  WEFT_RETURN_IF_ERROR(Annotate(CheckKeySet(keys, now), identity));
  return keys;
}

std::string ExpiryNote(const Certificate& certificate, absl::Time now) {
  if (certificate.not_after - now > kExpiryNotice) return "";
  return absl::StrCat("the certificate of '", certificate.subject, "' expires on ",
                      DateText(certificate.not_after),
                      "; make a new one (graph_runner cluster keys) and copy it over the old: a "
                      "process that runs takes it without a restart");
}

}  // namespace weft
