// WorkerClient: what a coordinator can ask of one worker. A Worker is one, for a coordinator of its
// process; the gRPC one calls a worker process. The coordinator does not know which.
#ifndef WEFT_DISTRIBUTED_WORKER_CLIENT_H_
#define WEFT_DISTRIBUTED_WORKER_CLIENT_H_

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "distributed/control_calls.h"
#include "distributed/memory_requirement.h"
#include "distributed/nccl/card_groups.h"
#include "distributed/step_report.h"
#include "graph/partition.h"
#include "tensor/tensor.h"

namespace weft {

// Copies of each rank's state in the memory of another, its keeper. All ranks have the same.
struct Replication {
  // After so many steps a snapshot is made of each rank, and sent to its keeper while the next ones
  // run; one more before the first step. 0 = no copies.
  int64_t every = 0;
  std::vector<int32_t> keepers;  // by rank: who keeps its snapshots; another rank
  std::vector<int64_t> bytes;    // by rank: of a snapshot (executor/variables/snapshot_image.h)
  friend bool operator==(const Replication&, const Replication&) = default;
};

// Who takes part in a job; every worker gets the same but for `rank`. The handshake: a worker
// refuses with both values when they do not fit: PermissionDenied for another version,
// FailedPrecondition for the instruction set (strict jobs), libraries of custom ops or an earlier
// job's job_id.
struct JobMembership {
  uint64_t job_id = 0;                 // random, new for each job
  RankId rank;                         // of the worker addressed
  std::vector<std::string> addresses;  // of all ranks' data streams, by rank
  std::string version;                 // of the program, equal everywhere
  uint64_t model_digest = 0;
  uint64_t plan_digest = 0;
  bool strict = false;
  std::string instruction_set;  // coordinator's; compared when strict
  // Libraries of custom ops that the coordinator has loaded, "swiglu.so 0123456789abcdef": file
  // name and checksum of the content. Every worker has loaded the same contents.
  std::vector<std::string> op_libraries;
  int64_t memory_limit_bytes = 0;     // of the worker addressed; 0 = what its machine allows
  double stall_timeout_seconds = 60;  // longest wait for a peer
  // Step ranges will ask for checkpoints: the memory of a copy is part of the requirement.
  bool checkpoints = false;
  // Which the job takes the worker addressed for: "cuda:1"; "" = nobody says. A worker that
  // computes on another device refuses.
  std::string device;
  // All ranks agree on each step of programs that commit (Partition::commits) before any changes a
  // variable (distributed/recovery), and a worker keeps the reports of its newest steps
  // (StepReportsRequest), as it does with copies (`replication`).
  bool commits = false;
  // The job that this one goes on with: the worker, a member of that, keeps its variables, its data
  // and the memory of its steps. 0 = none: it begins anew. It may have joined another that goes on
  // with that one, and has run nothing: a member was lost meanwhile. FailedPrecondition where it is
  // in another job, or its state is torn (StepState).
  uint64_t continues_job_id = 0;
  Replication replication = {};
  // Where continues_job_id is 0: the job whose state this one takes up, from what workers hold of
  // it (HeldState). The worker begins anew, but keeps its data and what it holds, until this job
  // has copies of its own. 0 = none: it gives up what it holds.
  uint64_t recovers_job_id = 0;
  // Of the coordinator (distributed/coordinator_epoch.h): a worker refuses a lower one than it has
  // accepted. 0: it has none, and is not compared.
  uint64_t epoch = 0;
  // What the job is, as far as one that goes on with it must be the same: it is equal in all runs
  // of it. 0: no run will go on with it, so nothing of it is kept when its coordinator is lost.
  uint64_t job_digest = 0;
};

// What a worker computes on, as it says itself.
struct WorkerDevice {
  std::string name;  // "cuda:1"
  std::string text;  // "NVIDIA L4, compute capability 8.9"; "" where there is no more to say
  int64_t memory_bytes = 0;  // of the device; 0 = it has no limit of its own
  int kernels = 0;           // operators that this build of the worker has kernels for
  std::string driver = {};   // of a GPU: "580.65.06"; "" = not known
};

// A worker's answer to Join.
struct WorkerInfo {
  std::string version;
  std::string instruction_set;
  int64_t process_id = 0;
  uint64_t incarnation = 0;
  MemoryLimit memory_limit;  // what it may have; the job's, when that says less than its own
  WorkerDevice device = {};
  RankCard card = {};  // its GPU, if it has one
};

// A run of equal steps.
struct StepRange {
  std::string program;  // name it was added under
  int64_t first_step = 0;
  int64_t count = 0;
  // Values of step inputs; kStepInput is set by the worker.
  std::map<std::string, double> scalars;
  // Where each rank writes its part of a checkpoint of the state after the last step (with count 0:
  // of the state as it is), while the next steps run; a folder that is there. "" = none.
  std::string checkpoint = "";
  // Looks at every node's output in every step (StepOptions::check_numerics).
  bool check_numerics = false;
  // Times every node (StatisticsRequest), which costs two looks at the clock per node.
  bool statistics = false;
  // Reports say how long steps took, and have no values.
  bool times_only = false;
  // Of the first range of a run: what the coordinator wants to know again where it is lost. The
  // worker only keeps it, with the steps that it does from there on (KeptJob). Empty: what it was
  // told last stays.
  std::map<std::string, double> note = {};
};

// Calls are made one at a time, by one thread, except Abort (any thread). Every call has a deadline
// of its own; a worker that dies ends it with Unavailable naming rank, address and what was under
// way.
class WorkerClient {
 public:
  virtual ~WorkerClient() = default;
  virtual std::string name() const = 0;  // "worker:1 (unix:/..., pid 4711)"

