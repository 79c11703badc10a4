// Control calls: the questions that a coordinator has for a worker between steps, each with its
// answer.
//
// A new one needs four files: its request and reply here, both in grpc/weft.proto, how they are
// written and read in grpc/control_calls_codec.cc, and what the worker answers in worker.cc. Token,
// lease, deadline and errors are those of all calls.
#ifndef WEFT_DISTRIBUTED_CONTROL_CALLS_H_
#define WEFT_DISTRIBUTED_CONTROL_CALLS_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <variant>
#include <vector>

#include "distributed/nccl/nccl_collectives.h"
#include "distributed/recovery/held_state.h"
#include "distributed/recovery/step_progress.h"
#include "distributed/step_report.h"
#include "distributed/traffic.h"
#include "executor/program/step_program.h"
#include "executor/variables/checkpoint_writer.h"
#include "graph/ids.h"
#include "platform/process_memory.h"
#include "tensor/timing/device_copies.h"

namespace weft {

// What it has sent since it joined, also after an error.
struct TrafficRequest {
  using Reply = WorkerTraffic;
  // What it is doing meanwhile, for the error when it is lost.
  static constexpr char kDoing[] = "saying what it has sent";
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

// What steps and nodes have taken since it joined.
struct StatisticsRequest {
  using Reply = std::vector<ProgramStatistics>;
  static constexpr char kDoing[] = "saying what its nodes took";
};

// What the worker's process has, and had at most.
struct MemoryRequest {
  using Reply = ProcessMemory;
  static constexpr char kDoing[] = "measuring its memory";
};

// What became of the newest checkpoint (StepRange::checkpoint). What went wrong in writing is in
// there, and no error of the call.
struct CheckpointRequest {
  using Reply = CheckpointWrite;
  static constexpr char kDoing[] = "writing a checkpoint";
  bool wait = false;  // until it is written
};

// Of the text of a compiled program (StepProgram::DebugString), a line for each instruction.
struct ProgramText {
  std::string part;  // at most kProgramTextBytes
  int64_t total_bytes = 0;
};
inline constexpr size_t kProgramTextBytes = size_t{1} << 20;

// Also after an error.
struct ProgramTextRequest {
  using Reply = ProgramText;
  static constexpr char kDoing[] = "printing a program";
  std::string program;
  int64_t offset = 0;  // where the part begins
};

// What the members of a group of cards find each other by; asked of the first of them.
struct CardGroupId {
  std::string id;  // 128 bytes
};
struct NewCardGroupRequest {
  using Reply = CardGroupId;
  static constexpr char kDoing[] = "making the id of a group of cards";
};

// The groups of cards whose collectives in programs added from now on stay on the device: no other,
// and only those that the worker is a member of. All workers are asked at once, in one order of
// groups; those with an id are joined.
struct CardGroupsJoined {
  int32_t groups = 0;
};
struct UseCardGroupsRequest {
  using Reply = CardGroupsJoined;
  static constexpr char kDoing[] = "joining its card with others";
  std::vector<CardGroup> groups;
  int32_t nccl_version = 0;  // that made the ids
};

// Times copies of the worker's device now (MeasureDeviceCopies): all zero where the host reaches
// its memory.
struct DeviceCopiesRequest {
  using Reply = DeviceCopies;
  static constexpr char kDoing[] = "timing copies of its device";
};

// The nodes of a program that its device has no kernel for, and that run on its host: by name.
struct HostNodes {
  std::vector<std::string> names;
};
struct HostNodesRequest {
  using Reply = HostNodes;
  static constexpr char kDoing[] = "saying what it runs on its host";
  std::string program;
};

// How far its steps have come, also after an error.
struct StepProgressRequest {
  using Reply = StepProgress;
  static constexpr char kDoing[] = "saying how far it has come";
};

// Finishes the step that it has lost its peers in (StepProgram::Finish), after an error.
struct FinishStepRequest {
  using Reply = StepReport;
  static constexpr char kDoing[] = "finishing its step";
};

// The reports of the steps of the newest run from the `first`-th of it on, in order; those that are
// kept by now, which is all of the last kKeptReports. Also after an error.
struct StepReportsRequest {
  using Reply = std::vector<StepReport>;
  static constexpr char kDoing[] = "reporting the steps before an error";
  int64_t first = 0;
  bool noted = false;  // of the newest run that had a note (StepRange::note)
};
inline constexpr int64_t kKeptReports = 1024;

// Digests of variables as they are now (executor/variables/variable_digest.h).
struct VariableDigests {
  // What the last digit of a rank's results depends on, besides its program
  // (distributed/arithmetic.h): ranks that differ in it may differ in bits, and nothing is wrong.
  std::string arithmetic;
  std::vector<uint64_t> digests;  // in the order asked
};
struct VariableDigestsRequest {
  using Reply = VariableDigests;
  static constexpr char kDoing[] = "digesting its variables";
  std::vector<std::string> variables;
};

// What it holds of the states of jobs (distributed/recovery/held_state.h): also after an error, and
// of a worker that is in no job.
struct HeldStateRequest {
  using Reply = HeldState;
  static constexpr char kDoing[] = "saying what states it holds";
  bool verify = false;  // reads all bytes for it (HeldSnapshots::State)
};

// So many bytes of one snapshot that it holds, kHeldPartBytes at most. NotFound where it does not
// hold it, OutOfRange beyond its end. Also after an error, as above.
struct ReadHeldRequest {
  using Reply = HeldPart;
  static constexpr char kDoing[] = "giving a state that it holds";
  SnapshotKey key;
  int64_t offset = 0;
  int64_t bytes = 0;
};

// Holds its variables as they are now, all that steps change, as the snapshot of its rank after
// this step: until it holds a newer state of the job, or none of it is wanted (Join). Also after an
// error. FailedPrecondition where a step has been lost within its updates.
struct HoldStateRequest {
  using Reply = HeldSnapshot;
  static constexpr char kDoing[] = "holding its state";
  int64_t step = 0;
};

// What a worker still has of its job, for a coordinator that goes on with it since the one before
// was lost. Also after an error.
struct KeptJob {
  // Whose state it has; 0: it keeps nothing, and all else is left out. Where it has joined a job
  // that goes on with another, and has run nothing in it, that other one (as a member of both it
  // may be joined with either).
  uint64_t job_id = 0;
  uint64_t job_digest = 0;  // JobMembership::job_digest
  RankId rank;              // in the job that it joined last
  int64_t runs = 0;         // of steps, since it joined; 0: what was under way is settled
  // Of the newest run with a note: that, and the steps of the run that are done.
  std::map<std::string, double> note = {};
  int64_t steps = 0;
  uint64_t shards_digest = 0;  // of its variables (distributed/shards_digest.h)
};
struct KeptJobRequest {
  using Reply = KeptJob;
  static constexpr char kDoing[] = "saying what it keeps of its job";
};

// All of them.
using ControlRequest =
    std::variant<TrafficRequest, StatisticsRequest, MemoryRequest, CheckpointRequest,
                 ProgramTextRequest, NewCardGroupRequest, UseCardGroupsRequest, DeviceCopiesRequest,
                 HostNodesRequest, StepProgressRequest, FinishStepRequest, StepReportsRequest,
                 VariableDigestsRequest, HeldStateRequest, ReadHeldRequest, HoldStateRequest,
                 KeptJobRequest>;

namespace internal {
template <typename Requests>
struct RepliesTo;
template <typename... Requests>
struct RepliesTo<std::variant<Requests...>> {
  using Type = std::variant<typename Requests::Reply...>;
};
}  // namespace internal

// The answer to any of them.
using ControlReply = internal::RepliesTo<ControlRequest>::Type;

}  // namespace weft

#endif  // WEFT_DISTRIBUTED_CONTROL_CALLS_H_
