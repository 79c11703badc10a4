// ProbeTls: why a secured connection could not be made, in words.
#ifndef WEFT_DISTRIBUTED_KEYS_TLS_PROBE_H_
#define WEFT_DISTRIBUTED_KEYS_TLS_PROBE_H_

#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "distributed/keys/certificate.h"
#include "distributed/keys/key_folder.h"

namespace weft {

// Connects to a TCP address ("host:port", "[ipv6]:port") as a client of HTTP/2 over TLS 1.3, sends
// nothing but the handshake, and closes. gRPC's own errors say that a connection failed, not why.
//
// OK: both ends agree, or the peer keeps a connection open without a word until `timeout`.
// Unavailable: nobody listens, or the handshake was broken off without a reason.
// FailedPrecondition: one end speaks TLS and the other does not, or an older one.
// Unauthenticated: a certificate is expired, of another authority, for another host, of another
// role; or the peer does not take ours. Every text says whose, and what to do.
//
// `keys`: what this end presents and trusts; null: this end speaks no TLS, and only that the peer
// does is an error. `serves`: who listens there, a worker or a coordinator. Blocks for `timeout` at
// most, and the time to resolve the name. Thread-safe.
absl::Status ProbeTls(const std::string& address, const KeySet* keys, absl::Duration timeout,
                      Role serves = Role::kWorker);

}  // namespace weft

#endif  // WEFT_DISTRIBUTED_KEYS_TLS_PROBE_H_
