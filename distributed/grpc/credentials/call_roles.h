// Which role a call needs.
#ifndef WEFT_DISTRIBUTED_GRPC_CREDENTIALS_CALL_ROLES_H_
#define WEFT_DISTRIBUTED_GRPC_CREDENTIALS_CALL_ROLES_H_

#include <grpcpp/grpcpp.h>

#include <array>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "distributed/keys/certificate.h"

namespace weft {

// The calls of a worker: those of the service Control in weft.proto, and the data stream; and the
// one call of a coordinator, of the service Joining.
enum class WorkerCall {
  kAttend,
  kJoin,
  kAddProgram,
  kWriteVariable,
  kReadVariable,
  kRunSteps,
  kAsk,
  kAbort,
  kShutdown,
  kData,
  kOffer,
};

// A call and the role of its caller.
struct CallRule {
  WorkerCall call;
  std::string_view name;
  Role role;
};

// The table. An observer has no call in it: all of these end a job, take it or disturb it.
inline constexpr std::array<CallRule, 11> kCallRules = {
    {{WorkerCall::kAttend, "Attend", Role::kCoordinator},
     {WorkerCall::kJoin, "Join", Role::kCoordinator},
     {WorkerCall::kAddProgram, "AddProgram", Role::kCoordinator},
     {WorkerCall::kWriteVariable, "WriteVariable", Role::kCoordinator},
     {WorkerCall::kReadVariable, "ReadVariable", Role::kCoordinator},
     {WorkerCall::kRunSteps, "RunSteps", Role::kCoordinator},
     {WorkerCall::kAsk, "Ask", Role::kCoordinator},
     {WorkerCall::kAbort, "Abort", Role::kCoordinator},
     {WorkerCall::kShutdown, "Shutdown", Role::kCoordinator},
     {WorkerCall::kData, "data stream", Role::kWorker},
     {WorkerCall::kOffer, "Offer", Role::kWorker}}};

// The certificate of who is at the other end of a secured connection, as gRPC has verified it.
// Unauthenticated where there is none.
absl::StatusOr<Certificate> PeerCertificate(const grpc::AuthContext& peer);

// PermissionDenied, naming both roles, unless the table lets the caller make this call;
// Unauthenticated without a certificate. For secured connections alone.
absl::Status CheckRole(const grpc::AuthContext& peer, WorkerCall call);

// The same for the holder of this certificate.
absl::Status CheckRole(const Certificate& certificate, WorkerCall call);

// PermissionDenied unless the sender of a rank's data has the certificate of the rank's host, as
// the cluster file names it.
absl::Status CheckPeerHost(const grpc::AuthContext& peer, int rank, const std::string& host);

}  // namespace weft

#endif  // WEFT_DISTRIBUTED_GRPC_CREDENTIALS_CALL_ROLES_H_
