// The flags of the trials of a sweep, each parsed as if it had been given alone.
#ifndef WEFT_TOOLS_SWEEP_TRIAL_FLAGS_H_
#define WEFT_TOOLS_SWEEP_TRIAL_FLAGS_H_

#include <memory>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/status/statusor.h"
#include "tools/flags/train_flags.h"
#include "tools/sweep/grid.h"

namespace weft {

// One trial's flags. Its metrics and TensorBoard files are its own: FILE.trial-3.csv, DIR/trial-3.
struct TrialFlags {
  std::vector<std::string> values;  // by axis
  std::string text;                 // "lr 0.1, batch 32"
  // Bound to each other; `flags` must outlive the use of `app`.
  std::unique_ptr<TrainFlags> flags;
  std::unique_ptr<CLI::App> app;
};

// The grid that a command line asks for: its trials in their order.
struct SweepTrials {
  std::vector<SweepAxis> axes;
  std::vector<TrialFlags> trials;
  // Where --steps counts steps of a swept batch: those of the smallest; others have as many as see
  // the same data. 0: all trials have the same steps, or --epochs.
  int64_t smallest_batch = 0;
};

// Reads the texts of --sweep and makes the flags of every trial: what `given` (the parser of
// train's command line, after its parse) was given, with the trial's values. A usage error for a
// flag that cannot be swept (it does not change what is computed, or is given besides), for values
// that its own parser or TrainFlags::Training refuses, and for a bad grid; it names the trial's
// values. Another one for --alternate and --batch auto, swept or given.
absl::StatusOr<SweepTrials> MakeSweepTrials(const CLI::App& given,
                                            const std::vector<std::string>& sweeps);

// "curves.trial-3.csv" of "curves.csv".
std::string TrialFile(const std::string& path, int number);

}  // namespace weft

#endif  // WEFT_TOOLS_SWEEP_TRIAL_FLAGS_H_
