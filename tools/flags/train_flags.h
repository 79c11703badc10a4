// TrainFlags: all flags of `train`, and what they must say together.
#ifndef WEFT_TOOLS_FLAGS_TRAIN_FLAGS_H_
#define WEFT_TOOLS_FLAGS_TRAIN_FLAGS_H_

#include <cstdint>
#include <string>

#include "CLI/CLI.hpp"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tools/flags/job_flags.h"
#include "tools/flags/loop_flags.h"
#include "tools/flags/tie_flags.h"
#include "training/data/data_set.h"
#include "training/graph/training_spec.h"

namespace weft {

// Paths of what a training run writes; "" = it is not wanted.
struct ResultFiles {
  std::string model = {};
  std::string averages = {};     // the model with the averages of its parameters
  std::string adapters = {};     // safetensors
  std::string gradients = {};    // a folder: those of the first step
  std::string metrics = {};      // by step
  std::string programs = {};     // a folder: what each worker runs
  std::string tensorboard = {};  // a folder
};

// Binds flags to itself, so it must outlive the parser's use of it. All errors carry their exit
// code.
class TrainFlags {
 public:
  void Add(CLI::App& app);

  const JobFlags& job() const { return job_; }
  const LoopFlags& loop() const { return loop_; }
  const ResultFiles& results() const { return results_; }
  bool shuffles() const { return !no_shuffle_; }
  ExportMode export_mode() const { return ExportModeOf(export_mode_); }
  bool prints_json() const { return format_ == "json"; }

  // What is asked of a step. Refuses what the parser cannot see: a run without an end or labels,
  // and flags that need or exclude others.
  absl::StatusOr<TrainingSpec> Training() const;
  // At which the run ends.
  int64_t Steps(const DataSet& data) const {
    return steps_ > 0 ? steps_ : epochs_ * data.steps_per_epoch();
  }
  // InvalidArgument where adapters are to be written and the job has none.
  absl::Status CheckAdapters(bool has_adapters) const;

 private:
  void AddResults(CLI::App& app);
  absl::Status Check(const TrainingSpec& training) const;

  JobFlags job_;
  LoopFlags loop_;
  const CLI::Option* labels_ = nullptr;  // the parser's
  int64_t steps_ = 0;
  int64_t epochs_ = 0;
  bool no_shuffle_ = false;
  ResultFiles results_;
  std::string export_mode_;
  std::string format_ = "text";
};

}  // namespace weft

#endif  // WEFT_TOOLS_FLAGS_TRAIN_FLAGS_H_
