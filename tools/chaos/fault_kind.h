// FaultKind: what `graph_runner chaos` can do to a job.
#ifndef WEFT_TOOLS_CHAOS_FAULT_KIND_H_
#define WEFT_TOOLS_CHAOS_FAULT_KIND_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace weft {

// What a fault is done to.
enum class FaultKind {
  kKill,         // SIGKILL to a worker
  kStop,         // SIGSTOP to a worker, SIGCONT later
  kLeave,        // SIGTERM to a worker: it leaves the job on purpose
  kQuota,        // a worker has a fifth of a processor for a while
  kDisk,         // the folder of checkpoints takes nothing for a while
  kCut,          // connections to a worker carry nothing for a while
  kReset,        // all connections to a worker are closed
  kFlip,         // one bit on the connections to a worker is another
  kCoordinator,  // SIGKILL to the coordinator; the job goes on with --resume
  kInterrupt,    // SIGTERM to the coordinator; the job goes on with --resume
};

// A row of the table of kinds. A new kind is a row of it, a value of FaultKind, and what
// ChaosRun::Strike does.
struct FaultKindRow {
  FaultKind kind;
  const char* name;  // as --faults has it
  const char* text;  // "kill -9 of a worker"
  bool strikes_worker;
  bool needs_proxy;  // the workers stand behind proxies, so chaos starts them itself
  bool may_lose;     // the job may say that a worker is lost
};

// All kinds, in one order.
const std::vector<FaultKindRow>& FaultKindRows();
const FaultKindRow& RowOf(FaultKind kind);

// "kill,stop" as kinds, each once, in the order of FaultKindRows. InvalidArgument naming a word
// that is no kind, with the nearest one.
absl::StatusOr<std::vector<FaultKind>> ParseFaultKinds(const std::string& text);

// "kill,stop".
std::string FaultKindNames(const std::vector<FaultKind>& kinds);

}  // namespace weft

#endif  // WEFT_TOOLS_CHAOS_FAULT_KIND_H_
