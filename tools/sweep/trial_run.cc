#include "tools/sweep/trial_run.h"

#include <cmath>
#include <limits>
#include <map>
#include <new>
#include <sstream>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "platform/file_system.h"
#include "platform/status_macros.h"
#include "tools/console/console.h"
#include "tools/flags/loop_flags.h"
#include "tools/jobs/job_loop.h"
#include "tools/jobs/training_curves.h"
#include "tools/jobs/training_run.h"
#include "tools/jobs/worker_group.h"
#include "tools/sweep/rungs.h"

namespace weft {
namespace {

// Scores the trial at its rungs, and ends it where the board says so.
class RungHook final : public LoopHook {
 public:
  RungHook(const TrialPlace& place, const TrainingJob& job, const PreparedJob* evaluation)
      : place_(place),
        evaluation_(evaluation),
        batch_of_([data = job.job.data.get()](int64_t step) { return data->batch_of(step); }),
        steps_(RungSteps(job.steps, batch_of_)),
        window_(SamplesOf(job.steps, batch_of_) / (int64_t{1} << (kRungs - 1))) {}

  void TakeStep(const TrainProgress& done) {
    window_.Add(done.loss, done.samples);
    samples_ += done.samples;
    ++done_;
    loss_ = done.loss;
  }
  void TakeEvaluation(const Measurement& measured) { measured_ = measured; }

  int64_t NextCall(int64_t step) const override {
    for (const int64_t rung : steps_) {
      if (rung > step) return rung;
    }
    return std::numeric_limits<int64_t>::max();
  }

  absl::StatusOr<std::string> Call(Coordinator& coordinator, int64_t step) override {
    WEFT_ASSIGN_OR_RETURN(const double score, Score(coordinator, step));
    score_ = score;
    for (; rung_ < kRungs && steps_[static_cast<size_t>(rung_)] == step; ++rung_) {
      const double percent = 100 * RungPart(rung_);
      place_.say(absl::StrFormat("trial %d: %.4g %% of the data, %s %.6g", place_.trial + 1,
                                 percent, place_.score.metric, score));
      const std::optional<double> median = place_.board.Report(place_.trial, score, place_.stop);
      // Of a short trial several rungs are its end, where nothing is left to save.
      if (!median.has_value() || step == steps_.back()) continue;
      ended_early_ = true;
      return absl::StrFormat("at %.4g %% of the data the median of earlier trials was %.6g",
                             percent, *median);
    }
    return std::string();
  }

  // After the run. Of one that a rule of its own has ended, the score is that of its last
  // evaluation.
  std::optional<double> FinalScore(int64_t steps) const {
    if (measured_.step != steps || !place_.score.evaluated) return score_;
    const auto value = measured_.metrics.find(place_.score.metric);
    return value == measured_.metrics.end() ? score_ : value->second;
  }
  bool ended_early() const { return ended_early_; }
  int64_t steps() const { return done_; }
  int64_t samples() const { return samples_; }
  std::optional<double> loss() const { return loss_; }
  std::optional<double> score() const { return score_; }

 private:
  absl::StatusOr<double> Score(Coordinator& coordinator, int64_t step) {
    double score = window_.Mean();
    if (place_.score.evaluated) {
      std::map<std::string, double> metrics = measured_.metrics;
      if (measured_.step != step) {
        WEFT_ASSIGN_OR_RETURN(metrics,
                              Evaluate(coordinator, *evaluation_, [](const TrainProgress&) {}));
      }
      const auto found = metrics.find(place_.score.metric);
      if (found == metrics.end()) {
        return absl::InternalError(
            absl::StrCat("the evaluation has no metric '", place_.score.metric, "'"));
      }
      score = found->second;
    }
    if (std::isfinite(score)) return score;
    return absl::OutOfRangeError(
        absl::StrCat(place_.score.metric, " is ", score, " after step ", step));
  }

