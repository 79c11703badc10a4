// One trial of a sweep: an ordinary training job that reports its score at rungs.
#ifndef WEFT_TOOLS_SWEEP_TRIAL_RUN_H_
#define WEFT_TOOLS_SWEEP_TRIAL_RUN_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "platform/clock.h"
#include "tools/flags/cluster_share.h"
#include "tools/jobs/training_job.h"
#include "tools/sweep/score_board.h"
#include "tools/sweep/trial_flags.h"
#include "training/job/trainer.h"

namespace weft {

// By what trials are compared.
struct SweepScore {
  std::string metric = "loss";
  bool evaluated = false;  // a metric of evaluations; else the training loss (LossWindow)
  bool more_is_better = false;
};

// How a trial has ended.
enum class TrialEnd {
  kNotStarted,
  kTrained,      // it came to its end, or to one of its own rules (--until, --patience)
  kEndedEarly,   // by the median rule
  kFailed,       // with an error
  kInterrupted,  // somebody stopped the sweep
};

// What is known of a trial afterwards. A value.
struct TrialOutcome {
  TrialEnd end = TrialEnd::kNotStarted;
  std::string reason = {};  // of an early end or a failure; of a trained one: its own rule, or ""
  absl::Status error;       // of a failure
  // The workers of a cluster file did not answer, or did not know the token: the next trial would
  // not reach them either.
  bool unreached = false;
  int64_t steps = 0;
  int64_t samples = 0;
  RungScores rungs = {};             // by rung, as far as it came
  std::optional<double> score = {};  // the last one
  std::optional<double> loss = {};   // of the last batch
  double seconds = 0;                // from its start to its end, waits at rungs included
};

// What the best trial leaves.
struct TrainedTrial {
  std::unique_ptr<TrainingJob> job;
  TrainResult result;
};

// Where and beside whom a trial runs. Borrows all.
struct TrialPlace {
  int trial = 0;  // from 0
  const SweepTrials& sweep;
  WorkerShare share;
  const SweepScore& score;
  ScoreBoard& board;
  const std::function<bool()>& stop;
  // What people should know of it, whole lines; from the calling thread.
  const std::function<void(const std::string&)>& say;
  Clock& clock;
};

// Runs the trial to its end, on workers of its own that are ended with it: parses its flags,
// prepares its job, and trains. Never fails by itself: an error is in the outcome. The trained
// values of a trial that came to its end, else null. The calling thread starts the workers and
// waits; several trials may run in as many threads.
std::unique_ptr<TrainedTrial> RunTrial(const TrialPlace& place, TrialOutcome& outcome);

}  // namespace weft

#endif  // WEFT_TOOLS_SWEEP_TRIAL_RUN_H_
