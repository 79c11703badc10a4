// PeriodicEvaluation: measures the weights of a training job every so many steps, and ends it by
// rules.
#ifndef WEFT_TRAINING_JOB_PERIODIC_EVALUATION_H_
#define WEFT_TRAINING_JOB_PERIODIC_EVALUATION_H_

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "training/job/trainer.h"

namespace weft {

// "accuracy>=0.95", "loss<0.1": ends a run once a metric has come so far.
struct StopRule {
  std::string metric;
  bool at_least = true;   // else at most
  bool or_equal = false;  // the bound itself counts
  double bound = 0;

  bool Holds(double value) const;
  std::string ToString() const;
};
// InvalidArgument showing the text and what is expected.
absl::StatusOr<StopRule> ParseStopRule(const std::string& text);

// Whether more is better: true for accuracy and its like, false for losses.
bool MoreIsBetter(const std::string& metric);

// When a job is evaluated, on which metrics, and which rules end it.
struct EvaluationOptions {
  int64_t every = 0;  // steps
  std::optional<StopRule> until;
  // Ends the run after so many evaluations in a row in which `metric` was no better than before;
  // 0 = never.
  int64_t patience = 0;
  std::string metric;  // that is looked at for the best weights and for patience
};

// The metrics of one evaluation.
struct Measurement {
  int64_t step = 0;  // steps that are done
  std::map<std::string, double> metrics;
  bool is_best = false;
};

// `evaluation` is of PrepareEvaluationWithin; borrowed. One thread.
class PeriodicEvaluation final : public LoopHook {
 public:
  // Is told of each measurement, while no step runs; an error ends the run.
  using Listener = std::function<absl::Status(Coordinator& coordinator, const Measurement&)>;

  PeriodicEvaluation(const PreparedJob& evaluation, const EvaluationOptions& options,
                     Listener listener);

  int64_t NextCall(int64_t step) const override;
  absl::StatusOr<std::string> Call(Coordinator& coordinator, int64_t step) override;
  void SaveState(std::map<std::string, double>& state) const override;
  // Where an earlier run stood (CheckpointIndex::loop).
  void LoadState(const std::map<std::string, double>& state);

  // The best value of the metric so far, and after how many steps.
  std::optional<double> best() const { return best_; }
  int64_t best_step() const { return best_step_; }

 private:
  const PreparedJob& evaluation_;
  const EvaluationOptions options_;
  const Listener listener_;
  std::optional<double> best_;
  int64_t best_step_ = 0;
  int64_t since_best_ = 0;  // evaluations
};

}  // namespace weft

#endif  // WEFT_TRAINING_JOB_PERIODIC_EVALUATION_H_
