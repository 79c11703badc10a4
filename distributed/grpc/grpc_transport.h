// Transport over gRPC: one long-lived stream per ordered pair of ranks.
#ifndef WEFT_DISTRIBUTED_GRPC_GRPC_TRANSPORT_H_
#define WEFT_DISTRIBUTED_GRPC_GRPC_TRANSPORT_H_

#include <grpcpp/alarm.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "distributed/grpc/completion_thread.h"
#include "distributed/grpc/inbox.h"
#include "distributed/grpc/incoming_streams.h"
#include "distributed/grpc/outbox.h"
#include "distributed/keys/key_ring.h"
#include "distributed/transport.h"
#include "graph/schedule/channel_credits.h"
#include "platform/mutex.h"

namespace weft {

// Messages travel in frames of at most 1 MiB whose payload gRPC takes from the sender's memory
// without a copy; the receiver copies once, into the posted slot. A lost peer fails the operations
// with that peer (Unavailable); an abort here or there fails all (Aborted). Made by GrpcServer,
// which outlives it.
class GrpcTransport final : public Transport, private IncomingJob {
 public:
  struct Job {
    uint64_t job_id = 0;
    RankId rank;
    std::vector<std::string> addresses;  // by rank
    std::string token = {};              // that peers want
    std::shared_ptr<KeyRing> keys = {};  // for TLS; null: none
    // Told of the reason once, where the job is aborted, here or there; any thread; null: nobody.
    std::function<void(const std::string& reason)> on_abort = {};
  };
  GrpcTransport(CompletionThread& thread, IncomingStreams& incoming, const Job& job);
  // Ends what is still under way with Aborted, and says goodbye to the peers; a second at most.
  ~GrpcTransport() override;

  RankId rank() const override { return rank_; }
  void Send(RankId peer, const MessageHeader& header, const void* data,
            TransferObserver& observer) override;
  void Receive(RankId peer, const MessageHeader& header, void* data,
               TransferObserver& observer) override;
  void Abort(const absl::Status& reason) override;
  int64_t unexpected_bytes_limit() const override { return static_cast<int64_t>(kInbox.bytes); }
  int64_t bytes_sent() const override { return bytes_sent_.load(); }
  int64_t header_bytes_sent() const override;

 private:
  struct Peer {
    Peer(CompletionThread& thread, Route route,
         std::function<void(StreamEnd, const absl::Status&)> on_end)
        : inbox(route.to), outbox(thread, std::move(route), std::move(on_end)) {}
    Inbox inbox;
    Outbox outbox;
  };

  uint64_t job_id() const override { return job_id_; }
  const std::string& AddressOf(RankId peer) const override {
    return addresses_[static_cast<size_t>(peer.value)];
  }
  Inbox* InboxOf(RankId peer) override;
  void PeerAborted(RankId peer, const std::string& reason) override;
  void PeerLost(RankId peer, const absl::Status& status) override;

  // Null, after `observer` was told, for a rank that is none.
  Peer* FindPeer(RankId peer, TransferObserver& observer);
  void AbortAll(const std::string& reason);
  void StreamEnded(RankId peer, StreamEnd end, const absl::Status& status);
  void CancelOutboxes(bool);

  CompletionThread& thread_;
  IncomingStreams& incoming_;
  const uint64_t job_id_;
  const RankId rank_;
  const std::vector<std::string> addresses_;
  const std::function<void(const std::string& reason)> on_abort_;
  std::atomic<int64_t> bytes_sent_{0};
  std::vector<std::unique_ptr<Peer>> peers_;  // by rank; null for this one

  Mutex mutex_;
  CondVar changed_;
  bool aborted_ ABSL_GUARDED_BY(mutex_) = false;
  bool alarm_pending_ ABSL_GUARDED_BY(mutex_) = false;
  MethodHandler<GrpcTransport> cancel_{*this, &GrpcTransport::CancelOutboxes};
  grpc::Alarm alarm_;
};

}  // namespace weft

#endif  // WEFT_DISTRIBUTED_GRPC_GRPC_TRANSPORT_H_
