// Mutual TLS for gRPC, from the keys of a cluster.
#ifndef WEFT_DISTRIBUTED_GRPC_CREDENTIALS_TLS_CREDENTIALS_H_
#define WEFT_DISTRIBUTED_GRPC_CREDENTIALS_TLS_CREDENTIALS_H_

#include <grpcpp/grpcpp.h>

#include <cstdint>
#include <memory>
#include <string>

#include "distributed/keys/key_folder.h"
#include "distributed/keys/key_ring.h"

namespace weft {

// Comes before the first use of gRPC in the process: TLS below 1.3 is never agreed on.
void RequireTls13();

// A server that shows the ring's identity and wants a certificate that the ring's authority has
// signed. Follows the ring, within two seconds. `keys` is borrowed until the server has ended.
std::shared_ptr<grpc::ServerCredentials> NewServerCredentials(const KeyRing& keys);

// A client that shows `keys` and talks to nobody but the worker on `host` (CheckServer), whose
// certificate the keys' authority has signed. With `serves` the coordinator: to nobody but one
// (CheckCoordinator), on any host. The keys are copied.
std::shared_ptr<grpc::ChannelCredentials> NewChannelCredentials(const KeySet& keys,
                                                                const std::string& host,
                                                                Role serves = Role::kWorker);

// To be given every error text of gRPC's own: logs those of handshakes that failed, at most one a
// second, without what the peer has sent. Thread-safe.
void NoteHandshakeError(const std::string& text);
// How many of these there were in this process.
int64_t FailedHandshakes();

// gRPC's text of a connection that failed, with what it may mean where that is TLS.
std::string WithTlsHint(const std::string& text);

}  // namespace weft

#endif  // WEFT_DISTRIBUTED_GRPC_CREDENTIALS_TLS_CREDENTIALS_H_