  virtual absl::StatusOr<WorkerInfo> Join(const JobMembership& membership) = 0;
  // `data` describes the data set in words of the InputSourceFactory; empty = none. What the rank
  // needs for all programs so far; ResourceExhausted, before any of it is taken, when that is more
  // than its limit.
  virtual absl::StatusOr<MemoryRequirement> AddProgram(const std::string& program,
                                                       const Partition& partition,
                                                       const std::string& data) = 0;
  // Host tensors of the local shard.
  virtual absl::Status WriteVariable(const std::string& name, const Tensor& local) = 0;
  virtual absl::StatusOr<Tensor> ReadVariable(const std::string& name) = 0;
  // Runs all ranges without further control; calls `report` after each step (in order, from the
  // calling thread; null: nobody wants them). Returns when done, or with the first error.
  virtual absl::Status RunSteps(const std::vector<StepRange>& ranges,
                                const std::function<void(const StepReport&)>& report) = 0;
  // The answer of the worker; its type is that of the question (Ask).
  virtual absl::StatusOr<ControlReply> Answer(const ControlRequest& request) = 0;
  // One question of distributed/control_calls.h.
  template <typename Request>
  absl::StatusOr<typename Request::Reply> Ask(const Request& request);
  // Ends whatever the worker does.
  virtual void Abort(const absl::Status& reason) = 0;
  // Whether the worker has said that it wants to leave its job at the next step boundary. Any
  // thread.
  virtual bool is_leaving() const { return false; }
  // Whether the worker is known to be lost, though no call has said so. Any thread.
  virtual bool is_lost() const { return false; }
  // The highest epoch of a coordinator that the worker has accepted, as far as this end knows.
  virtual uint64_t epoch() const { return 0; }
};

template <typename Request>
absl::StatusOr<typename Request::Reply> WorkerClient::Ask(const Request& request) {
  absl::StatusOr<ControlReply> reply = Answer(request);
  if (!reply.ok()) return reply.status();
  auto* const expected = std::get_if<typename Request::Reply>(&*reply);
  if (expected != nullptr) return std::move(*expected);
  return absl::DataLossError(
      absl::StrCat(name(), " has answered another question, while ", Request::kDoing));
}

}  // namespace weft

#endif  // WEFT_DISTRIBUTED_WORKER_CLIENT_H_
