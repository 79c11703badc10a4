#include "distributed/grpc/grpc_client.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <atomic>
#include <utility>
#include <variant>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "distributed/grpc/address.h"
#include "distributed/grpc/channel_options.h"
#include "distributed/grpc/control_codec.h"
#include "distributed/grpc/control_service.h"
#include "distributed/grpc/credentials/socket_user.h"
#include "distributed/grpc/part_size.h"
#include "distributed/grpc/partition_wire.h"
#include "distributed/grpc/seal.h"
#include "distributed/grpc/status_codec.h"
#include "distributed/grpc/weft.grpc.pb.h"
#include "distributed/grpc/worker_lease.h"
#include "distributed/keys/tls_probe.h"
#include "platform/control_characters.h"
#include "platform/status.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

constexpr char kPausedText[] = "this process did not run for ";
constexpr absl::Duration kAbortTimeout = absl::Seconds(2);
// How soon a connection that does not come is looked into, and how long that may take.
constexpr absl::Duration kProbeInterval = absl::Milliseconds(500);
constexpr absl::Duration kProbeTimeout = absl::Milliseconds(1500);

class GrpcClient final : public WorkerClient {
 public:
  explicit GrpcClient(const GrpcClientOptions& options)
      : options_(options),
        channel_(NewChannel(options.address, options.keys.get())),
        stub_(rpc::Control::NewStub(channel_)) {}

  absl::Status Connect();
  bool ShutDown();

  std::string name() const override {
    return absl::StrCat(
        "worker:", options_.rank.value, " (", options_.address,
        lease_.process_id() > 0 ? absl::StrCat(", pid ", lease_.process_id()) : std::string(), ")");
  }
  absl::StatusOr<WorkerInfo> Join(const JobMembership& membership) override;
  absl::StatusOr<MemoryRequirement> AddProgram(const std::string& program,
                                               const Partition& partition,
                                               const std::string& data) override;
  absl::Status WriteVariable(const std::string& name, const Tensor& local) override;
  absl::StatusOr<Tensor> ReadVariable(const std::string& name) override;
  absl::Status RunSteps(const std::vector<StepRange>& ranges,
                        const std::function<void(const StepReport&)>& report) override;
  absl::StatusOr<ControlReply> Answer(const ControlRequest& request) override;
  void Abort(const absl::Status& reason) override;
  bool is_leaving() const override { return lease_.is_leaving(); }
  bool is_lost() const override { return !lease_.WhyLost().empty(); }
  uint64_t epoch() const override { return std::max(lease_.epoch(), epoch_.load()); }

 private:
  // Waits until the connection is there. Errors that waiting does not mend come at once.
  absl::Status AwaitConnection();
  // Every call's, before it begins: the token, the lease, the epoch, and how long it may take.
  // Explain ends it. A call to a worker that is lost is cancelled before it begins.
  void Prepare(grpc::ClientContext& context, absl::Duration timeout = absl::InfiniteDuration()) {
    context.AddMetadata(kTokenKey, options_.token);
    context.AddMetadata(kLeaseKey, absl::StrCat(lease_.number()));
    if (const uint64_t epoch = epoch_.load(); epoch > 0) {
      context.AddMetadata(kEpochKey, absl::StrCat(epoch));
    }
    if (!lease_.AddCall(context)) context.TryCancel();
    if (timeout == absl::InfiniteDuration()) return;
    context.set_deadline(absl::ToChronoTime(absl::Now() + timeout));
  }
  // A call of one message and one answer.
  template <typename Request, typename Answer>
  absl::Status CallOnce(std::unique_ptr<grpc::ClientWriter<Request>> (rpc::Control::Stub::*call)(
                            grpc::ClientContext*, Answer*),
                        const Request& request, Answer& answer, absl::Duration timeout,
                        const std::string& doing) {
    grpc::ClientContext context;
    Prepare(context, timeout);
    const auto writer = (stub_.get()->*call)(&context, &answer);
    writer->WriteLast(request, grpc::WriteOptions());  // where it fails, Finish says why
    return Explain(context, writer->Finish(), doing);
  }
  // What a call that ended so means: the worker's own error, or its loss while it was `doing`.
  absl::Status Explain(const grpc::ClientContext& context, const grpc::Status& status,
                       const std::string& doing);

