// OpenSSL's objects with owners, and its errors as statuses. Of this folder alone.
#ifndef WEFT_DISTRIBUTED_KEYS_OPENSSL_H_
#define WEFT_DISTRIBUTED_KEYS_OPENSSL_H_

#include <openssl/bio.h>
#include <openssl/evp.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <openssl/x509_vfy.h>
#include <openssl/x509v3.h>

#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace weft {

// Frees what OpenSsl owns.
struct OpenSslFree {
  void operator()(BIO* value) const { BIO_free_all(value); }
  void operator()(BIGNUM* value) const { BN_free(value); }
  void operator()(EVP_PKEY* value) const { EVP_PKEY_free(value); }
  void operator()(X509* value) const { X509_free(value); }
  void operator()(X509_STORE* value) const { X509_STORE_free(value); }
  void operator()(X509_STORE_CTX* value) const { X509_STORE_CTX_free(value); }
  void operator()(X509_EXTENSION* value) const { X509_EXTENSION_free(value); }
  void operator()(GENERAL_NAMES* value) const { GENERAL_NAMES_free(value); }
  void operator()(EXTENDED_KEY_USAGE* value) const { EXTENDED_KEY_USAGE_free(value); }
  void operator()(SSL* value) const { SSL_free(value); }
  void operator()(SSL_CTX* value) const { SSL_CTX_free(value); }
  void operator()(STACK_OF(X509) * value) const { sk_X509_pop_free(value, X509_free); }
};

// Owns one object of OpenSSL. Null stands for none, also where OpenSSL could not make it.
template <typename T>
using OpenSsl = std::unique_ptr<T, OpenSslFree>;

// Internal: "cannot <doing>: <what OpenSSL said last in this thread>". Empties OpenSSL's queue of
// errors, whose texts have no key in them.
absl::Status OpenSslError(std::string_view doing);

// Bytes to read from, which are borrowed. Null where memory is out.
OpenSsl<BIO> ReadingBio(std::string_view bytes);

// What was written into a memory BIO.
std::string BytesOf(BIO& written);

}  // namespace weft

#endif  // WEFT_DISTRIBUTED_KEYS_OPENSSL_H_
