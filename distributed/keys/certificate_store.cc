#include "distributed/keys/certificate_store.h"

#include <openssl/err.h>
#include <openssl/pem.h>

#include <utility>

#include "platform/status_macros.h"

namespace weft {
namespace {

// OpenSSL asks the terminal unless something answers for it.
int NoPassphrase(char*, int, int, void*) { return -1; }

}  // namespace

absl::StatusOr<CertificateStack> ReadCertificates(std::string_view pem) {
  const OpenSsl<BIO> bio = ReadingBio(pem);
  CertificateStack stack;
  while (bio != nullptr) {
    OpenSsl<X509> certificate(PEM_read_bio_X509(bio.get(), nullptr, &NoPassphrase, nullptr));
    if (certificate == nullptr) break;
    stack.push_back(std::move(certificate));
  }
  ERR_clear_error();
  if (!stack.empty()) return stack;
  return absl::InvalidArgumentError("there is no certificate in PEM form");
}

absl::StatusOr<OpenSsl<EVP_PKEY>> ReadPrivateKey(std::string_view pem) {
  const OpenSsl<BIO> bio = ReadingBio(pem);
  OpenSsl<EVP_PKEY> key(bio == nullptr
                            ? nullptr
                            : PEM_read_bio_PrivateKey(bio.get(), nullptr, &NoPassphrase, nullptr));
  ERR_clear_error();
  if (key != nullptr) return key;
  return absl::InvalidArgumentError("there is no private key in PEM form, without a passphrase");
}

absl::StatusOr<OpenSsl<X509_STORE>> NewStore(std::string_view authorities) {
  WEFT_ASSIGN_OR_RETURN(const CertificateStack stack, ReadCertificates(authorities));
  OpenSsl<X509_STORE> store(X509_STORE_new());
  if (store == nullptr) return OpenSslError("make a store of certificates");
  for (const OpenSsl<X509>& certificate : stack) {
    if (X509_STORE_add_cert(store.get(), certificate.get()) != 1) {
      return OpenSslError("trust a certificate");
    }
  }
  return store;
}

const X509* BlamedCertificate(X509_STORE_CTX& context) {
  const int code = X509_STORE_CTX_get_error(&context);
  const X509* const at = X509_STORE_CTX_get_current_cert(&context);
  const bool is_of_time =
      code == X509_V_ERR_CERT_HAS_EXPIRED || code == X509_V_ERR_CERT_NOT_YET_VALID;
  // A peer may send its authority along, where trust is then looked for in vain.
  return is_of_time && at != nullptr ? at : X509_STORE_CTX_get0_cert(&context);
}

}  // namespace weft
