#include "distributed/grpc/joining/join_desk.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <chrono>
#include <list>
#include <string_view>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "distributed/grpc/address.h"
#include "distributed/grpc/channel_options.h"
#include "distributed/grpc/connection_gate.h"
#include "distributed/grpc/credentials/call_roles.h"
#include "distributed/grpc/credentials/tls_credentials.h"
#include "distributed/grpc/joining/join_requests.h"
#include "distributed/grpc/seal.h"
#include "distributed/grpc/status_codec.h"
#include "distributed/grpc/weft.grpc.pb.h"
#include "distributed/keys/certificate.h"
#include "platform/control_characters.h"
#include "platform/log.h"
#include "platform/mutex.h"
#include "platform/status.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

// Connections at once: a worker has one while it asks.
constexpr ConnectionLimits kDeskConnections = {16, 64, absl::Seconds(10)};
constexpr size_t kLongestAddress = 300;
constexpr size_t kLongestDevice = 64;
// Refusals that are remembered, for who asks again.
constexpr size_t kMaxRefusals = 64;

class OfferService final : public rpc::Joining::Service {
 public:
  OfferService(const JoinDeskOptions& options, bool is_secured)
      : options_(options), is_secured_(is_secured), version_(HandshakeVersion(options.version)) {}
  // As ControlService::set_on_known.
  void set_on_known(std::function<void(const std::string& peer)> known) {
    on_known_ = std::move(known);
  }

  grpc::Status Offer(grpc::ServerContext* context, grpc::ServerReader<rpc::Sealed>* requests,
                     rpc::Sealed* reply) override {
    const absl::StatusOr<int> waiting = Take(*context, *requests);
    if (!waiting.ok()) {
      Log(LogLevel::kInfo, "a worker that wants to join is refused: ",
          EscapeControlCharacters(std::string(waiting.status().message())));
      return AnswerWith(*context, waiting.status());
    }
    rpc::OfferReply answer;
    answer.set_waiting(*waiting);
    *reply = Seal(answer);
    return grpc::Status::OK;
  }

  std::vector<JoinOffer> TakeNew() {
    MutexLock lock(mutex_);
    ForgetOld();
    std::vector<JoinOffer> taken;
    for (Waiting& one : waiting_) {
      if (one.is_taken) continue;
      one.is_taken = true;
      taken.push_back(one.offer);
    }
    return taken;
  }

  void Refuse(uint64_t incarnation, const absl::Status& why) {
    MutexLock lock(mutex_);
    Remove(incarnation);
    refusals_.push_back({incarnation, why});
    if (refusals_.size() > kMaxRefusals) refusals_.pop_front();
  }

  void Forget(uint64_t incarnation) {
    MutexLock lock(mutex_);
    Remove(incarnation);
  }

  int waiting() {
    MutexLock lock(mutex_);
    ForgetOld();
    return static_cast<int>(waiting_.size());
  }

 private:
  struct Waiting {
    JoinOffer offer;
    absl::Time renewed;
    bool is_taken = false;  // by the job, which says what becomes of it
  };
  struct Refusal {
    uint64_t incarnation = 0;
    absl::Status why;
  };

  absl::Status CheckKnown(const grpc::ServerContext& context) const {
    WEFT_RETURN_IF_ERROR(CheckToken(context, options_.token));
    if (is_secured_) {
      WEFT_RETURN_IF_ERROR(CheckRole(*context.auth_context(), WorkerCall::kOffer));
    }
    if (on_known_ != nullptr) on_known_(context.peer());
    return absl::OkStatus();
  }

  absl::Status CheckVersion(const grpc::ServerContext& context) const {
    const auto& metadata = context.client_metadata();
    const auto found = metadata.find(kOfferVersionKey);
    const std::string version =
        found == metadata.end() ? "" : std::string(found->second.data(), found->second.size());
    if (version == version_) return absl::OkStatus();
    return absl::PermissionDeniedError(
        absl::StrCat("the version of this worker is ", EscapeControlCharacters(version),
                     ", the coordinator's is ", version_, "; install the same build"));
  }

  // With keys, nobody offers another host than its own.
  absl::Status CheckOffered(const grpc::ServerContext& context, const JoinOffer& offer) const {
    if (offer.address.size() > kLongestAddress || offer.device.size() > kLongestDevice ||
        offer.incarnation == 0) {
      return absl::InvalidArgumentError("the offer of a worker is not one");
    }
    WEFT_RETURN_IF_ERROR(
        CheckAddress(offer.address, options_.insecure_network || options_.keys != nullptr));
    const std::string host = HostOf(offer.address);
    if (is_secured_ && !host.empty()) {
      WEFT_ASSIGN_OR_RETURN(const Certificate certificate,
                            PeerCertificate(*context.auth_context()));
      if (!certificate.IsFor(host)) {
        return absl::PermissionDeniedError(
            absl::StrCat("this worker offers to serve on ", host, ", and its certificate is for ",
                         certificate.HostsText(), ": give --listen one of these names"));
      }
    }
    return options_.check_address == nullptr ? absl::OkStatus()
                                             : options_.check_address(offer.address);
  }

