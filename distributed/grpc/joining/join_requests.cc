#include "distributed/grpc/joining/join_requests.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "distributed/grpc/address.h"
#include "distributed/grpc/channel_options.h"
#include "distributed/grpc/credentials/socket_user.h"
#include "distributed/grpc/seal.h"
#include "distributed/grpc/status_codec.h"
#include "distributed/grpc/weft.grpc.pb.h"
#include "distributed/keys/certificate.h"
#include "distributed/keys/tls_probe.h"
#include "platform/log.h"
#include "platform/status.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

constexpr absl::Duration kOfferTimeout = absl::Seconds(2);

// OK once the connection is there. What is wrong with TLS comes by name.
absl::Status AwaitDesk(grpc::Channel& channel, const JoinRequestOptions& options,
                       absl::Time deadline) {
  const absl::Time first = std::min(deadline, absl::Now() + absl::Milliseconds(500));
  if (channel.WaitForConnected(absl::ToChronoTime(first))) return absl::OkStatus();
  if (!HostOf(options.coordinator).empty()) {
    const std::shared_ptr<const KeySet> keys =
        options.keys == nullptr ? nullptr : options.keys->Current();
    const absl::Duration left = std::max(deadline - absl::Now(), absl::Milliseconds(100));
    WEFT_RETURN_IF_ERROR(ProbeTls(options.coordinator, keys.get(), left, Role::kCoordinator));
  }
  if (channel.WaitForConnected(absl::ToChronoTime(deadline))) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat("nobody answers at ", options.coordinator));
}

}  // namespace

absl::StatusOr<int> OfferWorker(const JoinRequestOptions& options, absl::Duration timeout) {
  const absl::Time deadline = absl::Now() + timeout;
  WEFT_RETURN_IF_ERROR(
      CheckAddress(options.coordinator, options.insecure_network || options.keys != nullptr));
  // Before the token is told.
  if (const std::string path = SocketPathOf(options.coordinator); !path.empty()) {
    WEFT_RETURN_IF_ERROR(CheckLocalListener(path));
  }
  const std::shared_ptr<grpc::Channel> channel =
      NewChannel(options.coordinator, options.keys.get(), Role::kCoordinator);
  WEFT_RETURN_IF_ERROR(AwaitDesk(*channel, options, deadline));
  const auto stub = rpc::Joining::NewStub(channel);
  grpc::ClientContext context;
  context.set_deadline(absl::ToChronoTime(deadline));
  context.AddMetadata(kTokenKey, options.token);
  context.AddMetadata(kOfferVersionKey, HandshakeVersion(options.version));
  rpc::OfferRequest request;
  request.set_address(options.address);
  request.set_incarnation(options.incarnation);
  request.set_device(options.device);
  rpc::Sealed sealed;
  const auto writer = stub->Offer(&context, &sealed);
  writer->WriteLast(Seal(request), grpc::WriteOptions());
  const grpc::Status ended = writer->Finish();
  if (!ended.ok()) {
    if (WasAnswered(context)) return AnswerOf(context, ended);
    if (ended.error_code() == grpc::StatusCode::UNIMPLEMENTED) {
      return absl::FailedPreconditionError(
          absl::StrCat(options.coordinator,
                       " is no coordinator that takes workers in: give --join the address of "
                       "train --listen, of the same version"));
    }
    return absl::UnavailableError(absl::StrCat("the coordinator at ", options.coordinator,
                                               " does not answer: ", ended.error_message()));
  }
  rpc::OfferReply reply;
  WEFT_RETURN_IF_ERROR(Annotate(Unseal(sealed, reply), options.coordinator));
  return reply.waiting();
}

JoinRequests::JoinRequests(JoinRequestOptions options, std::function<bool()> is_attended)
    : options_(std::move(options)),
      is_attended_(std::move(is_attended)),
      thread_([this] { Run(); }) {}

JoinRequests::~JoinRequests() {
  {
    MutexLock lock(mutex_);
    closing_ = true;
    changed_.NotifyAll();
  }
  thread_.join();
}

bool JoinRequests::has_ended() {
  MutexLock lock(mutex_);
  return has_ended_;
}

absl::Status JoinRequests::end() {
  MutexLock lock(mutex_);
  return end_;
}

void JoinRequests::EndWith(const absl::Status& end) {
  MutexLock lock(mutex_);
  has_ended_ = true;
  end_ = end;
}

void JoinRequests::Run() {
  absl::Time heard = absl::Now();  // of the coordinator, last
  bool was_attended = false;
  while (true) {
    if (is_attended_()) {
      heard = absl::Now();
      was_attended = true;
    } else {
      const absl::StatusOr<int> waiting = OfferWorker(options_, kOfferTimeout);
      if (waiting.ok()) {
        heard = absl::Now();
        Log(LogLevel::kDebug, "asked to join; ", *waiting, " workers wait");
      } else if (!absl::IsUnavailable(waiting.status()) && !absl::IsDataLoss(waiting.status())) {
        return EndWith(Annotate(waiting.status(), "this worker may not join"));
      } else if (absl::Now() - heard > options_.patience) {
        return EndWith(was_attended ? absl::OkStatus()
                                    : Annotate(waiting.status(), "this worker cannot join"));
      }
    }
    MutexLock lock(mutex_);
    const absl::Time next = absl::Now() + options_.interval;
    while (!closing_ && changed_.WaitUntil(mutex_, next)) {
    }
    if (closing_) return;
  }
}

}  // namespace weft
