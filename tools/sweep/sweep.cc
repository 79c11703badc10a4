#include "tools/sweep/sweep.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "distributed/process/local_cluster.h"
#include "platform/clock.h"
#include "platform/cpu_info.h"
#include "platform/file_system.h"
#include "platform/mutex.h"
#include "platform/status.h"
#include "platform/status_macros.h"
#include "tools/console/stop_signals.h"
#include "tools/flags/cluster_share.h"
#include "tools/jobs/training_results.h"
#include "tools/sweep/grid.h"
#include "tools/sweep/median_rule.h"
#include "tools/sweep/score_board.h"
#include "tools/sweep/sweep_table.h"
#include "tools/sweep/trial_flags.h"
#include "tools/sweep/trial_run.h"
#include "tools/sweep/trial_shares.h"
#include "training/job/periodic_evaluation.h"

namespace weft {
namespace {

// Whose values are losses, which do not compare where the loss itself is swept.
bool IsOfLoss(const std::string& metric) { return metric == "loss" || metric == "perplexity"; }

bool ChangesLoss(const SweepAxis& axis, const CLI::App& app) {
  const CLI::Option* const option = app.get_option_no_throw("--" + axis.option);
  return axis.option == "loss" || (option != nullptr && option->get_group() == "loss");
}

// What each trial of a sweep with evaluations measures first: the model may name its loss.
absl::StatusOr<std::vector<std::string>> MetricsOf(const SweepTrials& sweep,
                                                   const TrainFlags& flags) {
  const auto model = flags.job().ImportFile(nullptr, nullptr);
  if (!model.ok()) return WithExitCode(model.status(), ExitCode::kModel);
  std::vector<std::string> metrics;
  for (size_t i = 0; i < sweep.trials.size(); ++i) {
    WEFT_ASSIGN_OR_RETURN(const TrialFlags trial, sweep.Flags(i));
    WEFT_ASSIGN_OR_RETURN(TrainingSpec training, trial.flags->Training());
    WEFT_RETURN_IF_ERROR(trial.flags->job().TakeLoss(model->graph, training.loss));
    metrics.push_back(trial.flags->loop().Metrics(training.loss).front());
  }
  return metrics;
}

// `first`: the first trial's.
absl::StatusOr<SweepScore> ScoreOf(const SweepTrials& sweep, const TrialFlags& first) {
  SweepScore score;
  score.evaluated = first.flags->loop().evaluates();
  std::vector<std::string> metrics;
  if (score.evaluated) {
    WEFT_ASSIGN_OR_RETURN(metrics, MetricsOf(sweep, *first.flags));
    score.metric = metrics.front();
  }
  for (const std::string& metric : metrics) {
    if (metric == score.metric) continue;
    return UsageError(absl::StrCat("--sweep: trials would be compared by ", score.metric, " and ",
                                   metric, "; give --eval-metric NAME"));
  }
  score.more_is_better = MoreIsBetter(score.metric);
  for (const SweepAxis& axis : sweep.axes) {
    if (!IsOfLoss(score.metric) || !ChangesLoss(axis, *first.app)) continue;
    return UsageError(absl::StrCat("--sweep ", axis.Name(),
                                   ": it changes the loss, so losses do not compare; give "
                                   "--eval-every 1e --eval-metric accuracy, or another metric"));
  }
  return score;
}

// How the workers are cut.
struct Shares {
  WorkerShare first;
  int workers = 1;    // there are
  bool alike = true;  // it does not matter which one a trial gets
};

absl::StatusOr<Shares> SharesOf(const SweepTrials& sweep, const JobFlags& job,
                                const SweepFlags& flags) {
  WEFT_ASSIGN_OR_RETURN(const JobSpec spec, job.Job());
  Shares shares;
  shares.workers = static_cast<int>(spec.cluster.workers.size());
  WEFT_ASSIGN_OR_RETURN(shares.first,
                        CutWorkers({.workers = shares.workers,
                                    .needed = spec.search.wanted ? 0 : WorkersNeeded(spec.plan),
                                    .trials = static_cast<int>(sweep.trials.size()),
                                    .side_by_side = flags.side_by_side(),
                                    .of_a_cluster = job.connects()}));
  shares.alike = SharesAreAlike(spec.cluster, shares.first, AvailableCores(RealFileSystem()));
  return shares;
}

// The trials of a sweep in their threads, one for each share.
class SweepRun {
 public:
  SweepRun(const SweepTrials& sweep, const SweepScore& score, const WorkerShare& first,
           bool ends_early, bool keeps_best, std::function<bool()> stop, Console& console)
      : sweep_(sweep),
        score_(score),
        first_(first),
        keeps_best_(keeps_best),
        stop_(std::move(stop)),
        say_([this](const std::string& text) { Say(text); }),
        console_(console),
        board_(static_cast<int>(sweep.trials.size()), score.more_is_better, ends_early,
               RealClock()),
        outcomes_(sweep.trials.size()) {}

