#include "tools/jobs/training_run.h"

#include <algorithm>
#include <limits>
#include <map>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "graph/cluster_spec.h"
#include "graph/plan.h"
#include "platform/status_macros.h"
#include "tools/console/exit_code.h"
#include "training/job/stored_programs.h"
#include "training/recovery/job_recovery.h"

namespace weft {
namespace {

// In which nodes are timed, to compare them with the prediction: so few that nobody notices.
constexpr int64_t kTimedSteps = 10;
// When a job begins to make programs for a loss.
constexpr absl::Duration kPreparesAfter = absl::Seconds(1);

// The cluster with the workers of further replicas, which are in no cluster file (PlanWithMore).
ClusterSpec ClusterOf(const Plan& plan, ClusterSpec cluster) {
  for (const int worker : plan.workers) {
    while (cluster.workers.size() <= static_cast<size_t>(worker)) {
      WorkerSpec further = cluster.workers.front();
      further.name = absl::StrCat("further:", cluster.workers.size());
      cluster.workers.push_back(std::move(further));
    }
  }
  return cluster;
}

}  // namespace

class TrainingRun::NoiseState final : public LoopHook {
 public:
  explicit NoiseState(const NoiseAverage& noise) : noise_(noise) {}
  int64_t NextCall(int64_t) const override { return std::numeric_limits<int64_t>::max(); }
  absl::StatusOr<std::string> Call(Coordinator&, int64_t) override { return std::string(); }
  void SaveState(std::map<std::string, double>& state) const override { noise_.SaveState(state); }
  bool changes_in_steps() const override { return true; }

 private:
  const NoiseAverage& noise_;
};

class TrainingRun::CurvesOnDisk final : public LoopHook {
 public:
  explicit CurvesOnDisk(TrainingCurves& curves) : curves_(curves) {}
  int64_t NextCall(int64_t) const override { return std::numeric_limits<int64_t>::max(); }
  absl::StatusOr<std::string> Call(Coordinator&, int64_t) override { return std::string(); }
  void BeforeStretch() override { curves_.Flush(); }

