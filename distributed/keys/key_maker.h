// Private keys and certificates, made in memory.
#ifndef WEFT_DISTRIBUTED_KEYS_KEY_MAKER_H_
#define WEFT_DISTRIBUTED_KEYS_KEY_MAKER_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "distributed/keys/certificate.h"

namespace weft {

// A private key and the certificate of its public key.
struct Identity {
  std::string certificate_pem;
  std::string private_key_pem;  // PKCS #8, not encrypted: a secret

  // Both in one text, as identity.pem holds them: one file cannot hold a pair that does not fit.
  std::string pem() const { return private_key_pem + certificate_pem; }
};

// A new authority: Ed25519, signed by itself; may sign hosts and no other authority. Errors of
// OpenSSL are Internal.
absl::StatusOr<Identity> MakeAuthority(const std::string& name, absl::Time not_before,
                                       absl::Time not_after);

// What IssueCertificate writes into a certificate.
struct CertificateRequest {
  std::string name;                    // common name: for messages alone
  std::vector<std::string> names;      // DNS names
  std::vector<std::string> addresses;  // IPv4 or IPv6
  std::optional<Role> role;            // nothing: none, for tests
  absl::Time not_before;
  absl::Time not_after;
};

// A new Ed25519 key and its certificate, signed by the authority, with a random serial number of
// 159 bits. A worker's and a coordinator's are those of a server and of a client (a coordinator
// serves workers that ask to join, train --listen); any other's is one of a client alone.
// InvalidArgument for what is no address or no name of a host.
absl::StatusOr<Identity> IssueCertificate(const Identity& authority,
                                          const CertificateRequest& request);

}  // namespace weft

#endif  // WEFT_DISTRIBUTED_KEYS_KEY_MAKER_H_
