// ControlService: the service that a worker offers its coordinator.
#ifndef WEFT_DISTRIBUTED_GRPC_CONTROL_SERVICE_H_
#define WEFT_DISTRIBUTED_GRPC_CONTROL_SERVICE_H_

#include <grpcpp/grpcpp.h>

#include <cstdint>
#include <functional>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "distributed/grpc/control_codec.h"
#include "distributed/grpc/credentials/call_roles.h"
#include "distributed/grpc/weft.grpc.pb.h"
#include "distributed/worker.h"
#include "platform/clock.h"
#include "platform/mutex.h"
#include "platform/task_thread.h"

namespace weft {

// How long a worker believes a coordinator without a sign of it, which comes every
// LossDetection::beat. Keepalive notices most losses earlier, but not that of a peer that has
// stopped reading while something is being written to it.
inline constexpr absl::Duration kLeasePatience = absl::Seconds(6);

// How long steps may go on whose coordinator is lost, where ranks agree on each: most stretches end
// within it. Then they are aborted, and the next coordinator settles what was under way.
inline constexpr absl::Duration kSettlePatience = absl::Seconds(1);

// Passes calls on to a Worker, one at a time (Abort at any time); a second one meanwhile is
// refused. One coordinator at a time attends; when its stream breaks, or it falls silent, the
// worker aborts what it does and the call under way is cancelled. Methods are called by gRPC's
// threads.
//
// A coordinator that ends says so. Where one is lost, and its job can be resumed
// (JobMembership::job_digest), the worker keeps the job's state for a while (set_keep_state): its
// steps come to an end, runs of the same job are let in with a higher epoch, and other jobs are
// refused until that time is over and the state given up. Steps of jobs that agree on each are
// aborted after kSettlePatience. Others may go on for as long, or for 3 s after the next
// coordinator has come: an abort would leave some variables changed and others not.
//
// Every call must carry the token; others are Unauthenticated before anything of them is read, and
// change nothing. Every call but Attend must also carry the number of the lease that Attend gave:
// FailedPrecondition for who does not attend, or no longer. A call of a lower epoch than that of
// the coordinator that joined last is a DeposedError. Messages are sealed (seal.h).
class ControlService final : public rpc::Control::Service {
 public:
  // `is_secured`: connections are TLS, and each call needs the role that CheckRole says.
  explicit ControlService(std::string token, bool is_secured = false)
      : token_(std::move(token)), is_secured_(is_secured) {}
  // Is told of every caller with the token, as gRPC names it. Before the server starts.
  void set_on_known(std::function<void(const std::string& peer)> known) {
    on_known_ = std::move(known);
  }
  // How long the state of a job is kept whose coordinator is lost; 0, the default: not at all.
  void set_keep_state(absl::Duration time) {
    MutexLock lock(mutex_);
    keep_state_ = time;
  }
  // `worker` is borrowed until Stop; null: not serving.
  void SetWorker(Worker* worker, const std::string& version);
  // Waits for Shutdown, or the loss of the coordinator when `ends_with_coordinator`, or
  // RequestStop, or `deadline` (false). Watches over the lease meanwhile, and over what is kept.
  bool AwaitEnd(Clock& clock, absl::Time deadline, bool ends_with_coordinator);
  void RequestStop();
  // From now on the coordinator is told that the worker wants to leave. Whether one attends.
  bool AskToLeave() {
    MutexLock lock(mutex_);
    leaving_ = true;
    return lease_ != nullptr;
  }
  // Whether a coordinator attends now.
  bool is_attended() {
    MutexLock lock(mutex_);
    return lease_ != nullptr;
  }
  // When the newest lease ended that did so without a goodbye and left nothing to keep for the next
  // coordinator; InfinitePast: none has.
  absl::Time lease_lost() {
    MutexLock lock(mutex_);
    return lease_lost_;
  }
  // Aborts what runs, refuses what comes, and waits until no call is left inside; false when one is
  // at `deadline`.
  bool Stop(absl::Time deadline = absl::InfiniteFuture());

  using Requests = grpc::ServerReader<rpc::Sealed>;
  using Exchange = grpc::ServerReaderWriter<rpc::Sealed, rpc::Sealed>;
  using AnsweredParts = grpc::ServerReaderWriter<rpc::Empty, rpc::Sealed>;
  grpc::Status Attend(
      grpc::ServerContext* context,
      grpc::ServerReaderWriter<rpc::AttendReply, rpc::AttendRequest>* stream) override;
  grpc::Status Join(grpc::ServerContext* context, Requests* requests, rpc::Sealed* reply) override;
  grpc::Status AddProgram(grpc::ServerContext* context, Exchange* stream) override;
  grpc::Status WriteVariable(grpc::ServerContext* context, AnsweredParts* stream) override;
  grpc::Status ReadVariable(grpc::ServerContext* context, Exchange* stream) override;
  grpc::Status RunSteps(grpc::ServerContext* context, Exchange* stream) override;
  grpc::Status Ask(grpc::ServerContext* context, Requests* requests, rpc::Sealed* reply) override;
  grpc::Status Abort(grpc::ServerContext* context, Requests* requests, rpc::Empty* reply) override;
  grpc::Status Shutdown(grpc::ServerContext* context, grpc::ServerReader<rpc::Empty>* requests,
                        rpc::Empty* reply) override;