  void Run() {
    if (first_.count == 1) return RunShare(first_);
    PrepareForClusters();
    std::vector<std::thread> threads;
    for (int i = 0; i < first_.count; ++i) {
      WorkerShare share = first_;
      share.index = i;
      threads.emplace_back([this, share] { RunShare(share); });
    }
    for (std::thread& thread : threads) thread.join();
  }

  // The following after Run.
  std::vector<TrialOutcome> outcomes() const {
    MutexLock lock(mutex_);
    return outcomes_;
  }
  int best() const {
    MutexLock lock(mutex_);
    return Best();
  }
  // Null where it was not kept, or there is none.
  std::unique_ptr<TrainedTrial> TakeBestTrial() {
    MutexLock lock(mutex_);
    return std::move(best_trial_);
  }

 private:
  // Takes one trial after the other, as long as its workers answer.
  void RunShare(const WorkerShare& share) {
    while (!stop_()) {
      int trial = 0;
      {
        MutexLock lock(mutex_);
        if (next_ == static_cast<int>(sweep_.trials.size())) return;
        trial = next_++;
      }
      if (RunOne(share, trial)) continue;
      say_(absl::StrCat("note: the workers of share ", share.index + 1, " of ", share.count,
                        " cannot be used: it takes no more trials"));
      return;
    }
  }

  // False where the trial did not reach its workers.
  bool RunOne(const WorkerShare& share, int trial) {
    say_(absl::StrCat("trial ", trial + 1, ": ", sweep_.trials[static_cast<size_t>(trial)].text));
    TrialOutcome outcome;
    std::unique_ptr<TrainedTrial> trained =
        RunTrial({trial, sweep_, share, score_, board_, stop_, say_, RealClock()}, outcome);
    say_(EndLine(trial, outcome));
    const bool reached = !outcome.unreached;
    MutexLock lock(mutex_);
    outcomes_[static_cast<size_t>(trial)] = std::move(outcome);
    // The one that was kept until now is worse: it goes, when the lock is free.
    if (keeps_best_ && trained != nullptr && Best() == trial) std::swap(best_trial_, trained);
    return reached;
  }

  static std::string EndLine(int trial, const TrialOutcome& outcome) {
    const std::string name = absl::StrCat("trial ", trial + 1, ": ");
    switch (outcome.end) {
      case TrialEnd::kTrained:
        return absl::StrFormat("%strained in %.1f s", name, outcome.seconds);
      case TrialEnd::kEndedEarly:
        return absl::StrCat(name, "ended early: ", outcome.reason);
      case TrialEnd::kFailed:
        return absl::StrCat(name, "failed: ", outcome.reason);
      default:
        return absl::StrCat(name, "interrupted after step ", outcome.steps);
    }
  }

  // Of the trials that have ended.
  int Best() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    std::vector<std::optional<double>> scores;
    for (const TrialOutcome& outcome : outcomes_) {
      scores.push_back(outcome.end == TrialEnd::kTrained ? outcome.score : std::nullopt);
    }
    return BestTrial(scores, score_.more_is_better);
  }

  void Say(const std::string& text) {
    MutexLock lock(console_mutex_);
    *console_.err << Printable(text) << "\n" << std::flush;
  }