  // What came from the worker damaged.
  absl::Status FromWorker(const absl::Status& status) const { return Annotate(status, name()); }

  const GrpcClientOptions options_;
  const std::shared_ptr<grpc::Channel> channel_;
  const std::unique_ptr<rpc::Control::Stub> stub_;
  std::atomic<uint64_t> epoch_{0};  // of this coordinator, once it has joined the worker
  mutable WorkerLease lease_;
};

absl::Status GrpcClient::Explain(const grpc::ClientContext& context, const grpc::Status& status,
                                 const std::string& doing) {
  lease_.RemoveCall(context);
  if (status.ok()) return absl::OkStatus();
  if (WasAnswered(context)) return AnswerOf(context, status);
  const absl::Status error = FromGrpc(status);
  if (absl::IsDeadlineExceeded(error)) {
    return absl::DeadlineExceededError(absl::StrCat(name(), " did not answer in ",
                                                    absl::FormatDuration(options_.call_timeout),
                                                    " (", doing, ")"));
  }
  if (const absl::Duration pause = lease_.LongestPause(); pause > kLeasePatience) {
    return absl::UnavailableError(absl::StrCat(
        kPausedText, absl::FormatDuration(absl::Trunc(pause, absl::Milliseconds(100))),
        " (did a signal stop it, or the machine sleep?), so ", name(),
        " has given it up; start the job again, with --resume where it has checkpoints"));
  }
  // A connection that is there again would be another one's: the worker has ended its part then.
  lease_.NoteBroken(std::string(error.message()));
  return absl::UnavailableError(
      absl::StrCat(name(), " was lost while ", doing, ": ", lease_.WhyLost()));
}

absl::Status GrpcClient::AwaitConnection() {
  const absl::Time deadline = std::min(options_.connect_deadline, absl::Now() + absl::Hours(24));
  const bool is_network = !HostOf(options_.address).empty();
  absl::Time next_probe = absl::Now() + kProbeInterval;
  while (true) {
    const absl::Time slice = std::min(deadline, next_probe);
    if (channel_->WaitForConnected(absl::ToChronoTime(slice))) return absl::OkStatus();
    if (is_network) {
      // gRPC tries again, whatever the reason; a certificate does not get better by it. Nobody
      // listening may do so.
      const std::shared_ptr<const KeySet> keys =
          options_.keys == nullptr ? nullptr : options_.keys->Current();
      const absl::Status probed =
          ProbeTls(options_.address, keys.get(),
                   std::clamp(deadline - absl::Now(), kProbeInterval, kProbeTimeout));
      if (!probed.ok() && !absl::IsUnavailable(probed)) return Annotate(probed, name());
    }
    if (absl::Now() >= deadline) {
      return absl::UnavailableError(absl::StrCat(
          name(), " did not answer in time; is it running, and is the address right?"));
    }
    next_probe = absl::Now() + kProbeInterval;
  }
}

absl::Status GrpcClient::Connect() {
  WEFT_RETURN_IF_ERROR(AwaitConnection());
  // Before the worker is told the token.
  if (const std::string path = SocketPathOf(options_.address); !path.empty()) {
    WEFT_RETURN_IF_ERROR(Annotate(CheckLocalListener(path), name()));
  }
  lease_.context().AddMetadata(kTokenKey, options_.token);
  if (options_.epoch > 0) {
    lease_.context().AddMetadata(kEpochKey, absl::StrCat(options_.epoch));
  }
  const grpc::Status attended = lease_.Open(*stub_, options_.detection);
  if (attended.ok()) return absl::OkStatus();
  if (attended.error_code() == grpc::StatusCode::UNIMPLEMENTED && !WasAnswered(lease_.context())) {
    return absl::PermissionDeniedError(
        absl::StrCat(name(), " does not know the handshake of this program (wire format ",
                     WireFormat(), "): it is of another version, or another program"));
  }
  return Explain(lease_.context(), attended, "attending to it");
}