 private:
  TrainingCurves& curves_;
};

TrainingRun::TrainingRun(TrainingJob& job, JobLoop& loop, TrainingCurves& curves, Console& console,
                         Clock& clock)
    : job_(job),
      model_(job.trained()),
      loop_(loop),
      curves_(curves),
      clock_(clock),
      progress_(console, clock, {"train", "samples", true}, job.steps),
      times_(job.job.programs.front().shape) {}

void TrainingRun::Take(const TrainProgress& done) {
  seconds_ += done.seconds;
  input_seconds_ += done.input_seconds;
  // Steps that measure do more than was predicted.
  if (!absl::StartsWith(done.program, absl::StrCat(kNoiseSteps, "/"))) times_.Add(done);
  TakeNoise(done);
  progress_.Step(done.step, done.loss, done.samples);
  if (listener_.step != nullptr) listener_.step(done);
}

void TrainingRun::TakeNoise(const TrainProgress& done) {
  if (!done.noise.has_value()) return curves_.AddStep(done);
  noise_.Add(*done.noise);
  const std::optional<double> scale = noise_.scale();
  curves_.AddStep(done, scale);
  progress_.set_note(scale.has_value() ? absl::StrFormat("noise scale %.3g", *scale) : "");
}

absl::Status TrainingRun::Run(Coordinator& coordinator, const std::function<bool()>& stop) {
  options_.steps = job_.steps;
  options_.report_gradients = job_.training.report_gradients;
  options_.timed_steps = kTimedSteps;
  options_.stop = stop;
  options_.clock = &clock_;
  loop_.set_listener([this](const Measurement& measured) {
    curves_.AddEvaluation(measured);
    if (listener_.evaluation != nullptr) listener_.evaluation(measured);
  });
  WEFT_RETURN_IF_ERROR(loop_.Begin(coordinator, model_, job_.job, job_.training.loss,
                                   [this] { progress_.Finish(); }));
  loop_.AddTo(options_);
  if (listener_.hook != nullptr) options_.hooks.push_back(listener_.hook);
  CurvesOnDisk on_disk(curves_);
  if (loop_.job_digest() != 0) options_.hooks.push_back(&on_disk);
  NoiseState noise(noise_);
  if (job_.training.measure_noise) {
    noise_.LoadState(loop_.saved_state());
    options_.noise_every = job_.noise_every;
    options_.hooks.push_back(&noise);
  }
  Rebalancer rebalancer(
      job_.job, coordinator,
      [this](const Plan& plan, const std::string& kind) {
        return PartitionTraining(job_.job, job_.model.graph, job_.training, plan, kind);
      },
      loop_.Rebalancing());
  if (coordinator.size() > 1 && job_.job.updates.empty()) options_.watch = &rebalancer;
  JobRecovery recovery(job_.job, Recovering(stop));
  if (job_.goes_on) options_.losses = &recovery;
  std::optional<ReplicaCheck> replicas;
  if (loop_.compares() && (job_.job.plan.mesh.data > 1 || loop_.may_grow())) {
    replicas.emplace(job_.job, options_.first_step, Comparing(recovery));
    // Before what reads the state.
    options_.hooks.insert(options_.hooks.begin(), &*replicas);
  }
  auto result =
      Train(coordinator, job_.job, options_, [this](const TrainProgress& done) { Take(done); });
  options_.watch = nullptr;
  options_.losses = nullptr;
  records_ = recovery.records();
  std::erase(options_.hooks, &noise);
  std::erase(options_.hooks, &on_disk);
  if (replicas.has_value()) {
    std::erase(options_.hooks, &*replicas);
    replicas_ = replicas->summary();
  }
  progress_.Finish();
  rebalancer.Finish();
  const absl::Status closed = curves_.Close();
  if (replicas_.has_ended) {
    return WithExitCode(absl::DataLossError(absl::StrCat(std::string(result.status().message()),
                                                         loop_.Distrust(replicas_.last_equal))),
                        ExitCode::kDiverged);
  }
  WEFT_RETURN_IF_ERROR(result.status());
  result_ = *std::move(result);
  has_result_ = true;
  moves_ = rebalancer.moves();
  if (moves_ > 0) shares_ = rebalancer.plan().shares;
  WEFT_ASSIGN_OR_RETURN(traffic_, Traffic(coordinator));
  needed_ = coordinator.memory();
  cards_ = coordinator.card_use();
  return closed;
}

ReplicaCheckOptions TrainingRun::Comparing(JobRecovery& recovery) {
  ReplicaCheckOptions options = loop_.Comparing();
  options.say = [say = loop_.Rebalancing().say](const std::string& line) {
    say(absl::StrCat("digest ", line));
  };
  if (job_.spec.commits) options.leave_out = [&recovery](int rank) { recovery.LeaveOut(rank); };
  options.clock = &clock_;
  return options;
}

JobRecoveryOptions TrainingRun::Recovering(const std::function<bool()>& stop) {
  RebalancerOptions loop = loop_.Rebalancing();
  JobRecoveryOptions options;
  options.repartition = [this](const Plan& plan) {
    return PartitionTraining(job_.job, job_.model.graph, job_.training, plan, kTrainingSteps);
  };
  options.evaluation = [this]() -> absl::StatusOr<const PreparedJob*> {
    JobSpec spec = job_.spec;
    spec.cluster = ClusterOf(job_.job.plan, spec.cluster);
    WEFT_RETURN_IF_ERROR(loop_.PrepareEvaluation(job_.model, job_.training.loss, job_.job, spec));
    return loop_.evaluation();
  };
  options.commits = job_.spec.commits;
  options.replicate_every = job_.spec.replicate_every;
  options.checkpoint = loop_.Checkpoints();
  options.begins_anew = loop_.first_step() == 0;
  options.explain = listener_.explain;
  options.on_lost = listener_.lost;
  options.on_left = listener_.left;
  options.source = listener_.source;
  options.wait = loop_.loss_wait();
  options.stop = stop;
  if (job_.goes_on) options.prepares_after = kPreparesAfter;
  options.on_plan = [this, told = std::move(loop.on_plan)](const Plan& plan) {
    members_changed_ = true;
    if (told != nullptr) told(plan);
  };
  options.say = std::move(loop.say);
  options.clock = &clock_;
  return options;
}

absl::StatusOr<std::vector<RankTraffic>> TrainingRun::Traffic(Coordinator& coordinator) const {
  if (coordinator.size() == 1) return std::vector<RankTraffic>();
  WEFT_ASSIGN_OR_RETURN(std::vector<WorkerTraffic> measured, coordinator.AskAll(TrafficRequest{}));
  const auto& programs = job_.job.programs;
  // That of evaluations is left out.
  const auto evaluates = [&programs](const ProgramTraffic& traffic) {
    return std::none_of(programs.begin(), programs.end(),
                        [&](const JobProgram& program) { return program.name == traffic.program; });
  };
  for (WorkerTraffic& worker : measured) std::erase_if(worker.programs, evaluates);
  return CompareTraffic(job_.job, measured);
}

TrainingOutcome TrainingRun::Outcome() const {
  TrainingOutcome outcome = {.result = result_};
  outcome.first_step = options_.first_step;
  outcome.needed = needed_;
  outcome.traffic = traffic_;
  outcome.input_stall = stalled_part();
  outcome.seconds = progress_.seconds();
  outcome.samples_per_second = progress_.rate();
  outcome.shares = shares_;
  outcome.cards = cards_;
  outcome.replicas = replicas_;
  outcome.losses = records_;
  if (job_.training.measure_noise) outcome.noise = &noise_;
  outcome.batch = job_.job.data->spec().batch;
  outcome.notes = job_.job.notes;
  return outcome;
}

std::string TrainingRun::StallText() const {
  return absl::StrFormat("input  stalled the steps for %.1f %% of their time\n",
                         100 * stalled_part());
}

double TrainingRun::step_seconds() const {
  const int64_t steps = result_.steps - options_.first_step;
  return seconds_ / static_cast<double>(std::max<int64_t>(steps, 1));
}

absl::StatusOr<RunHistoryEntry> TrainingRun::Compare(Coordinator& coordinator,
                                                     const std::string& model) const {
  RunMeasurements run;
  run.model = model;
  run.ended = clock_.Now();
  run.factor = job_.job.step_factor;
  run.traffic = traffic_;
  run.needed = needed_;
  run.memory = result_.memory;
  WEFT_ASSIGN_OR_RETURN(run.statistics, coordinator.AskAll(StatisticsRequest{}));
  return RecordOf(job_.job, times_, run);
}

}  // namespace weft
