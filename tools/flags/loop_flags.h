// LoopFlags: checkpoints, evaluations and early ends of `train`.
#ifndef WEFT_TOOLS_FLAGS_LOOP_FLAGS_H_
#define WEFT_TOOLS_FLAGS_LOOP_FLAGS_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "distributed/loss_detection.h"
#include "training/checkpoint/checkpointer.h"
#include "training/checkpoint/flag_record.h"
#include "training/data/data_set.h"
#include "training/graph/training_graph.h"
#include "training/job/periodic_evaluation.h"
#include "training/recovery/replica_check.h"

namespace weft {

// "100" steps, "30s" seconds, "2e" epochs.
struct Interval {
  int64_t steps = 0;
  double seconds = 0;
  int64_t epochs = 0;
  int64_t StepsOf(const DataSet& data) const {
    return epochs > 0 ? epochs * data.steps_per_epoch() : steps;
  }
};
// InvalidArgument showing the text. Seconds only where `allows_seconds`.
absl::StatusOr<Interval> ParseInterval(const std::string& text, bool allows_seconds);

// Binds flags to itself, so it must outlive the parser's use of it. All errors carry their exit
// code.
class LoopFlags {
 public:
  void Add(CLI::App& app);
  // Of these alone the flags that say what evaluations are, for commands that run none.
  void AddEvaluation(CLI::App& app);
  // What the parser cannot see: values, and flags that need others.
  // `averages`: the job keeps averages of its parameters.
  absl::Status Check(bool averages) const;

  bool saves() const { return !folder_.empty(); }
  bool resumes() const { return resume_; }
  bool evaluates() const { return !eval_every_.empty(); }
  bool evaluates_averages() const { return eval_averages_; }
  bool check_numerics() const { return check_numerics_; }
  bool rebalances() const { return rebalance_; }
  // Whether the job goes on without a worker that it loses, where it can.
  bool continues() const { return on_loss_ != kStop; }
  // How long it waits for a worker in the place of a lost one; 0: it goes on at once.
  absl::Duration loss_wait() const {
    return on_loss_ == kWait ? absl::Seconds(wait_) : absl::ZeroDuration();
  }
  // Where workers may ask to join; "" = nowhere.
  const std::string& listen() const { return listen_; }
  // How soon a worker that does not answer is lost.
  LossDetection detection() const { return detect_ == kFast ? kFastDetection : LossDetection(); }
  // Whether replicas are compared; and when, and what follows. REQUIRES: Check.
  bool compares() const { return digest_every_ != "0"; }
  ReplicaCheckOptions Comparing() const;
  // After so many steps each rank's state is copied to another; 0: never. REQUIRES: Check.
  int64_t replicate_every() const;
  const std::string& folder() const { return folder_; }
  const std::string& best_output() const { return best_output_; }

  // REQUIRES: Check.
  CheckpointOptions Checkpoints(const DataSet& data) const;
  EvaluationOptions Evaluation(const DataSet& data, const LossSpec& loss) const;
  // Of an evaluation; the first is the one that is looked at for the best.
  std::vector<std::string> Metrics(const LossSpec& loss) const;
  // The data of evaluations: what the training data's spec says of batch and scale.
  absl::StatusOr<std::shared_ptr<const DataSet>> OpenEvaluationData(const DataSpec& training) const;

  // Whether the flag changes what is computed, and not only where it runs, what is written, or when
  // it ends. Not so the files of model and data.
  static bool Decides(const CLI::Option& option);
  // The flags that were given and that change what is computed, with their values: what a resumed
  // run must have, too.
  static FlagRecord GivenFlags(const CLI::App& app);

 private:
  std::string folder_;
  std::string every_;
  int keep_ = 3;
  bool resume_ = false;
  std::string eval_every_;
  std::vector<std::string> eval_data_;
  std::string eval_labels_;
  std::vector<std::string> eval_metrics_;
  bool eval_averages_ = false;
  std::string until_;
  int64_t patience_ = 0;
  std::string best_output_;
  bool check_numerics_ = false;
  bool rebalance_ = false;
  static constexpr char kContinue[] = "continue";
  static constexpr char kWait[] = "wait";
  static constexpr char kStop[] = "stop";
  std::string on_loss_ = kContinue;
  int64_t wait_ = 60;  // seconds
  std::string listen_;
  static constexpr char kEvery[] = "every=";
  std::string replicate_;  // "every=10"; "" = never
  static constexpr char kFast[] = "fast";
  std::string detect_ = "default";
  static constexpr char kAuto[] = "auto";
  std::string digest_every_ = kAuto;
  static constexpr char kRepair[] = "repair";
  std::string on_divergence_ = kRepair;
};

}  // namespace weft

#endif  // WEFT_TOOLS_FLAGS_LOOP_FLAGS_H_
