// GrpcServer: where one worker process listens, for its coordinator and for its peers.
#ifndef WEFT_DISTRIBUTED_GRPC_GRPC_SERVER_H_
#define WEFT_DISTRIBUTED_GRPC_GRPC_SERVER_H_

#include <grpcpp/grpcpp.h>

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "distributed/grpc/completion_thread.h"
#include "distributed/grpc/connection_gate.h"
#include "distributed/grpc/control_service.h"
#include "distributed/grpc/incoming_streams.h"
#include "distributed/keys/key_ring.h"
#include "distributed/transport.h"
#include "distributed/worker.h"
#include "distributed/worker_client.h"

namespace weft {

// Where a worker process listens, and which callers it accepts.
struct GrpcServerOptions {
  std::string address;            // "unix:/path" or "host:port"; port 0 = any free one
  bool insecure_network = false;  // allow other addresses than loopback
  std::string token = {};         // of every caller and peer
  ConnectionLimits connections = {};
  // Mutual TLS, on all but unix sockets; null: none.
  std::shared_ptr<KeyRing> keys = {};
};

// Serves control calls to the worker it is given (none yet: Unavailable) and data streams to the
// transport made last. The worker and the transports end before it.
class GrpcServer {
 public:
  // Unavailable naming the address when it is taken, at once; InvalidArgument or FailedPrecondition
  // when it may not be listened on.
  static absl::StatusOr<std::unique_ptr<GrpcServer>> Start(const GrpcServerOptions& options);
  ~GrpcServer();

  // With the port that was found for 0.
  const std::string& address() const { return address_; }
  // FailedPrecondition for addresses of peers that may not be used (see options). `on_abort` is
  // told of the reason once, where the job is aborted; by any thread; null: nobody is.
  absl::StatusOr<std::unique_ptr<Transport>> OpenTransport(
      const JobMembership& membership,
      std::function<void(const std::string& reason)> on_abort = nullptr);
  ControlService& control() { return control_; }
  const ConnectionGate& gate() const { return *gate_; }
  // Ends all calls; nothing is served after it. Idempotent.
  void Stop();

 private:
  explicit GrpcServer(GrpcServerOptions options);
  absl::Status Build();
  bool network_allowed() const { return options_.insecure_network || options_.keys != nullptr; }

  const GrpcServerOptions options_;
  const bool is_secured_;  // every caller has shown a certificate
  std::string address_;
  ControlService control_;
  std::unique_ptr<ConnectionGate> gate_;  // hands over to acceptor_
  std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> acceptor_;
  std::unique_ptr<CompletionThread> thread_;
  std::unique_ptr<IncomingStreams> incoming_;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace weft

#endif  // WEFT_DISTRIBUTED_GRPC_GRPC_SERVER_H_
