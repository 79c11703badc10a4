#include "distributed/process/worker_process.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <optional>
#include <random>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "distributed/grpc/control_service.h"
#include "distributed/grpc/grpc_server.h"
#include "distributed/grpc/joining/join_requests.h"
#include "distributed/process/stale_watch.h"
#include "distributed/shared_memory/handover.h"
#include "distributed/shared_memory/ranks_here.h"
#include "distributed/shared_memory/shared_memory_transport.h"
#include "platform/clock.h"
#include "platform/log.h"
#include "platform/process_memory.h"
#include "platform/restricted_files.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

// How long a call may take to end by itself. One whose coordinator is there but no longer reads
// does not: gRPC goes on with the write until the connection breaks.
constexpr absl::Duration kStopPatience = absl::Seconds(1);
constexpr absl::Duration kStopInterval = absl::Milliseconds(200);
// How long a worker that is told to end waits for its job to go on without it. Schedulers that end
// processes wait 30 s for them.
constexpr absl::Duration kLeavePatience = absl::Seconds(25);

JoinRequestOptions JoiningOf(const WorkerProcessOptions& options, const std::string& address) {
  std::random_device random;
  JoinRequestOptions join;
  join.coordinator = options.join;
  join.insecure_network = options.insecure_network;
  join.token = options.token;
  join.keys = options.keys;
  join.version = options.version;
  join.address = address;
  join.device = options.device->info().name;
  join.incarnation = (uint64_t{random()} << 32) | random() | 1;  // never 0
  return join;
}

// What messages of the job go through.
absl::StatusOr<std::unique_ptr<Transport>> OpenTransport(const WorkerProcessOptions& options,
                                                         GrpcServer& server,
                                                         const JobMembership& membership) {
  const std::vector<bool> here = RanksHere(membership.addresses, membership.rank);
  const bool has_neighbours = std::count(here.begin(), here.end(), true) > 1;
  if (!options.shares_memory || !has_neighbours) return server.OpenTransport(membership);
  const SharedMemoryJob job{RingFolder(), membership.job_id, membership.rank, membership.addresses,
                            here,         options.token};
  absl::Status sockets;
  auto transport = SharedMemoryTransport::Open(job, [&](SharedMemoryTransport::OnAbort on_abort) {
    auto opened = server.OpenTransport(membership, std::move(on_abort));
    sockets = opened.status();
    return opened;
  });
  if (transport.ok() || !sockets.ok()) return transport;
  // A machine that allows no such folder or memory; peers then find no listener.
  Log(LogLevel::kWarning, "shares no memory with other workers: ", transport.status().ToString());
  return server.OpenTransport(membership);
}

// Aborted where the worker is stale, or what ends its asking (`joining`, null: it does not ask).
absl::Status AwaitEnd(const WorkerProcessOptions& options, ControlService& control,
                      JoinRequests* joining) {
  StaleWatch watch;
  absl::Time leaves_by = absl::InfiniteFuture();
  while (
      !control.AwaitEnd(RealClock(), absl::Now() + kStopInterval, options.ends_with_coordinator)) {
    if (options.stop != nullptr && options.stop()) {
      if (!control.AskToLeave() || absl::Now() >= leaves_by) break;
      leaves_by = std::min(leaves_by, absl::Now() + kLeavePatience);
      continue;
    }
    WEFT_RETURN_IF_ERROR(watch.Look(absl::Now(), control.lease_lost()));
    if (joining != nullptr && joining->has_ended()) return joining->end();
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ServeWorker(const WorkerProcessOptions& options) {
  if (options.token.empty()) return absl::InvalidArgumentError("a worker needs a token");
  KeepHeapSmall();
  WEFT_ASSIGN_OR_RETURN(
      const std::unique_ptr<GrpcServer> server,
      GrpcServer::Start(
          {options.listen, options.insecure_network, options.token, {}, options.keys}));
  WorkerEnvironment environment;
  environment.device = options.device;
  environment.device_text = options.device_text;
  environment.clock = &RealClock();
  RestrictedFiles checkpoints(RealFileSystem(),
                              {options.checkpoint_roots, /*writable=*/true, "--checkpoint-root"});
  environment.checkpoint_files = &checkpoints;
  RestrictedFiles data(RealFileSystem(), {options.data_roots, /*writable=*/false, "--data-root"});
  if (options.open_input != nullptr) environment.open_input = options.open_input(data);
  environment.version = options.version;
  environment.open_transport =
      [&](const JobMembership& membership) -> absl::StatusOr<std::unique_ptr<Transport>> {
    SetLogName(absl::StrCat("worker:", membership.rank.value));
    WEFT_ASSIGN_OR_RETURN(std::unique_ptr<Transport> transport,
                          OpenTransport(options, *server, membership));
    if (options.decorate_transport == nullptr) return transport;
    return options.decorate_transport(std::move(transport));
  };
  if (!options.ends_with_coordinator) server->control().set_keep_state(options.keep_state);
  const std::unique_ptr<Worker> worker = NewWorker(std::move(environment));
  server->control().SetWorker(worker.get(), options.version);
  Log(LogLevel::kInfo, "listening on ", server->address());
  if (options.on_listening != nullptr) options.on_listening(server->address());
  std::optional<JoinRequests> joining;
  if (!options.join.empty()) {
    joining.emplace(JoiningOf(options, server->address()),
                    [&control = server->control()] { return control.is_attended(); });
  }
  const absl::Status ended =
      AwaitEnd(options, server->control(), joining.has_value() ? &*joining : nullptr);
  joining.reset();
  // The worker ends before the server that its transport is made of.
  if (!server->control().Stop(absl::Now() + kStopPatience)) {
    if (options.ends_with_coordinator) {
      std::cerr << "worker: the coordinator is lost and one of its calls cannot be cancelled; this "
                   "process ends\n";
      std::_Exit(EXIT_FAILURE);
    }
    server->control().Stop();
  }
  return ended;
}

}  // namespace weft
