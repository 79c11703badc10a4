// WorkerLease: a coordinator's hold on one worker process, and how it finds that the worker is
// lost.
#ifndef WEFT_DISTRIBUTED_GRPC_WORKER_LEASE_H_
#define WEFT_DISTRIBUTED_GRPC_WORKER_LEASE_H_

#include <grpcpp/grpcpp.h>

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "distributed/grpc/weft.grpc.pb.h"
#include "distributed/loss_detection.h"
#include "platform/mutex.h"

namespace weft {

// Asks the worker every LossDetection::beat whether it is there. It is lost when the stream ends,
// or when it leaves LossDetection::patience questions in a row without an answer: once, and for
// good. The calls under way are cancelled then. What this process has not been able to ask counts
// for nothing, so one that was stopped blames no worker.
//
// Threads of its own read and ask. Methods may be called from any thread. The destructor says
// goodbye, waits until the worker is free for another coordinator (a second at most), and cancels.
class WorkerLease {
 public:
  WorkerLease() = default;
  ~WorkerLease();
  WorkerLease(const WorkerLease&) = delete;
  WorkerLease& operator=(const WorkerLease&) = delete;

  // Where what the first call needs is added, before Open.
  grpc::ClientContext& context() { return context_; }
  // Attends to the worker; the status of the call where it refuses. Called once, first. `stub` is
  // borrowed.
  grpc::Status Open(rpc::Control::Stub& stub, const LossDetection& detection);

  // 0 before Open.
  uint64_t number() const { return number_; }
  int64_t process_id() const { return process_id_; }
  // HandshakeVersion of the worker.
  const std::string& version() const { return version_; }
  // The highest epoch of a coordinator that has joined the worker so far; 0: none.
  uint64_t epoch() const { return epoch_; }
  // Why the worker is lost; "" = it is not.
  std::string WhyLost();
  // Whether the worker has said that it wants to leave its job.
  bool is_leaving();
  // The longest time that this process has left the worker without a sign: it was stopped.
  absl::Duration LongestPause();
  // A call begins, and ends, in between the lease cancels it where the worker is lost. False: it
  // is.
  bool AddCall(grpc::ClientContext& call);
  void RemoveCall(const grpc::ClientContext& call);
  // A call has found the connection broken.
  void NoteBroken(const std::string& why);

 private:
  // Reads the worker's answers until the stream ends.
  void Listen();
  // Asks, and in the end says goodbye.
  void Keep();
  // What is said of a worker that is lost for its silence.
  std::string Silence(absl::Time now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void LoseLocked(const std::string& why) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  LossDetection detection_;
  uint64_t number_ = 0;
  uint64_t epoch_ = 0;
  int64_t process_id_ = 0;
  std::string version_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReaderWriter<rpc::AttendRequest, rpc::AttendReply>> stream_;
  std::thread listener_;  // so that the connection is looked after between calls
  std::thread keeper_;
  Mutex mutex_;
  CondVar changed_;
  std::set<grpc::ClientContext*> calls_ ABSL_GUARDED_BY(mutex_);
  std::string why_lost_ ABSL_GUARDED_BY(mutex_);
  bool closing_ ABSL_GUARDED_BY(mutex_) = false;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;  // the stream
  bool leaving_ ABSL_GUARDED_BY(mutex_) = false;
  int unanswered_ ABSL_GUARDED_BY(mutex_) = 0;                         // questions, in a row
  absl::Time heard_ ABSL_GUARDED_BY(mutex_) = absl::InfiniteFuture();  // the newest answer
  absl::Duration late_ ABSL_GUARDED_BY(mutex_);  // by so much were questions since then too late
  absl::Time beat_ ABSL_GUARDED_BY(mutex_) = absl::InfiniteFuture();  // when the worker was asked
  absl::Duration longest_pause_ ABSL_GUARDED_BY(mutex_);              // between two questions
};

}  // namespace weft

#endif  // WEFT_DISTRIBUTED_GRPC_WORKER_LEASE_H_
