// WorkerClient that calls a worker process.
#ifndef WEFT_DISTRIBUTED_GRPC_GRPC_CLIENT_H_
#define WEFT_DISTRIBUTED_GRPC_GRPC_CLIENT_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "distributed/keys/key_ring.h"
#include "distributed/loss_detection.h"
#include "distributed/worker_client.h"

namespace weft {

// How a coordinator reaches one worker process.
struct GrpcClientOptions {
  std::string address;
  RankId rank;                    // for messages
  bool insecure_network = false;  // allow other addresses than loopback
  std::string token = {};         // that the worker wants
  // For TLS, which the worker must speak too; null: none.
  std::shared_ptr<KeyRing> keys = {};
  // Until when the worker must have answered. Unavailable naming it if it has not.
  absl::Time connect_deadline = absl::InfiniteFuture();
  // Of a coordinator that has joined this worker before: a worker that has accepted a higher one
  // refuses it (IsDeposed in distributed/coordinator_epoch.h). 0: it comes for the first time.
  uint64_t epoch = 0;
  // How soon it is lost when it does not answer any more.
  LossDetection detection = {};
  // Longest time of one call, but for RunSteps.
  absl::Duration call_timeout = absl::Minutes(10);
};

// Unauthenticated and FailedPrecondition say within a second or two what is wrong with the
// certificate of either end, or that one end has keys and the other has none (ProbeTls).
// PermissionDenied: the worker does not know this program's handshake. Waits for the worker's
// answer and holds its lease from then on: when this client is destroyed, or its process ends, the
// worker aborts what it does. A destroyed client has waited until the worker is free for another
// one, a second at most. A worker that was lost once stays lost for this client: each later call
// ends at once, whatever has become of the connection.
absl::StatusOr<std::unique_ptr<WorkerClient>> ConnectToWorker(const GrpcClientOptions& options);

// Whether the error of a call says that the worker was lost because this process had been stopped:
// then the worker is not to blame, whatever became of it.
bool IsOfStoppedCoordinator(const absl::Status& status);

// Whether ConnectToWorker has failed because another coordinator attends the worker: it may be
// lost, and the worker notice it within kLeasePatience.
bool IsAttendedByAnother(const absl::Status& status);

// Asks the worker process behind a client of ConnectToWorker to end; false when it did not answer.
bool ShutDownWorker(WorkerClient& client);

}  // namespace weft

#endif  // WEFT_DISTRIBUTED_GRPC_GRPC_CLIENT_H_
