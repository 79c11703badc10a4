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

// The flags of one trial, bound to their parser: `flags` must outlive the use of `app`. Its metrics
// and TensorBoard files are its own: FILE.trial-3.csv, DIR/trial-3.
struct TrialFlags {
  std::unique_ptr<TrainFlags> flags;
  std::unique_ptr<CLI::App> app;
};

// One trial of a grid: what it is called by, and its command line. A value: the flags are parsed
// when the trial runs, as a parser is large and a grid may have kMaxTrials.
struct SweepTrial {
  std::vector<std::string> values;     // by axis
  std::string text;                    // "lr 0.1, batch 32"
  std::vector<std::string> arguments;  // in their order
};

// The grid that a command line asks for: its trials in their order. Const uses by several threads
// are safe.
struct SweepTrials {
  std::vector<SweepAxis> axes;
  std::vector<SweepTrial> trials;
  // Where --steps counts steps of a swept batch: those of the smallest; others have as many as see
  // the same data. 0: all trials have the same steps, or --epochs.
  int64_t smallest_batch = 0;

  // Parses the flags of a trial: as MakeSweepTrials has done, which has refused what is wrong.
  absl::StatusOr<TrialFlags> Flags(size_t trial) const;
};

// Reads the texts of --sweep and makes the command line of every trial: what `given` (the parser of
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
