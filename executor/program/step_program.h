// StepProgram: a Partition compiled for one device (executor/program/compile_step.h): a flat list
// of prepared instructions per stream.
//
//   WEFT_ASSIGN_OR_RETURN(auto program, CompileStep(partition, environment));
//   WEFT_ASSIGN_OR_RETURN(StepResult result, program->Run({.step = 7, .scalars = {...}}));
//
#ifndef WEFT_EXECUTOR_PROGRAM_STEP_PROGRAM_H_
#define WEFT_EXECUTOR_PROGRAM_STEP_PROGRAM_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "executor/memory/program_memory.h"
#include "graph/graph.h"
#include "tensor/value.h"

namespace weft {

// The inputs of one step.
struct StepOptions {
  int64_t step = 0;
  // Values of InputRole::kStep inputs, by name (learning rate, step number).
  std::map<std::string, double> scalars;
  // Look at every float output of every kernel, and fail with the first node that made a NaN or an
  // infinity. Slow. Variables change as in any step: not at all if the node comes before the guard.
  bool check_numerics = false;
  // The step that this program runs next, with nothing else between them; -1: none, or nobody
  // knows. Its first rows go to the device while this one is computed there. When another one
  // comes, that was in vain, and changes nothing.
  int64_t next_step = -1;
};

// The results of one step. Tensors are on the host; times are in seconds.
struct StepResult {
  std::map<std::string, Tensor> reports;  // outputs named in Partition::reports, host
  // Those of them that were made at run time: any kind, any size.
  std::map<std::string, Value> values;
  // Of the step's time: the compute thread waited for peers, and ran collectives with them.
  double waited_seconds = 0;
  // Computed once per step, whatever the micro-batches: all after the last of them (updates above
  // all). 0 on a device whose memory the host cannot reach, where nobody waits for it.
  double update_seconds = 0;
};

// How far the last step of a program has come. Told apart only where ExecutorEnvironment::commit is
// set; elsewhere a step that fails is kTorn, unless its guard has failed.
enum class StepState : uint8_t {
  kDone,       // it has changed the variables, or none has begun yet
  kUnchanged,  // it has failed and changed no variable
  kReady,      // the same, and it has all it needs to change them (StepProgram::Finish)
  kTorn,       // it may have changed some variables and not others
};

// Time and calls per node since the program was made.
struct NodeStatistics {
  std::string node;
  std::string op;
  Phase phase = Phase::kForward;
  int64_t calls = 0;
  int64_t nanoseconds = 0;
};

// Immutable after compile but for its memory: one step at a time, also of programs that share an
// arena. In the steady state RunInto allocates nothing of our own and takes no lock on the compute
// path, but for nodes whose operands' sizes or kinds only the run shows.
class StepProgram {
 public:
  virtual ~StepProgram() = default;
  // Gives the program its memory and its addresses, where it has not got them or another program
  // has made the arena grow. RunInto does so too; before it, the first step takes no longer.
  virtual absl::Status Prepare() = 0;
  // Runs one step: all actions, then the updates. When the guard's value is not finite, no variable
  // changes and the error is OutOfRange ("loss is nan ..."); the caller may run again with
  // check_numerics. The first error of any instruction aborts the communicator and is returned with
  // node name, op and shapes. After it nothing of the step is under way; where the device does not
  // come to its end in time, the program holds what it uses, and its end waits for it.
  absl::StatusOr<StepResult> Run(const StepOptions& options);
  // The same for a caller that keeps its result from step to step: entries and tensors of it that
  // nobody else holds are written anew, so nothing is allocated.
  virtual absl::Status RunInto(const StepOptions& options, StepResult& result) = 0;
  virtual StepState state() const = 0;
  // Runs the rest of a step that has come to kReady, without another rank; kTorn if it fails.
  // FailedPrecondition in any other state, and where updates need other ranks (finishes_alone).
  virtual absl::Status Finish(StepResult& result) = 0;
  // Whether updates need no other rank: a step that has come to kReady can be finished.
  virtual bool finishes_alone() const = 0;
  virtual const ProgramMemory& memory() const = 0;
  // Turns timing per node on (two clock reads an instruction). On devices whose work launches
  // kernels, the first timed step runs each launch many times between two waits (2 ms and more,
  // with the outcome of one run), and later ones count what that has shown.
  virtual void EnableStatistics(bool enabled) = 0;
  virtual std::vector<NodeStatistics> statistics() const = 0;
  // One line per instruction, stable.
  virtual std::string DebugString() const = 0;
  // Names of the nodes that run on the host of a device with memory of its own (Plan::host_ops),
  // each once, sorted.
  virtual std::vector<std::string> host_nodes() const { return {}; }
};

}  // namespace weft

#endif  // WEFT_EXECUTOR_PROGRAM_STEP_PROGRAM_H_