bool GrpcClient::ShutDown() {
  rpc::Empty reply;
  return CallOnce(&rpc::Control::Stub::Shutdown, rpc::Empty(), reply, kAbortTimeout, "ending").ok();
}

absl::StatusOr<WorkerInfo> GrpcClient::Join(const JobMembership& membership) {
  // Before the first message that another version might read as something else.
  if (const std::string own = HandshakeVersion(membership.version); own != lease_.version()) {
    return absl::PermissionDeniedError(
        absl::StrCat("handshake refused: the version of ", name(), " is ",
                     EscapeControlCharacters(lease_.version()), ", the coordinator's is ", own,
                     "; install the same build on all machines"));
  }
  rpc::Sealed sealed;
  WEFT_RETURN_IF_ERROR(CallOnce(&rpc::Control::Stub::Join, Seal(Encode(membership)), sealed,
                                options_.call_timeout, "joining the job"));
  rpc::JoinReply reply;
  WEFT_RETURN_IF_ERROR(FromWorker(Unseal(sealed, reply)));
  epoch_.store(membership.epoch);
  return Decode(reply);
}

absl::StatusOr<ControlReply> GrpcClient::Answer(const ControlRequest& request) {
  const char* const doing = std::visit([](const auto& one) { return one.kDoing; }, request);
  rpc::Sealed sealed;
  WEFT_RETURN_IF_ERROR(CallOnce(&rpc::Control::Stub::Ask, Seal(Encode(request)), sealed,
                                options_.call_timeout, doing));
  rpc::ControlReply reply;
  WEFT_RETURN_IF_ERROR(FromWorker(Unseal(sealed, reply)));
  return Decode(reply);
}

absl::StatusOr<MemoryRequirement> GrpcClient::AddProgram(const std::string& program,
                                                         const Partition& partition,
                                                         const std::string& data) {
  WEFT_ASSIGN_OR_RETURN(const std::string bytes, EncodePartition(partition));
  grpc::ClientContext context;
  Prepare(context, options_.call_timeout);
  rpc::Sealed sealed;
  const auto stream = stub_->AddProgram(&context);
  for (PartWriter parts(bytes.size()); !parts.done();) {
    rpc::ProgramChunk chunk;
    if (parts.offset() == 0) {
      chunk.set_program(program);
      chunk.set_data(data);
      chunk.set_total_bytes(static_cast<int64_t>(bytes.size()));
    }
    chunk.set_part(bytes.substr(parts.offset(), parts.part_bytes()));
    const bool is_last = parts.offset() + parts.part_bytes() == bytes.size();
    const auto write = [&] {
      return stream->Write(Seal(chunk)) && (is_last || stream->Read(&sealed));
    };
    if (!parts.Write(write)) break;
  }
  stream->WritesDone();
  sealed.Clear();
  stream->Read(&sealed);  // where it fails, Finish says why
  WEFT_RETURN_IF_ERROR(
      Explain(context, stream->Finish(), absl::StrCat("taking program '", program, "'")));
  rpc::MemoryRequirement reply;
  WEFT_RETURN_IF_ERROR(FromWorker(Unseal(sealed, reply)));
  return Decode(reply);
}

absl::Status GrpcClient::WriteVariable(const std::string& name, const Tensor& local) {
  grpc::ClientContext context;
  Prepare(context, options_.call_timeout);
  rpc::Empty answer;
  const auto stream = stub_->WriteVariable(&context);
  WriteVariableChunks(name, local, [&](const rpc::VariableChunk& chunk, bool is_last) {
    return stream->Write(Seal(chunk)) && (is_last || stream->Read(&answer));
  });
  stream->WritesDone();
  return Explain(context, stream->Finish(), absl::StrCat("taking variable '", name, "'"));
}