  const SweepTrials& sweep_;
  const SweepScore& score_;
  const WorkerShare first_;
  const bool keeps_best_;
  const std::function<bool()> stop_;
  const std::function<void(const std::string&)> say_;
  Mutex console_mutex_;
  Console& console_ ABSL_GUARDED_BY(console_mutex_);
  ScoreBoard board_;
  mutable Mutex mutex_;
  int next_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<TrialOutcome> outcomes_ ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<TrainedTrial> best_trial_ ABSL_GUARDED_BY(mutex_);
};

void DescribeSweep(const SweepTrials& sweep, const SweepScore& score, const Shares& shares,
                   Console& console) {
  const auto workers = [](int count) {
    return absl::StrCat(count, count == 1 ? " worker" : " workers");
  };
  *console.err << "sweep  " << Printable(GridText(sweep.axes, sweep.trials.size())) << "\n"
               << "       " << shares.first.count << " at once on " << workers(shares.first.workers)
               << " each, "
               << "compared by " << (score.evaluated ? "the evaluations' " : "the training ")
               << Printable(score.metric) << "\n";
  const int idle = shares.workers - shares.first.count * shares.first.workers;
  if (idle > 0) {
    *console.err << "note   " << workers(idle) << " of " << shares.workers
                 << " will have no trial: shares are equal\n";
  }
  if (!shares.alike) {
    *console.err << "note   shares differ in devices, threads, memory or hosts: which one a trial "
                    "gets can change\n       its last digits\n";
  }
  if (sweep.smallest_batch > 0) {
    *console.err << "note   --steps counts batches of " << sweep.smallest_batch
                 << "; trials with larger ones make fewer steps, over as much data\n";
  }
  *console.err << std::flush;
}

// "model out.onnx" and the like.
std::vector<std::string> FilesOf(const ResultFiles& results) {
  std::vector<std::string> files;
  for (const auto& [name, path] :
       {std::pair("model", results.model), std::pair("averages", results.averages),
        std::pair("adapters", results.adapters), std::pair("gradients", results.gradients)}) {
    if (!path.empty()) files.push_back(absl::StrCat(name, " ", path));
  }
  return files;
}

// Where no trial was trained, the error of the first that failed. Where trials were not started,
// since no share had workers any more, that of the first which missed them.
absl::Status FailureOf(const SweepTrials& sweep, const std::vector<TrialOutcome>& outcomes) {
  absl::Status first, unreached;
  bool trained = false, started = true;
  for (size_t i = 0; i < outcomes.size(); ++i) {
    trained = trained || outcomes[i].end == TrialEnd::kTrained;
    started = started && outcomes[i].end != TrialEnd::kNotStarted;
    const absl::Status error =
        Annotate(outcomes[i].error, absl::StrCat("trial ", i + 1, " (", sweep.trials[i].text, ")"));
    first.Update(error);
    if (outcomes[i].unreached) unreached.Update(error);
  }
  if (!started) return unreached;
  return trained ? absl::OkStatus() : first;
}

// Whether all that were started have failed in the same way: a table would only repeat it.
bool AllFailedAlike(const std::vector<TrialOutcome>& outcomes) {
  const TrialOutcome& first = outcomes.front();
  return first.end == TrialEnd::kFailed &&
         std::all_of(outcomes.begin(), outcomes.end(), [&first](const TrialOutcome& outcome) {
           return outcome.end == TrialEnd::kNotStarted ||
                  (outcome.end == TrialEnd::kFailed && outcome.reason == first.reason);
         });
}

}  // namespace

absl::StatusOr<ExitCode> RunSweep(const CLI::App& app, const TrainFlags& flags,
                                  const SweepFlags& sweep_flags, Console& console) {
  WEFT_ASSIGN_OR_RETURN(const SweepTrials sweep, MakeSweepTrials(app, sweep_flags.sweeps()));
  WEFT_ASSIGN_OR_RETURN(const TrialFlags first, sweep.Flags(0));
  WEFT_ASSIGN_OR_RETURN(const SweepScore score, ScoreOf(sweep, first));
  WEFT_ASSIGN_OR_RETURN(const Shares shares, SharesOf(sweep, first.flags->job(), sweep_flags));
  DescribeSweep(sweep, score, shares, console);
  const StopSignals signals;
  SweepRun run(
      sweep, score, shares.first, sweep_flags.ends_early(), sweep_flags.selects_best(),
      [&signals] { return signals.signal() != 0; }, console);
  run.Run();
  const std::vector<TrialOutcome> outcomes = run.outcomes();
  const bool stopped = signals.signal() != 0;
  if (!stopped && AllFailedAlike(outcomes)) return outcomes.front().error;
  SweepResult result{sweep, score, outcomes, run.best()};
  absl::Status saved;
  if (const std::unique_ptr<TrainedTrial> best = run.TakeBestTrial(); best != nullptr) {
    const ResultFiles& files = flags.results();  // no trial has others of these
    saved = SaveResults(RealFileSystem(), files, best->job->trained(), best->result, console);
    if (saved.ok()) result.files = FilesOf(files);
  }
  if (flags.prints_json()) {
    *console.out << SweepTableJson(result).dump(2, ' ', false,
                                                nlohmann::json::error_handler_t::replace)
                 << "\n";
  } else {
    *console.out << SweepTableText(result);
  }
  WEFT_RETURN_IF_ERROR(saved);
  if (stopped) {
    *console.err << "stopped by " << signals.name() << "\n";
    return ExitCode::kStopped;
  }
  WEFT_RETURN_IF_ERROR(FailureOf(sweep, outcomes));
  return ExitCode::kOk;
}

}  // namespace weft
