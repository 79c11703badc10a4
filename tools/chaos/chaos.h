// RunChaos: runs a job of a person's under seeded schedules of faults.
#ifndef WEFT_TOOLS_CHAOS_CHAOS_H_
#define WEFT_TOOLS_CHAOS_CHAOS_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/chaos/chaos_run.h"
#include "tools/chaos/fault_kind.h"

namespace weft {

// What `graph_runner chaos` was asked for.
struct ChaosOptions {
  std::vector<std::string> words;  // "train", and its flags
  int64_t seed = 0;
  int64_t schedules = 1;
  std::vector<FaultKind> kinds;
  std::string expect;  // what the undisturbed run comes to; "": it is run first
  double tolerance = 1e-5;
  int64_t timeout_seconds = 60;
  std::function<bool()> is_stopped;                  // the person wants to end
  std::function<void(const std::string& text)> say;  // remarks, whole lines
  // Called after each run, with the command that repeats it.
  std::function<void(const ChaosOutcome& outcome, const std::string& again)> report;
};

// What all runs came to.
struct ChaosReport {
  std::vector<ChaosOutcome> outcomes;  // by seed
  std::string expected_sha256;
  std::string flags;  // of the command, behind the seed
  int64_t held() const;
  // The command that repeats a run.
  std::string Again(const ChaosOutcome& outcome) const;
};

// Runs them one after the other, in a folder of the system's place for temporary files, which is
// gone afterwards, as are all processes that were started. From then on this process adopts
// orphans. Usage errors: see ParseChaosJob, ParseExpectedResult. Cancelled where it was to stop. An
// undisturbed run that fails is an error with the exit code of the job. Call it from the main
// thread, once: it may give this thread mounts of its own (DiskFault).
absl::StatusOr<ChaosReport> RunChaos(const ChaosOptions& options);

}  // namespace weft

#endif  // WEFT_TOOLS_CHAOS_CHAOS_H_
