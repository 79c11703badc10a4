#include "distributed/grpc/grpc_server.h"

#include <chrono>
#include <utility>

#include "distributed/grpc/address.h"
#include "distributed/grpc/channel_options.h"
#include "distributed/grpc/credentials/socket_user.h"
#include "distributed/grpc/credentials/tls_credentials.h"
#include "distributed/grpc/grpc_transport.h"
#include "platform/status_macros.h"

namespace weft {

absl::StatusOr<std::unique_ptr<GrpcServer>> GrpcServer::Start(const GrpcServerOptions& options) {
  WEFT_RETURN_IF_ERROR(
      CheckAddress(options.address, options.insecure_network || options.keys != nullptr));
  WEFT_RETURN_IF_ERROR(ProbeListen(options.address));
  std::unique_ptr<GrpcServer> server(new GrpcServer(options));
  WEFT_RETURN_IF_ERROR(server->Build());
  return server;
}

GrpcServer::GrpcServer(GrpcServerOptions options)
    : options_(std::move(options)),
      is_secured_(options_.keys != nullptr && !HostOf(options_.address).empty()),
      control_(options_.token, is_secured_) {}

absl::Status GrpcServer::Build() {
  PrepareGrpc();
  grpc::ServerBuilder builder;
  SetServerOptions(builder);
  WEFT_ASSIGN_OR_RETURN(gate_, ConnectionGate::Listen(options_.address, options_.connections));
  acceptor_ = builder.experimental().AddExternalConnectionAcceptor(
      grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD,
      is_secured_ ? NewServerCredentials(*options_.keys) : grpc::InsecureServerCredentials());
  builder.RegisterService(&control_);
  thread_ = std::make_unique<CompletionThread>(builder.AddCompletionQueue());
  incoming_ = std::make_unique<IncomingStreams>(*thread_, options_.token, is_secured_);
  const auto trust = [gate = gate_.get()](const std::string& peer) { gate->Trust(peer); };
  incoming_->set_on_known(trust);
  control_.set_on_known(trust);
  builder.RegisterAsyncGenericService(&incoming_->service());
  server_ = builder.BuildAndStart();
  if (server_ == nullptr) return absl::UnavailableError("gRPC cannot start its server");
  address_ = gate_->address();
  thread_->Start();
  thread_->RunAndWait([this] { incoming_->Start(); });
  gate_->Start([this](int listener, int connection) {
    grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters taken;
    taken.listener_fd = listener;
    taken.fd = connection;
    acceptor_->HandleNewConnection(&taken);
  });
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Transport>> GrpcServer::OpenTransport(
    const JobMembership& membership, std::function<void(const std::string& reason)> on_abort) {
  for (const std::string& address : membership.addresses) {
    WEFT_RETURN_IF_ERROR(CheckAddress(address, network_allowed()));
    // Before a peer is told the token.
    if (const std::string path = SocketPathOf(address); !path.empty()) {
      WEFT_RETURN_IF_ERROR(CheckLocalListener(path));
    }
  }
  const GrpcTransport::Job job{membership.job_id, membership.rank, membership.addresses,
                               options_.token,    options_.keys,   std::move(on_abort)};
  return std::make_unique<GrpcTransport>(*thread_, *incoming_, job);
}

void GrpcServer::Stop() {
  if (server_ == nullptr) return;
  gate_->Stop();
  control_.Stop();
  server_->Shutdown(std::chrono::system_clock::now());
  incoming_->AwaitEnd();
  thread_.reset();
  server_.reset();
  RemoveSocket(address_);
}

GrpcServer::~GrpcServer() { Stop(); }

}  // namespace weft
