// Certificate: what an X.509 certificate says, and whether one is to be believed.
#ifndef WEFT_DISTRIBUTED_KEYS_CERTIFICATE_H_
#define WEFT_DISTRIBUTED_KEYS_CERTIFICATE_H_

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace weft {

// What the holder of a certificate may do in a cluster. distributed/grpc/credentials/call_roles.h
// has the table of calls.
enum class Role {
  kCoordinator,  // starts jobs and drives them
  kWorker,       // serves, and sends tensors to its peers
  kObserver,     // asks how workers are
};
// "coordinator", "worker", "observer".
std::string_view RoleName(Role role);
std::optional<Role> ParseRole(std::string_view name);

// How a role stands in a certificate: the URI "weft:role:worker" among the alternative names.
inline constexpr char kRoleUriPrefix[] = "weft:role:";

// A certificate's fields as text; control characters in names are escaped.
struct Certificate {
  std::string subject;                 // common name: for messages alone
  std::string issuer;                  // common name
  std::vector<std::string> names;      // DNS names
  std::vector<std::string> addresses;  // IPv4 and IPv6, as inet_ntop writes them
  std::optional<Role> role;            // nothing: of an authority, or not one of ours
  bool is_authority = false;
  absl::Time not_before;
  absl::Time not_after;
  std::string fingerprint;  // SHA-256 of its DER, 64 hexadecimal digits

  // Whether it was issued to this host: a DNS name without regard to case, or an address. No
  // wildcards; the common name does not count.
  bool IsFor(std::string_view host) const;
  // "localhost, 127.0.0.1", or "no host".
  std::string HostsText() const;
};

// The first certificate of a PEM text. InvalidArgument where there is none, or one with two roles
// or a role that is not known. It is read, not verified.
absl::StatusOr<Certificate> ParseCertificate(std::string_view pem);

// Whether a certificate that was verified may serve as the worker on `host`: it has the role of a
// worker, and is for this host. Unauthenticated naming both.
absl::Status CheckServer(const Certificate& certificate, std::string_view host);

// The same for who serves as the coordinator of a job (train --listen): it has that role. A
// coordinator may run anywhere, so its certificate names no host.
absl::Status CheckCoordinator(const Certificate& certificate);

// "2027-01-31 12:00:00 UTC".
std::string DateText(absl::Time time);

// What a certificate is presented as.
enum class Purpose { kServer, kClient };

// Whether the first certificate of `pem` (others may follow as its chain) is signed by one of
// `authorities` (PEM), valid at `now`, and may be used so. InvalidArgument if a text holds no
// certificate; Unauthenticated saying what is wrong, and what to do, otherwise. Signatures are
// checked by OpenSSL. Thread-safe.
absl::Status VerifyCertificate(std::string_view authorities, std::string_view pem, Purpose purpose,
                               absl::Time now);

// The same as a text for a verification that ended with OpenSSL's error `code` at `certificate`.
std::string VerificationText(int code, const Certificate& certificate);

}  // namespace weft

#endif  // WEFT_DISTRIBUTED_KEYS_CERTIFICATE_H_