 private:
  // The worker for the length of a call; null with a status when it is not free.
  class Call;

  // One call of the coordinator: who attends may have the worker, one call at a time. `body` is its
  // part of it, and its error the call's.
  grpc::Status Serve(grpc::ServerContext& context, WorkerCall kind,
                     const std::function<absl::Status(Worker& worker)>& body);
  // Whether the caller has the token, and a certificate of the role that the call needs.
  absl::Status CheckKnown(const grpc::ServerContext& context, WorkerCall call) const;
  // The same, and the number of the lease.
  absl::Status CheckCaller(const grpc::ServerContext& context, WorkerCall call) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<ControlReply> Answer(Worker& worker, const ControlRequest& question);
  static absl::Status RunSteps(Worker& worker, const rpc::RunStepsRequest& request,
                               Exchange& stream);
  static absl::StatusOr<MemoryRequirement> TakeProgram(Worker& worker, Exchange& stream);
  static absl::Status WriteVariable(Worker& worker, AnsweredParts& stream);
  static absl::Status ReadVariable(Worker& worker, const std::string& name, Exchange& stream);
  static absl::Status WritePart(Worker& worker, VariableParts& parts,
                                const rpc::VariableChunk& chunk);
  void AbortWorker(const absl::Status& reason);
  // Whether a coordinator of this epoch (0: none yet) may attend. Waits until the worker serves,
  // and the steps of a lost coordinator have ended.
  absl::Status AwaitTurn(uint64_t epoch) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Whether a job may have the worker, which may keep the state of another.
  absl::Status CheckMayJoin(const JobMembership& membership);
  void NoteJoined(const JobMembership& membership);
  // The coordinator does not attend any more: it has said goodbye, or is lost.
  void EndAttendance(bool goodbye);
  // Whether something is kept until then.
  static bool Keeps(absl::Time until) { return until < absl::InfiniteFuture(); }
  // When a silent coordinator is given up; never if none attends.
  absl::Time LeaseEnd() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // When what the worker keeps is given up; never while a coordinator attends, which may take it.
  absl::Time KeptEnd() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // REQUIRES: busy_ was set by the caller; it is not any more afterwards.
  void GiveUpWorker(Worker& worker);
  // Ends the coordinator's calls, so that nothing waits for it to read.
  void CancelCalls() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const std::string token_;
  const bool is_secured_;
  std::function<void(const std::string& peer)> on_known_;
  // gRPC calls on any of its threads. Steps all run on one, whose helper threads wait for them:
  // OpenMP makes a team for each calling thread, and where teams outnumber cores its threads sleep
  // between any two loops.
  TaskThread steps_;
  Mutex mutex_;
  CondVar changed_;
  Worker* worker_ ABSL_GUARDED_BY(mutex_) = nullptr;
  std::string version_ ABSL_GUARDED_BY(mutex_);
  bool busy_ ABSL_GUARDED_BY(mutex_) = false;  // a call is inside the worker
  int aborting_ ABSL_GUARDED_BY(mutex_) = 0;   // calls of Abort inside it
  std::string attended_by_ ABSL_GUARDED_BY(mutex_);
  grpc::ServerContext* lease_ ABSL_GUARDED_BY(mutex_) = nullptr;
  uint64_t lease_number_ ABSL_GUARDED_BY(mutex_) = 0;            // of lease_
  absl::Time heard_ ABSL_GUARDED_BY(mutex_);                     // the coordinator, last
  grpc::ServerContext* call_ ABSL_GUARDED_BY(mutex_) = nullptr;  // that is inside the worker
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  bool leaving_ ABSL_GUARDED_BY(mutex_) = false;
  int64_t leases_ended_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Time lease_lost_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();  // lease_lost()
  absl::Duration keep_state_ ABSL_GUARDED_BY(mutex_);
  uint64_t epoch_ ABSL_GUARDED_BY(mutex_) = 0;           // the highest that has joined
  uint64_t attended_epoch_ ABSL_GUARDED_BY(mutex_) = 0;  // of who attends; 0: has not joined
  uint64_t job_digest_ ABSL_GUARDED_BY(mutex_) = 0;      // of the job that joined last
  bool commits_ ABSL_GUARDED_BY(mutex_) = false;         // that job's
  bool has_run_ ABSL_GUARDED_BY(mutex_) = false;         // it, or a run of the same job before it
  bool settling_ ABSL_GUARDED_BY(mutex_) = false;        // steps of a lost coordinator may go on
  // When a coordinator has come that waits for it; infinite: none has.
  absl::Time awaited_since_ ABSL_GUARDED_BY(mutex_) = absl::InfiniteFuture();
  // When the state is given up of a job whose coordinator is lost; infinite: none is kept.
  absl::Time kept_until_ ABSL_GUARDED_BY(mutex_) = absl::InfiniteFuture();
  // The same of what the coordinator that attends has taken, and has run no step on.
  absl::Time taken_until_ ABSL_GUARDED_BY(mutex_) = absl::InfiniteFuture();
  bool stop_requested_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace weft

#endif  // WEFT_DISTRIBUTED_GRPC_CONTROL_SERVICE_H_
