// WorkerClient: the calls of a coordinator to one worker. The in-process one calls a Worker object,
// the gRPC one a worker process; the coordinator does not know which.
#ifndef WEFT_DISTRIBUTED_WORKER_CLIENT_H_
#define WEFT_DISTRIBUTED_WORKER_CLIENT_H_

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "distributed/memory_requirement.h"
#include "distributed/traffic.h"
#include "executor/program/step_program.h"
#include "executor/variables/checkpoint_writer.h"
#include "graph/partition.h"
#include "platform/process_memory.h"
#include "tensor/tensor.h"

namespace weft {

// Who takes part in a job; every worker gets the same but for `rank`. The handshake: a worker
// refuses (FailedPrecondition with both values) when version, instruction set (strict jobs),
// libraries of custom ops or an earlier job's job_id do not fit.
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
};

// A worker's answer to Join.
struct WorkerInfo {
  std::string version;
  std::string instruction_set;
  int64_t process_id = 0;
  uint64_t incarnation = 0;
  MemoryLimit memory_limit;  // what it may have; the job's, when that says less than its own
};

// A run of equal steps.
struct StepRange {
  std::string program;  // name it was added under
  int64_t first_step = 0;
  int64_t count = 0;
  // Values of step inputs; "weft.step" is set by the worker to the 1-based number of the step.
  std::map<std::string, double> scalars;
  // Where each rank writes its part of a checkpoint of the state after the last step (with count 0:
  // of the state as it is), while the next steps run; a folder that is there. "" = none.
  std::string checkpoint = "";
  // Looks at every node's output in every step (StepOptions::check_numerics).
  bool check_numerics = false;
  // Times every node (ReadStatistics), which costs two looks at the clock per node.
  bool statistics = false;
  // Reports say how long steps took, and have no values.
  bool times_only = false;
};

// What a rank's steps of a program have taken since it joined.
struct ProgramStatistics {
  std::string program;
  int64_t steps = 0;
  double seconds = 0;                 // of all steps
  double input_seconds = 0;           // of these: waiting for data
  int64_t timed_steps = 0;            // those of ranges with StepRange::statistics,
  std::vector<NodeStatistics> nodes;  // in which nodes took this long
};

// The report of one rank on one step. Times are in seconds.
struct StepReport {
  int64_t step = 0;
  std::map<std::string, Tensor> values;  // Partition::reports
  double seconds = 0;
  double input_seconds = 0;   // waiting for data
  double waited_seconds = 0;  // for peers, and in collectives with them
  double update_seconds = 0;  // computing after the last micro-batch (StepResult::update_seconds)
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
  // What it has sent since it joined, also after an error.
  virtual absl::StatusOr<WorkerTraffic> ReadTraffic() = 0;
  // What steps and nodes have taken since it joined.
  virtual absl::StatusOr<std::vector<ProgramStatistics>> ReadStatistics() {
    return std::vector<ProgramStatistics>();
  }
  // What became of the newest checkpoint, once it is written if `wait`. What went wrong in writing
  // is in there, and no error of the call.
  virtual absl::StatusOr<CheckpointWrite> PollCheckpoint(bool) { return CheckpointWrite(); }
  // What the worker's process has, and had at most.
  virtual absl::StatusOr<ProcessMemory> MeasureMemory() { return ProcessMemory(); }
  // Ends whatever the worker does.
  virtual void Abort(const absl::Status& reason) = 0;
};

}  // namespace weft

#endif  // WEFT_DISTRIBUTED_WORKER_CLIENT_H_
