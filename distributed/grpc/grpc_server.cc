#include "distributed/grpc/grpc_server.h"

#include <chrono>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "distributed/grpc/address.h"
#include "distributed/grpc/channel_options.h"
#include "distributed/grpc/grpc_transport.h"
#include "platform/status_macros.h"

namespace weft {

absl::StatusOr<std::unique_ptr<GrpcServer>> GrpcServer::Start(const GrpcServerOptions& options) {
  WEFT_RETURN_IF_ERROR(CheckAddress(options.address, options.insecure_network));
  WEFT_RETURN_IF_ERROR(ProbeListen(options.address));
  std::unique_ptr<GrpcServer> server(new GrpcServer(options));
  WEFT_RETURN_IF_ERROR(server->Build());
  return server;
}

absl::Status GrpcServer::Build() {
  PrepareGrpc();
  grpc::ServerBuilder builder;
  SetServerOptions(builder);
  int port = 0;
  builder.AddListeningPort(options_.address, grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(&control_);
  thread_ = std::make_unique<CompletionThread>(builder.AddCompletionQueue());
  incoming_ = std::make_unique<IncomingStreams>(*thread_, options_.token);
  builder.RegisterAsyncGenericService(&incoming_->service());
  {
    const PrivateFileMode mode;
    server_ = builder.BuildAndStart();
  }
  if (server_ == nullptr || port == 0) {
    return absl::UnavailableError(
        absl::StrCat("cannot listen on ", options_.address,
                     ": the address is in use by another process, or not one of this machine's"));
  }
  address_ = options_.address;
  WEFT_RETURN_IF_ERROR(KeepSocketPrivate(address_));
  if (!absl::StartsWith(address_, "unix:")) {
    address_ = absl::StrCat(address_.substr(0, address_.rfind(':')), ":", port);
  }
  thread_->Start();
  thread_->RunAndWait([this] { incoming_->Start(); });
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Transport>> GrpcServer::OpenTransport(
    const JobMembership& membership) {
  for (const std::string& address : membership.addresses) {
    WEFT_RETURN_IF_ERROR(CheckAddress(address, options_.insecure_network));
  }
  const GrpcTransport::Job job{membership.job_id, membership.rank, membership.addresses,
                               options_.token};
  return std::make_unique<GrpcTransport>(*thread_, *incoming_, job);
}

void GrpcServer::Stop() {
  if (server_ == nullptr) return;
  control_.Stop();
  server_->Shutdown(std::chrono::system_clock::now());
  incoming_->AwaitEnd();
  thread_.reset();
  server_.reset();
  RemoveSocket(address_);
}

GrpcServer::~GrpcServer() { Stop(); }

}  // namespace weft
