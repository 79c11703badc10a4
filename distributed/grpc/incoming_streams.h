// The receiving ends of data streams: accepted by the server, handed to the job they belong to.
#ifndef WEFT_DISTRIBUTED_GRPC_INCOMING_STREAMS_H_
#define WEFT_DISTRIBUTED_GRPC_INCOMING_STREAMS_H_

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/grpcpp.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "distributed/grpc/completion_thread.h"
#include "distributed/grpc/inbox.h"
#include "graph/ids.h"
#include "platform/mutex.h"

namespace weft {

// The job that incoming streams belong to. Called by the completion thread.
class IncomingJob {
 public:
  virtual uint64_t job_id() const = 0;
  virtual RankId rank() const = 0;
  // "host:port" or "unix:/path" of a rank. REQUIRES: InboxOf(peer) is not null.
  virtual const std::string& AddressOf(RankId peer) const = 0;
  // Null for a rank that is not a peer in this job.
  virtual Inbox* InboxOf(RankId peer) = 0;
  virtual void PeerAborted(RankId peer, const std::string& reason) = 0;
  // The message goes on from the peer's name: "is lost: ...".
  virtual void PeerLost(RankId peer, const absl::Status& status) = 0;

 protected:
  ~IncomingJob() = default;
};

// Accepts one stream after the other. A stream of any but the current job is stale and refused:
// peers open their streams only after every worker has joined.
class IncomingStreams {
 public:
  // Borrows the thread. `service` was registered with the server. `is_secured`: connections are
  // TLS, and a stream of a rank needs the certificate of the rank's host.
  IncomingStreams(CompletionThread& thread, std::string token, bool is_secured = false);
  ~IncomingStreams();

  grpc::AsyncGenericService& service() { return service_; }
  // Is told of every peer with the token, as gRPC names it. Before Start.
  void set_on_known(std::function<void(const std::string& peer)> known) {
    on_known_ = std::move(known);
  }
  // Begins to accept; the server runs.
  void Start();
  // Waits until the last stream has ended; the server has been shut down.
  void AwaitEnd();

  // Streams that come in from now on belong to `job`, which is borrowed until Close of it returns.
  void Open(IncomingJob& job);
  // Ends all streams of the job, with `status`, which their senders get. Not from the thread.
  void Close(IncomingJob& job, const absl::Status& status);
  // The same, without waiting; the job stays open (and refuses).
  void ScheduleEnd(IncomingJob& job, const absl::Status& status);

 private:
  class Call;
  void AcceptNext();
  void EndCalls(IncomingJob& job, const absl::Status& status);

  CompletionThread& thread_;
  const std::string token_;  // of every peer
  const bool is_secured_;
  std::function<void(const std::string& peer)> on_known_;
  grpc::AsyncGenericService service_;
  // Of the completion thread.
  IncomingJob* job_ = nullptr;
  bool accepting_ = true;
  Mutex mutex_;
  CondVar changed_;
  std::map<Call*, std::unique_ptr<Call>> calls_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace weft

#endif  // WEFT_DISTRIBUTED_GRPC_INCOMING_STREAMS_H_
