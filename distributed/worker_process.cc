#include "distributed/worker_process.h"

#include <iostream>
#include <memory>
#include <utility>

#include "distributed/grpc/address.h"
#include "distributed/grpc/grpc_server.h"
#include "platform/clock.h"
#include "platform/status_macros.h"

namespace weft {

absl::Status ServeWorker(const WorkerProcessOptions& options) {
  WEFT_ASSIGN_OR_RETURN(const std::unique_ptr<GrpcServer> server,
                        GrpcServer::Start({options.listen, options.insecure_network}));
  if (!IsLocalAddress(server->address())) {
    std::cerr << "warning: listening on " << server->address()
              << " WITHOUT encryption or authentication (--insecure-network): whoever reaches this "
                 "address can read and change the job\n";
  }
  WorkerEnvironment environment;
  environment.device = options.device;
  environment.clock = &RealClock();
  environment.open_input = options.open_input;
  environment.version = options.version;
  environment.open_transport = [&](const JobMembership& membership) {
    return server->OpenTransport(membership);
  };
  Worker worker(std::move(environment));
  server->control().SetWorker(&worker, options.version);
  if (options.on_listening != nullptr) options.on_listening(server->address());
  server->control().AwaitEnd(RealClock(), absl::InfiniteFuture(), options.ends_with_coordinator);
  // The worker ends before the server that its transport is made of.
  server->control().Stop();
  return absl::OkStatus();
}

}  // namespace weft