absl::StatusOr<Tensor> GrpcClient::ReadVariable(const std::string& name) {
  grpc::ClientContext context;
  Prepare(context, options_.call_timeout);
  rpc::ReadVariableRequest request;
  request.set_name(name);
  const auto stream = stub_->ReadVariable(&context);
  stream->Write(Seal(request));
  VariableReader variable;
  rpc::Sealed sealed;
  rpc::VariableChunk chunk;
  absl::Status damage;
  while (stream->Read(&sealed)) {
    if (damage.ok()) damage = Unseal(sealed, chunk);
    if (damage.ok()) damage = variable.Add(chunk);
    if (!variable.is_complete()) stream->Write(rpc::Sealed());
  }
  WEFT_RETURN_IF_ERROR(
      Explain(context, stream->Finish(), absl::StrCat("sending variable '", name, "'")));
  WEFT_RETURN_IF_ERROR(FromWorker(damage));
  return variable.Finish();
}

absl::Status GrpcClient::RunSteps(const std::vector<StepRange>& ranges,
                                  const std::function<void(const StepReport&)>& report) {
  grpc::ClientContext context;  // without a deadline: keepalive and the peers' stall timeouts guard
  Prepare(context);
  rpc::RunStepsRequest request = Encode(ranges);
  request.set_report(report != nullptr);
  const auto stream = stub_->RunSteps(&context);
  stream->WriteLast(Seal(request), grpc::WriteOptions());
  std::string doing =
      ranges.empty() ? "running no steps" : absl::StrCat("running step ", ranges[0].first_step);
  absl::Status damage;
  rpc::Sealed sealed;
  rpc::StepReports reports;
  while (stream->Read(&sealed)) {
    if (const absl::Status whole = Unseal(sealed, reports); !whole.ok()) {
      damage = whole;
      reports.Clear();
    }
    for (const rpc::StepReport& message : reports.reports()) {
      absl::StatusOr<StepReport> step = Decode(message);
      if (!step.ok()) damage = step.status();
      if (step.ok() && report != nullptr) report(*step);
      doing = absl::StrCat("running steps after step ", message.step());
    }
  }
  WEFT_RETURN_IF_ERROR(Explain(context, stream->Finish(), doing));
  return FromWorker(damage);
}

void GrpcClient::Abort(const absl::Status& reason) {
  rpc::AbortRequest request;
  request.set_code(static_cast<int>(reason.code()));
  request.set_reason(std::string(reason.message().substr(0, kLongestErrorText)));
  rpc::Empty reply;
  // A worker that cannot be told is lost, which its call under way reports.
  CallOnce(&rpc::Control::Stub::Abort, Seal(request), reply, kAbortTimeout, "ending its job")
      .IgnoreError();
}

}  // namespace

absl::StatusOr<std::unique_ptr<WorkerClient>> ConnectToWorker(const GrpcClientOptions& options) {
  WEFT_RETURN_IF_ERROR(
      CheckAddress(options.address, options.insecure_network || options.keys != nullptr));
  auto client = std::make_unique<GrpcClient>(options);
  WEFT_RETURN_IF_ERROR(client->Connect());
  return std::unique_ptr<WorkerClient>(std::move(client));
}

bool IsOfStoppedCoordinator(const absl::Status& status) {
  return absl::StrContains(status.message(), kPausedText);
}

bool IsAttendedByAnother(const absl::Status& status) {
  return absl::IsFailedPrecondition(status) &&
         absl::StrContains(status.message(), "is attended by another coordinator");
}

bool ShutDownWorker(WorkerClient& client) { return static_cast<GrpcClient&>(client).ShutDown(); }

}  // namespace weft
