// Exit codes of graph_runner: part of its contract.
#ifndef WEFT_TOOLS_CONSOLE_EXIT_CODE_H_
#define WEFT_TOOLS_CONSOLE_EXIT_CODE_H_

#include <string>

#include "absl/status/status.h"

namespace weft {

// Exit codes are a contract: scripts depend on them.
enum class ExitCode : int {
  kOk = 0,
  kInternal = 1,   // our bug; of `conformance`: a case failed; of `verify` and `ckpt diff`: a value
                   // differs; of `doctor --need`: no such device; of `chaos`: a run did not hold
  kUsage = 2,      // flags and arguments
  kModel = 3,      // model rejected
  kPlan = 4,       // cluster, plan or configuration rejected
  kData = 5,       // data files
  kMemory = 6,     // out of memory
  kDisk = 7,       // outputs and checkpoints
  kNumerics = 8,   // NaN or infinity
  kRefused = 9,    // authentication, version, a peer that says no
  kStalled = 10,   // a wait ran out
  kStopped = 11,   // SIGINT, SIGTERM or SIGHUP: what was trained until then is saved
  kDiverged = 12,  // replicas' variables differ, and the run has ended for that
  kTryAgain = 138,  // a worker was lost: the job can go on from its last checkpoint
};

// The same error, to end with `code`. An error that has a code already keeps it: who is nearer to
// the cause knows better. OK stays OK.
absl::Status WithExitCode(absl::Status status, ExitCode code);
// InvalidArgument, to end with kUsage.
absl::Status UsageError(const std::string& message);

// The code that WithExitCode set, else one by the status code: Internal is our bug, Unavailable and
// Aborted mean lost workers, ResourceExhausted memory, and so on.
ExitCode ExitCodeOf(const absl::Status& status);

}  // namespace weft

#endif  // WEFT_TOOLS_CONSOLE_EXIT_CODE_H_
