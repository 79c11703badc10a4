// TrainFlags: all flags of `train`, and what they must say together.
#ifndef WEFT_TOOLS_FLAGS_TRAIN_FLAGS_H_
#define WEFT_TOOLS_FLAGS_TRAIN_FLAGS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tools/flags/cluster_share.h"
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
  // For a command that looks at a job without running it, by what a step of the job depends on: the
  // same flags, so that those of `train` and its job files can be given. Neither data nor the end
  // of the run are required. Flags that the command has no use for are in the group kWithoutEffect
  // (Without names those that were given). `own`: flags whose names mean something else to the
  // command, or that it has not; it adds them itself.
  enum class Looks : uint8_t {
    kAtOneWorker,       // at a step without a plan: placement has no effect
    kAtSteps,           // at training steps
    kAtAllProgramsToo,  // and at the programs of evaluations
  };
  void AddForPlanning(CLI::App& app, Looks looks, const std::vector<std::string>& own);

  // JobFlags::TakeShare.
  void TakeShare(const WorkerShare& share) { job_.TakeShare(share); }

  const JobFlags& job() const { return job_; }
  void KeepPayloads() { job_.KeepPayloads(); }
  void DefaultToReplicas() { job_.DefaultToReplicas(); }
  void RequireData(CLI::App& app) { job_.RequireData(app, true); }
  const LoopFlags& loop() const { return loop_; }
  const ResultFiles& results() const { return results_; }
  bool shuffles() const { return !no_shuffle_; }
  ExportMode export_mode() const { return ExportModeOf(export_mode_); }
  // Steps between measurements of the gradient's noise; 0 = none.
  int64_t noise_every() const { return noise_every_; }
  bool prints_json() const { return format_ == "json"; }

  // What is asked of a step. Refuses what the parser cannot see: a run without an end or labels
  // (but see JobFlags::TakeLoss), and flags that need or exclude others.
  absl::StatusOr<TrainingSpec> Training() const;
  // The same after AddForPlanning, where neither an end nor labels are asked for. The schedule gets
  // the number of the run's steps from --steps, or from --epochs and `data` (null: none); 0 where
  // there is neither.
  absl::StatusOr<TrainingSpec> PlannedTraining(const DataSet* data) const;
  // After AddForPlanning and the parse: "note: without effect here: --metrics, --best\n", of the
  // flags and keys that were given; "" if there are none.
  std::string NoteWithoutEffect(const CLI::App& app) const;

  // What the run's length is given in: passes over the data, or 0 for steps.
  int64_t epochs() const { return epochs_; }
  // At which the run ends.
  int64_t given_steps() const { return steps_; }  // 0: not given
  int64_t Steps(const DataSet& data) const {
    return steps_ > 0 ? steps_ : epochs_ * data.steps_per_epoch();
  }
  // The same for updates in turn: whole cycles, in which the first one sees its data so many times.
  int64_t Steps(const std::vector<PreparedUpdate>& updates) const;
  // InvalidArgument where adapters are to be written and the job has none.
  absl::Status CheckAdapters(bool has_adapters) const;

 private:
  void AddResults(CLI::App& app);
  absl::Status Check(const TrainingSpec& training) const;
  absl::Status CheckAlternation(const TrainingSpec& training) const;

  JobFlags job_;
  LoopFlags loop_;
  int64_t steps_ = 0;
  int64_t epochs_ = 0;
  bool no_shuffle_ = false;
  int64_t noise_every_ = 0;
  ResultFiles results_;
  std::string export_mode_;
  std::string format_ = "text";
};

}  // namespace weft

#endif  // WEFT_TOOLS_FLAGS_TRAIN_FLAGS_H_
