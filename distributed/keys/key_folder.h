// KeySet: the keys of one host or role, as they lie in its folder.
#ifndef WEFT_DISTRIBUTED_KEYS_KEY_FOLDER_H_
#define WEFT_DISTRIBUTED_KEYS_KEY_FOLDER_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "distributed/keys/certificate.h"

namespace weft {

// The files of a folder.
inline constexpr char kIdentityFile[] = "identity.pem";    // private key and certificate, 0600
inline constexpr char kAuthorityFile[] = "authority.pem";  // certificates that are trusted
inline constexpr char kTokenFile[] = "token";              // the token of the cluster's jobs, 0600

// Who this process is, and whom it trusts.
struct KeySet {
  std::string identity_pem;   // a secret: private key and certificate, then its chain if any
  std::string authority_pem;  // certificates of one authority, or of the earlier and the next one
  Certificate certificate;
};

// Whether the private key is the certificate's, and a trusted authority has signed it, valid at
// `now`. The errors are those of VerifyCertificate, or InvalidArgument; none has a key in it.
absl::Status CheckKeySet(const KeySet& keys, absl::Time now);

// The keys of a folder, checked. PermissionDenied where another user could read the private key;
// all errors name the file.
absl::StatusOr<KeySet> ReadKeyFolder(const std::string& folder, absl::Time now);

// What to tell people about a certificate that expires within kExpiryNotice; "" for others.
inline constexpr absl::Duration kExpiryNotice = absl::Hours(14 * 24);
std::string ExpiryNote(const Certificate& certificate, absl::Time now);

}  // namespace weft

#endif  // WEFT_DISTRIBUTED_KEYS_KEY_FOLDER_H_
