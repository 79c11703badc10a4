#include "distributed/grpc/grpc_transport.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "platform/status.h"

namespace weft {
namespace {

// How long a write under way may keep an abort from reaching its peer.
constexpr int kAbortGraceMilliseconds = 300;

}  // namespace

GrpcTransport::GrpcTransport(CompletionThread& thread, IncomingStreams& incoming, const Job& job)
    : thread_(thread),
      incoming_(incoming),
      job_id_(job.job_id),
      rank_(job.rank),
      addresses_(job.addresses),
      on_abort_(job.on_abort) {
  for (size_t i = 0; i < addresses_.size(); ++i) {
    const RankId peer(static_cast<int32_t>(i));
    peers_.push_back(nullptr);
    if (peer == rank_) continue;
    peers_.back() = std::make_unique<Peer>(
        thread_, Route{job_id_, rank_, peer, addresses_[i], job.token, job.keys},
        [this, peer](StreamEnd end, const absl::Status& status) {
          StreamEnded(peer, end, status);
        });
  }
  incoming_.Open(*this);
}

GrpcTransport::~GrpcTransport() {
  const absl::Status closed = absl::AbortedError("the transport is closed");
  for (const auto& peer : peers_) {
    if (peer == nullptr) continue;
    peer->inbox.Fail(closed);
    peer->outbox.Fail(closed);
    peer->outbox.StartClose();
  }
  incoming_.Close(*this, absl::OkStatus());
  for (const auto& peer : peers_) {
    if (peer != nullptr) peer->outbox.FinishClose();
  }
  alarm_.Cancel();
  MutexLock lock(mutex_);
  while (alarm_pending_) changed_.Wait(mutex_);
}

GrpcTransport::Peer* GrpcTransport::FindPeer(RankId peer, TransferObserver& observer) {
  if (Peer* const found = peer.valid() && static_cast<size_t>(peer.value) < peers_.size()
                              ? peers_[peer.value].get()
                              : nullptr) {
    return found;
  }
  observer.Done(
      absl::InternalError(absl::StrCat("rank ", peer.value, " is no peer of rank ", rank_.value)));
  return nullptr;
}

void GrpcTransport::Send(RankId peer, const MessageHeader& header, const void* data,
                         TransferObserver& observer) {
  Peer* const found = FindPeer(peer, observer);
  if (found == nullptr) return;
  bytes_sent_.fetch_add(static_cast<int64_t>(header.bytes), std::memory_order_relaxed);
  found->outbox.Send(header, data, observer);
}

void GrpcTransport::Receive(RankId peer, const MessageHeader& header, void* data,
                            TransferObserver& observer) {
  Peer* const found = FindPeer(peer, observer);
  if (found == nullptr) return;
  // The peer's end is heard of through our stream to it, whatever it sends.
  found->outbox.Open();
  found->inbox.Receive(header, data, observer);
}

int64_t GrpcTransport::header_bytes_sent() const {
  int64_t bytes = 0;
  for (const auto& peer : peers_) {
    if (peer != nullptr) bytes += peer->outbox.header_bytes_sent();
  }
  return bytes;
}

void GrpcTransport::Abort(const absl::Status& reason) { AbortAll(std::string(reason.message())); }

void GrpcTransport::AbortAll(const std::string& reason) {
  {
    MutexLock lock(mutex_);
    if (aborted_) return;
    aborted_ = true;
    alarm_pending_ = true;
  }
  const absl::Status status = absl::AbortedError(absl::StrCat("the job was aborted: ", reason));
  for (const auto& peer : peers_) {
    if (peer == nullptr) continue;
    peer->inbox.Fail(status);
    peer->outbox.Abort(status, reason);
  }
  incoming_.ScheduleEnd(*this, absl::AbortedError(reason));
  alarm_.Set(&thread_.queue(),
             gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC),
                          gpr_time_from_millis(kAbortGraceMilliseconds, GPR_TIMESPAN)),
             cancel_.Tag());
  if (on_abort_ != nullptr) on_abort_(reason);
}

void GrpcTransport::CancelOutboxes(bool) {
  for (const auto& peer : peers_) {
    if (peer != nullptr) peer->outbox.Cancel();
  }
  MutexLock lock(mutex_);
  alarm_pending_ = false;
  changed_.NotifyAll();
}

void GrpcTransport::StreamEnded(RankId peer, StreamEnd end, const absl::Status& status) {
  switch (end) {
    case StreamEnd::kClosed:
      return;  // what it sent before may still be on its way
    case StreamEnd::kAborted:
      return AbortAll(std::string(status.message()));
    case StreamEnd::kLost:
      peers_[peer.value]->inbox.Fail(status);
  }
}

Inbox* GrpcTransport::InboxOf(RankId peer) {
  if (!peer.valid() || static_cast<size_t>(peer.value) >= peers_.size()) return nullptr;
  return peers_[peer.value] == nullptr ? nullptr : &peers_[peer.value]->inbox;
}

void GrpcTransport::PeerAborted(RankId, const std::string& reason) { AbortAll(reason); }

void GrpcTransport::PeerLost(RankId peer, const absl::Status& status) {
  peers_[peer.value]->inbox.Fail(absl::Status(
      status.code(),
      absl::StrCat("rank ", peer.value, " (", addresses_[peer.value], ") ", status.message())));
}

}  // namespace weft
