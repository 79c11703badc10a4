// Options of all channels and servers: keepalive, limits, no proxy.
#ifndef WEFT_DISTRIBUTED_GRPC_CHANNEL_OPTIONS_H_
#define WEFT_DISTRIBUTED_GRPC_CHANNEL_OPTIONS_H_

#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "distributed/keys/certificate.h"
#include "distributed/keys/key_ring.h"

namespace weft {

// A message is at most a part of 1 MiB and its header; control messages are smaller than that.
inline constexpr int kLongestMessageBytes = 2 << 20;

// A connection of its own. A peer that stays silent for 1 s is asked, and given up 3 s later. With
// keys it is TLS, to the worker on the address's host and no other (or to a coordinator, where
// `serves` says so); unix sockets and channels without keys (null) are not encrypted.
std::shared_ptr<grpc::Channel> NewChannel(const std::string& address, const KeyRing* keys = nullptr,
                                          Role serves = Role::kWorker);

// Lets clients ask as often as NewChannel's do, asks as often itself, refuses longer messages and
// more than 16 streams on a connection at once, and a client that is slow to begin.
void SetServerOptions(grpc::ServerBuilder& builder);

// The key of the metadata in which every call and stream carries the job's token.
inline constexpr char kTokenKey[] = "weft-token";

// The key under which a coordinator's call carries the number of its lease, in decimal.
inline constexpr char kLeaseKey[] = "weft-lease";

// The same of its epoch (distributed/coordinator_epoch.h), once it has one.
inline constexpr char kEpochKey[] = "weft-epoch";

// Unauthenticated unless the call carries this token.
absl::Status CheckToken(const grpc::ServerContextBase& context, const std::string& token);

// Comes before the first use of gRPC in the process: its own messages on standard error are turned
// off (every error reaches our callers as a status; handshakes that failed are counted), TLS is 1.3
// or none, and its polling is chosen unless the environment's GRPC_POLL_STRATEGY says otherwise.
void PrepareGrpc();

}  // namespace weft

#endif  // WEFT_DISTRIBUTED_GRPC_CHANNEL_OPTIONS_H_
