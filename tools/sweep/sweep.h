// A sweep of `train`: runs its trials and prints what came of them.
#ifndef WEFT_TOOLS_SWEEP_SWEEP_H_
#define WEFT_TOOLS_SWEEP_SWEEP_H_

#include "CLI/CLI.hpp"
#include "absl/status/statusor.h"
#include "tools/console/console.h"
#include "tools/console/exit_code.h"
#include "tools/flags/train_flags.h"
#include "tools/sweep/sweep_flags.h"

namespace weft {

// Trains every combination of --sweep, side by side on equal shares of the workers, in the order
// of the grid; prints the table to standard output; with --select best writes what -o and its like
// ask for of the best trial. `app` is the parser of `flags` and `sweep`, after its parse. kStopped
// after SIGINT, SIGTERM or SIGHUP: all trials have ended after their current steps, the table is
// printed, and the best of those that were finished is written. An error where nothing can begin,
// or no trial came to its end: that of the first one, with its exit code. The calling thread waits.
absl::StatusOr<ExitCode> RunSweep(const CLI::App& app, const TrainFlags& flags,
                                  const SweepFlags& sweep, Console& console);

}  // namespace weft

#endif  // WEFT_TOOLS_SWEEP_SWEEP_H_