  const TrialPlace& place_;
  const PreparedJob* const evaluation_;
  const std::function<int64_t(int64_t)> batch_of_;
  const std::vector<int64_t> steps_;  // by rung
  LossWindow window_;
  int rung_ = 0;      // that comes next
  int64_t done_ = 0;  // steps
  int64_t samples_ = 0;
  std::optional<double> loss_;
  std::optional<double> score_;
  Measurement measured_;
  bool ended_early_ = false;
};

void SayLines(const TrialPlace& place, const std::string& text) {
  if (place.trial == 0 && !text.empty()) place.say(text.substr(0, text.find_last_not_of('\n') + 1));
}

// What the run has come to.
void TakeResult(const RungHook& hook, const TrainResult& result, TrialOutcome& outcome) {
  outcome.steps = result.steps;
  outcome.score = hook.FinalScore(result.steps);
  outcome.reason = result.end;
  outcome.end = result.stopped       ? TrialEnd::kInterrupted
                : hook.ended_early() ? TrialEnd::kEndedEarly
                                     : TrialEnd::kTrained;
}

absl::StatusOr<std::unique_ptr<TrainedTrial>> RunTrialJob(const TrialPlace& place,
                                                          TrialOutcome& outcome) {
  // All trials say the same: one is enough.
  std::ostringstream out, err;
  Console console{&out, &err, /*animated=*/false};
  WEFT_ASSIGN_OR_RETURN(const TrialFlags parsed,
                        place.sweep.Flags(static_cast<size_t>(place.trial)));
  parsed.flags->TakeShare(place.share);
  const TrainFlags& flags = *parsed.flags;
  JobLoop loop(flags.loop(), console);
  auto trained = std::make_unique<TrainedTrial>();
  WEFT_ASSIGN_OR_RETURN(
      trained->job, PrepareTrainingJob(flags, LoopFlags::GivenFlags(*parsed.app), loop, console));
  TrainingJob& job = *trained->job;
  DescribeTrainingJob(job, flags, console);
  const absl::StatusOr<std::unique_ptr<WorkerGroup>> started =
      StartTrainingJob(job, flags, loop, console);
  outcome.unreached = flags.job().connects() && (absl::IsUnavailable(started.status()) ||
                                                 absl::IsUnauthenticated(started.status()));
  if (!started.ok()) return started.status();
  WorkerGroup& workers = **started;
  SayLines(place, err.str());
  WEFT_ASSIGN_OR_RETURN(
      const std::unique_ptr<TrainingCurves> curves,
      TrainingCurves::Create(RealFileSystem(), place.clock, flags.results(), job.job,
                             /*first_step=*/0,
                             {.evaluated = loop.evaluated_metrics(job.training.loss),
                              .has_loss_scale = job.training.precision == Precision::kFloat16,
                              .has_noise = job.training.measure_noise}));
  TrainingRun run(job, loop, *curves, console, place.clock);
  RungHook hook(place, job, loop.evaluation());
  run.set_listener({[&hook](const TrainProgress& done) { hook.TakeStep(done); },
                    [&hook](const Measurement& measured) { hook.TakeEvaluation(measured); },
                    &hook});
  const absl::Status ended = run.Run(workers.coordinator(), place.stop);
  outcome.steps = hook.steps();
  outcome.samples = hook.samples();
  outcome.loss = hook.loss();
  outcome.score = hook.score();
  if (!ended.ok()) return workers.Explain(ended);
  TakeResult(hook, run.result(), outcome);
  if (outcome.end != TrialEnd::kTrained) return std::unique_ptr<TrainedTrial>();
  trained->result = run.result();
  return trained;
}

}  // namespace

std::unique_ptr<TrainedTrial> RunTrial(const TrialPlace& place, TrialOutcome& outcome) {
  const int64_t begin = place.clock.MonotonicNanos();
  absl::StatusOr<std::unique_ptr<TrainedTrial>> trained = nullptr;
  try {
    trained = RunTrialJob(place, outcome);
  } catch (const std::bad_alloc&) {
    trained = absl::ResourceExhaustedError("this machine has no more memory to give");
  }
  place.board.End(place.trial);
  outcome.rungs = place.board.scores(place.trial);
  outcome.seconds = static_cast<double>(place.clock.MonotonicNanos() - begin) * 1e-9;
  if (trained.ok()) return *std::move(trained);
  outcome.end = TrialEnd::kFailed;
  outcome.error = trained.status();
  outcome.reason = std::string(trained.status().message());
  return nullptr;
}

}  // namespace weft
