// PEM texts as OpenSSL's certificates. Of this folder alone.
#ifndef WEFT_DISTRIBUTED_KEYS_CERTIFICATE_STORE_H_
#define WEFT_DISTRIBUTED_KEYS_CERTIFICATE_STORE_H_

#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "distributed/keys/openssl.h"

namespace weft {

// At least one.
using CertificateStack = std::vector<OpenSsl<X509>>;

// All certificates of a PEM text, in order; what else is in it (a private key) is passed over.
// InvalidArgument where there is none.
absl::StatusOr<CertificateStack> ReadCertificates(std::string_view pem);

// The private key of a PEM text; an encrypted one is refused without asking. InvalidArgument where
// there is none.
absl::StatusOr<OpenSsl<EVP_PKEY>> ReadPrivateKey(std::string_view pem);

// Trusts the certificates of a PEM text and no others.
absl::StatusOr<OpenSsl<X509_STORE>> NewStore(std::string_view authorities);

// The certificate that people should be told of when a verification has failed: the one whose time
// it is about, otherwise the peer's own. Null before a verification; owned by the context.
const X509* BlamedCertificate(X509_STORE_CTX& context);

}  // namespace weft

#endif  // WEFT_DISTRIBUTED_KEYS_CERTIFICATE_STORE_H_