  // How many wait, with this one.
  absl::StatusOr<int> Take(const grpc::ServerContext& context,
                           grpc::ServerReader<rpc::Sealed>& requests) {
    WEFT_RETURN_IF_ERROR(CheckKnown(context));
    WEFT_RETURN_IF_ERROR(CheckVersion(context));
    WEFT_ASSIGN_OR_RETURN(const auto request, ReadSealed<rpc::OfferRequest>(requests));
    const JoinOffer offer = {request.incarnation(), request.address(), request.device()};
    WEFT_RETURN_IF_ERROR(CheckOffered(context, offer));
    MutexLock lock(mutex_);
    ForgetOld();
    for (const Refusal& refusal : refusals_) {
      if (refusal.incarnation == offer.incarnation) return refusal.why;
    }
    for (Waiting& one : waiting_) {
      if (one.offer.incarnation != offer.incarnation) continue;
      one.renewed = absl::Now();
      return static_cast<int>(waiting_.size());
    }
    if (static_cast<int>(waiting_.size()) >= options_.max_waiting) {
      return absl::ResourceExhaustedError(
          absl::StrCat(waiting_.size(),
                       " workers wait to be taken into this job already, and no "
                       "more may: start fewer, or try again later"));
    }
    waiting_.push_back({offer, absl::Now(), false});
    Log(LogLevel::kInfo, "a worker at ", EscapeControlCharacters(offer.address), " wants to join");
    return static_cast<int>(waiting_.size());
  }

  void ForgetOld() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const absl::Time oldest = absl::Now() - options_.patience;
    waiting_.remove_if(
        [oldest](const Waiting& one) { return !one.is_taken && one.renewed < oldest; });
  }
  void Remove(uint64_t incarnation) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    waiting_.remove_if(
        [incarnation](const Waiting& one) { return one.offer.incarnation == incarnation; });
  }

  const JoinDeskOptions& options_;
  const bool is_secured_;
  const std::string version_;
  std::function<void(const std::string& peer)> on_known_;
  Mutex mutex_;
  std::list<Waiting> waiting_ ABSL_GUARDED_BY(mutex_);  // in the order in which they came
  std::list<Refusal> refusals_ ABSL_GUARDED_BY(mutex_);
};

class GrpcJoinDesk final : public JoinDesk {
 public:
  explicit GrpcJoinDesk(const JoinDeskOptions& options)
      : options_(options),
        is_secured_(options.keys != nullptr && !HostOf(options.address).empty()),
        service_(options_, is_secured_) {}
  ~GrpcJoinDesk() override {
    if (server_ == nullptr) return;
    gate_->Stop();
    server_->Shutdown(std::chrono::system_clock::now());
    server_.reset();
    RemoveSocket(gate_->address());
  }

  absl::Status Build() {
    PrepareGrpc();
    grpc::ServerBuilder builder;
    SetServerOptions(builder);
    WEFT_ASSIGN_OR_RETURN(gate_, ConnectionGate::Listen(options_.address, kDeskConnections));
    acceptor_ = builder.experimental().AddExternalConnectionAcceptor(
        grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD,
        is_secured_ ? NewServerCredentials(*options_.keys) : grpc::InsecureServerCredentials());
    service_.set_on_known([gate = gate_.get()](const std::string& peer) { gate->Trust(peer); });
    builder.RegisterService(&service_);
    server_ = builder.BuildAndStart();
    if (server_ == nullptr) return absl::UnavailableError("gRPC cannot start its server");
    gate_->Start([this](int listener, int connection) {
      grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters taken;
      taken.listener_fd = listener;
      taken.fd = connection;
      acceptor_->HandleNewConnection(&taken);
    });
    return absl::OkStatus();
  }

  const std::string& address() const override { return gate_->address(); }
  std::vector<JoinOffer> TakeNew() override { return service_.TakeNew(); }
  void Refuse(uint64_t incarnation, const absl::Status& why) override {
    service_.Refuse(incarnation, why);
  }
  void Forget(uint64_t incarnation) override { service_.Forget(incarnation); }
  int waiting() override { return service_.waiting(); }

 private:
  const JoinDeskOptions options_;
  const bool is_secured_;
  OfferService service_;
  std::unique_ptr<ConnectionGate> gate_;  // hands over to acceptor_
  std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> acceptor_;
  std::unique_ptr<grpc::Server> server_;
};

// Whether TLS will let this certificate serve: those that an earlier version made were for clients.
absl::Status CheckMayServe(const KeyRing& keys) {
  const std::shared_ptr<const KeySet> current = keys.Current();
  WEFT_RETURN_IF_ERROR(CheckCoordinator(current->certificate));
  return Annotate(VerifyCertificate(current->authority_pem, current->identity_pem, Purpose::kServer,
                                    absl::Now()),
                  "these keys cannot listen");
}

}  // namespace

absl::StatusOr<std::unique_ptr<JoinDesk>> JoinDesk::Open(const JoinDeskOptions& options) {
  if (options.token.empty()) return absl::InvalidArgumentError("a coordinator needs a token");
  WEFT_RETURN_IF_ERROR(
      CheckAddress(options.address, options.insecure_network || options.keys != nullptr));
  if (options.keys != nullptr && !HostOf(options.address).empty()) {
    WEFT_RETURN_IF_ERROR(CheckMayServe(*options.keys));
  }
  WEFT_RETURN_IF_ERROR(ProbeListen(options.address));
  auto desk = std::make_unique<GrpcJoinDesk>(options);
  WEFT_RETURN_IF_ERROR(desk->Build());
  return std::unique_ptr<JoinDesk>(std::move(desk));
}

}  // namespace weft
