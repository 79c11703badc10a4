#include "training/job/trainer.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "executor/variables/variable_store.h"
#include "platform/log.h"
#include "platform/mutex.h"
#include "platform/status.h"
#include "platform/status_macros.h"
#include "training/graph/loss_scale.h"
#include "training/graph/metric.h"
#include "training/graph/optimizer.h"
#include "training/job/alternation.h"
#include "training/job/stored_programs.h"
#include "training/job/turn_order.h"
#include "training/scaling/noise_nodes.h"
#include "training/scaling/noise_scale.h"

namespace weft {
namespace {

constexpr char kGradientPrefix[] = "gradient/";
// The workers run on their own for about so long; then the loop looks up.
constexpr double kStretchSeconds = 0.5;
// A stretch has at most so many times the steps of the one before, whose time was measured.
constexpr int64_t kStretchGrowth = 8;
// The first steps touch their memory for the first time.
constexpr int64_t kStepsBeforeTimed = 5;
// Where updates alternate or steps measure, each step may be a range of its own: so many fit into a
// message.
constexpr int64_t kMaxRanges = 2000;

double ScalarOf(const StepReport& report, const std::string& name) {
  const auto value = report.values.find(name);
  if (value == report.values.end()) return 0;
  const absl::StatusOr<std::vector<double>> numbers = ToDoubles(value->second);
  return numbers.ok() && !numbers->empty() ? numbers->front() : 0;
}

std::optional<NoiseMeasurement> NoiseOf(const StepReport& report, int64_t samples,
                                        double loss_scale) {
  if (!report.values.contains(kNoiseMicroSquares)) return std::nullopt;
  return MeasureNoise({.micro_squares = ScalarOf(report, kNoiseMicroSquares),
                       .whole_square = ScalarOf(report, kNoiseWholeSquare),
                       .micro_batches = ScalarOf(report, kNoiseMicroBatches),
                       .weight = ScalarOf(report, kNoiseWeight),
                       .samples = samples,
                       .gradient_factor = loss_scale > 0 ? loss_scale : 1});
}

TrainProgress ProgressOf(const StepReport& report, const DataSet& data) {
  TrainProgress progress;
  progress.step = report.step;
  progress.loss = ScalarOf(report, kLossOutput);
  progress.samples = data.batch_of(report.step);
  progress.length = data.length_of(report.step);
  progress.seconds = report.seconds;
  progress.input_seconds = report.input_seconds;
  progress.loss_scale = ScalarOf(report, kLossScaleOutput);
  progress.skipped_steps = static_cast<int64_t>(ScalarOf(report, kSkippedStepsOutput));
  progress.noise = NoiseOf(report, progress.samples, progress.loss_scale);
  return progress;
}

// Each once; several updates may change the same running statistics.
std::vector<std::string> TrainedNames(const PreparedJob& job) {
  std::vector<std::string> names;
  std::set<std::string> known;
  for (const Graph* const graph : job.graphs()) {
    for (const Variable& variable : graph->variables()) {
      const bool is_trained = variable.update.valid() && variable.slot_of.empty();
      const bool is_meant = is_trained && !IsLossScaleState(variable.name);
      if (is_meant && known.insert(variable.name).second) names.push_back(variable.name);
    }
  }
  return names;
}

// "" when no update of the job keeps one.
std::string AverageOf(const PreparedJob& job, const std::string& name) {
  for (const Graph* const graph : job.graphs()) {
    const std::string average = MovingAverageOf(*graph, name);
    if (!average.empty()) return average;
  }
  return "";
}

// One run: stretches of steps, and what happens between them.
class Loop {
 public:
  Loop(Coordinator& coordinator, const PreparedJob& job, const TrainOptions& options,
       const std::function<void(const TrainProgress&)>& progress)
      : coordinator_(coordinator),
        job_(job),
        options_(options),
        progress_(progress),
        clock_(options.clock != nullptr ? *options.clock : RealClock()),
        watch_(options.watch),
        done_(options.first_step),
        run_begin_(done_),
        told_(done_),
        called_(options.hooks.size(), done_) {
    if (!job.updates.empty()) order_ = TurnOrderOf(job.updates);
  }

  absl::StatusOr<TrainResult> Run();

 private:
  // The steps [first, last) by programs of the kind that runs, and those that measure by theirs.
  std::vector<StepRange> KindRanges(int64_t first, int64_t last) const;
  // The steps [first, last), each by its program.
  std::vector<StepRange> Ranges(int64_t first, int64_t last) const;
  // The same where updates alternate: a range counts the steps of its update.
  std::vector<StepRange> RangesInTurn(int64_t first, int64_t last) const;
  // Where the next stretch must end at the latest.
  int64_t StretchEnd() const;
  // The ranges up to `end`, with the checkpoint that is due in between. May bring `end` nearer.
  absl::StatusOr<std::vector<StepRange>> StretchRanges(int64_t& end);
  // Takes the reports of steps that were done before this run.
  absl::Status TakeKept();
  // What a coordinator needs that goes on where this one is lost.
  std::map<std::string, double> Note() const;
  // A range without steps that saves the state as it is.
  StepRange Snapshot(const std::string& folder) const;
  absl::Status RunStretch(const std::vector<StepRange>& ranges, int64_t end);
  absl::Status RunRanges(const std::vector<StepRange>& ranges);
  // The report of the `index`-th step of the ranges.
  void TakeOf(const std::vector<StepRange>& ranges, const StepReport& report, int64_t index);
  // Who is lost after its own last step is told of by its peers alone, whose waits are aborted.
  bool MayGoOn(const absl::Status& error) const {
    return (absl::IsUnavailable(error) || absl::IsAborted(error)) && options_.losses != nullptr &&
           !gave_up_;
  }
  // The newest run of steps was cut short by `loss`, or had ended before: goes on without who was
  // lost.
  absl::Status GoOn(const absl::Status& loss, const std::vector<StepRange>& ranges);
  // Members change where they are to; stops the run where a worker leaves that it needs.
  absl::Status ChangeMembers();
  // The workers are others, and stand after `done_` steps.
  void MembersChanged();
  absl::Status CallHooks();
  absl::Status SaveLast();
  // The next stretch, and what comes after it.
  absl::Status RunNext();
  // What a run leaves behind.
  absl::Status End();
  // OK where the error is the loss of a worker, between two stretches, and the job goes on.
  absl::Status Survive(const absl::Status& error);
  // Says of values that are not finite after which step they were found.
  absl::Status AfterSteps(const absl::Status& status) const {
    if (!absl::IsOutOfRange(status)) return status;
    return Annotate(status, absl::StrCat("after step ", done_));
  }
  std::map<std::string, double> HookState() const;
  bool HooksChangeInSteps() const;
  // The report of step `step` of the job.
  void Take(const StepReport& report, int64_t step, const std::string& program);
  // What several updates know otherwise.
  void TakeTurn(int64_t step, TrainProgress& done);

  Coordinator& coordinator_;
  const PreparedJob& job_;
  const TrainOptions& options_;
  const std::function<void(const TrainProgress&)>& progress_;
  Clock& clock_;
  StepWatch* watch_;                // null: nobody watches
  std::optional<TurnOrder> order_;  // of several updates
  int64_t done_;                    // steps
  int64_t run_begin_;               // of the newest run of steps: those done before it
  int64_t taken_ = 0;               // steps of that run whose reports have been taken
  int64_t own_run_ = 0;             // its number among the workers' runs (Coordinator::runs)
  int64_t told_;                    // steps whose progress has been told: each once
  std::vector<int64_t> called_;     // by hook: so many steps were done when it was called last
  bool gave_up_ = false;            // a loss has ended the run
  int64_t stretch_ = 1;
  std::string kind_ = kTrainingSteps;      // of the programs that steps run
  std::optional<LoggedPhase> first_step_;  // until it is told
  // Held while somebody outside is told of a step.
  Mutex mutex_;
  TrainResult result_;
};

std::vector<StepRange> Loop::RangesInTurn(int64_t first, int64_t last) const {
  std::vector<StepRange> ranges;
  size_t latest = 0;  // the update of the last range
  for (int64_t step = first; step < last; ++step) {
    const Turn turn = order_->At(step);
    const PreparedUpdate& update = job_.updates[turn.update];
    std::string program = ProgramName(update.name, update.data->shape_of(turn.step));
    const bool goes_on =
        !ranges.empty() && latest == turn.update && ranges.back().program == program;
    if (!goes_on) {
      ranges.push_back(
          {std::move(program), turn.step, 0, {{kLearningRateInput, update.learning_rate}}});
      ranges.back().check_numerics = options_.check_numerics;
      latest = turn.update;
    }
    ++ranges.back().count;
  }
  return ranges;
}

std::vector<StepRange> Loop::KindRanges(int64_t first, int64_t last) const {
  const std::map<std::string, double> scalars = {{kLearningRateInput, job_.learning_rate}};
  const int64_t every = kind_ == kTrainingSteps ? options_.noise_every : 0;
  if (every == 0) return StepRanges(*job_.data, kind_, first, last, scalars);
  std::vector<StepRange> ranges;
  const auto add = [&](const char* kind, int64_t from, int64_t to) {
    for (StepRange& range : StepRanges(*job_.data, kind, from, to, scalars)) {
      ranges.push_back(std::move(range));
    }
  };
  while (first < last) {
    const int64_t measured = (first / every + 1) * every - 1;
    add(kTrainingSteps, first, std::min(measured, last));
    if (measured < last) add(kNoiseSteps, measured, measured + 1);
    first = measured + 1;
  }
  return ranges;
}

std::vector<StepRange> Loop::Ranges(int64_t first, int64_t last) const {
  if (order_.has_value()) return RangesInTurn(first, last);
  const std::map<std::string, double> scalars = {{kLearningRateInput, job_.learning_rate}};
  const int64_t reporting = options_.report_gradients ? 1 : 0;
  std::vector<StepRange> ranges =
      StepRanges(*job_.data, "gradients", first, std::min(last, reporting), scalars);
  const int64_t timed = options_.first_step + kStepsBeforeTimed;
  const int64_t after = timed + options_.timed_steps;
  const auto add = [&](int64_t from, int64_t to, bool statistics) {
    from = std::max({from, first, reporting});
    for (StepRange& range : KindRanges(from, std::min(to, last))) {
      range.statistics = statistics;
      ranges.push_back(std::move(range));
    }
  };
  add(first, timed, false);
  add(timed, after, true);
  add(after, last, false);
  for (StepRange& range : ranges) range.check_numerics = options_.check_numerics;
  return ranges;
}

int64_t Loop::StretchEnd() const {
  // Workers wait for each other where a stretch ends, so there is only one where none need end.
  const bool may_end = options_.stop != nullptr || options_.checkpointer != nullptr ||
                       watch_ != nullptr || options_.losses != nullptr;
  int64_t end = may_end ? std::min(options_.steps, done_ + stretch_) : options_.steps;
  for (const LoopHook* hook : options_.hooks) end = std::min(end, hook->NextCall(done_));
  if (!result_.end.empty()) end = std::min(end, told_);  // where a hook has ended the run
  const bool many_ranges = order_.has_value() || options_.noise_every > 0;
  return many_ranges ? std::min(end, done_ + kMaxRanges) : end;
}

std::map<std::string, double> Loop::HookState() const {
  std::map<std::string, double> state;
  for (const LoopHook* hook : options_.hooks) hook->SaveState(state);
  return state;
}

bool Loop::HooksChangeInSteps() const {
  return std::any_of(options_.hooks.begin(), options_.hooks.end(),
                     [](const LoopHook* hook) { return hook->changes_in_steps(); });
}

StepRange Loop::Snapshot(const std::string& folder) const {
  StepRange range;
  range.program = job_.programs.front().name;
  range.first_step = done_;
  range.checkpoint = folder;
  return range;
}

absl::StatusOr<std::vector<StepRange>> Loop::StretchRanges(int64_t& end) {
  if (options_.checkpointer == nullptr) return Ranges(done_, end);
  const std::optional<int64_t> due = options_.checkpointer->Due(done_, end);
  if (!due.has_value()) return Ranges(done_, end);
  if (*due > done_ && HooksChangeInSteps()) {
    // The state to be saved is that after these steps: the next stretch begins with the checkpoint.
    end = *due;
    return Ranges(done_, end);
  }
  // One in a stretch.
  end = std::min(end, options_.checkpointer->DueAfter(*due));
  WEFT_ASSIGN_OR_RETURN(const std::string folder,
                        options_.checkpointer->Begin(coordinator_, *due, HookState()));
  if (folder.empty()) return Ranges(done_, end);
  std::vector<StepRange> ranges = Ranges(done_, *due);
  if (ranges.empty()) ranges.push_back(Snapshot(folder));
  ranges.back().checkpoint = folder;
  for (StepRange& range : Ranges(*due, end)) ranges.push_back(std::move(range));
  return ranges;
}

void Loop::TakeTurn(int64_t step, TrainProgress& done) {
  const Turn turn = order_->At(step);
  const PreparedUpdate& update = job_.updates[turn.update];
  done.update = update.name;
  done.samples = update.data->batch_of(turn.step);
  done.length = update.data->length_of(turn.step);
  done.learning_rate = update.learning_rate * RateFactor(update.schedule, turn.step);
  result_.last_losses[update.name] = done.loss;
}

void Loop::Take(const StepReport& report, int64_t step, const std::string& program) {
  first_step_.reset();
  if (step < told_) return;  // it is done again, after a loss
  told_ = step + 1;
  TrainProgress done = ProgressOf(report, *job_.data);
  done.step = step;
  done.program = program;
  done.learning_rate = job_.learning_rate * RateFactor(job_.schedule, report.step);
  if (order_.has_value()) TakeTurn(step, done);
  result_.last_loss = done.loss;
  result_.loss_scale = done.loss_scale;
  result_.skipped_steps = done.skipped_steps;
  for (const auto& [name, value] : report.values) {
    if (absl::StartsWith(name, kGradientPrefix)) {
      result_.gradients[name.substr(sizeof(kGradientPrefix) - 1)] = value;
    }
  }
  progress_(done);
}

void Loop::TakeOf(const std::vector<StepRange>& ranges, const StepReport& report, int64_t index) {
  int64_t before = 0;
  auto range = ranges.begin();
  for (; index >= before + range->count; ++range) before += range->count;
  Take(report, done_ + index, range->program);
}

std::map<std::string, double> Loop::Note() const {
  std::map<std::string, double> note = HookState();
  note[kJobStepNote] = static_cast<double>(done_);
  return note;
}

absl::Status Loop::TakeKept() {
  const std::vector<StepReport>& reports = options_.kept_reports;
  if (reports.empty()) return absl::OkStatus();
  const int64_t end = done_ + static_cast<int64_t>(reports.size());
  const std::vector<StepRange> ranges = Ranges(done_, end);
  {
    MutexLock lock(mutex_);
    int64_t index = 0;
    for (const StepReport& report : reports) TakeOf(ranges, report, index++);
  }
  done_ = run_begin_ = end;
  return CallHooks();
}

absl::Status Loop::RunRanges(const std::vector<StepRange>& given) {
  run_begin_ = done_;
  taken_ = 0;
  own_run_ = coordinator_.runs() + 1;
  for (LoopHook* const hook : options_.hooks) hook->BeforeStretch();
  std::vector<StepRange> ranges = given;
  if (!ranges.empty()) ranges.front().note = Note();
  const auto report = [&](const StepReport& done) {
    MutexLock lock(mutex_);
    TakeOf(ranges, done, taken_++);
  };
  if (watch_ == nullptr) return coordinator_.RunSteps(ranges, report);
  return coordinator_.RunSteps(ranges, report, [this](int rank, const StepReport& done) {
    MutexLock lock(mutex_);
    watch_->Observe(rank, done);
  });
}

absl::Status Loop::GoOn(const absl::Status& loss, const std::vector<StepRange>& ranges) {
  if (coordinator_.runs() != own_run_) {
    // A hook has run other steps since: those of the job are done.
    run_begin_ = done_;
    taken_ = 0;
  }
  const auto went_on = options_.losses->GoOn(coordinator_, loss, run_begin_, taken_);
  if (!went_on.ok()) {
    gave_up_ = true;
    return went_on.status();
  }
  const SettledStep& settled = went_on->settled;
  const int64_t stands = went_on->back_to.value_or(run_begin_ + settled.steps);
  // The first of them may be kept no more.
  int64_t index = settled.steps - static_cast<int64_t>(settled.reports.size());
  for (const StepReport& report : settled.reports) {
    if (run_begin_ + index < stands) TakeOf(ranges, report, index);
    ++index;
  }
  if (options_.checkpointer != nullptr) {
    options_.checkpointer->GiveUp("a worker that had a part of it is lost");
  }
  done_ = stands;
  MembersChanged();
  return absl::OkStatus();
}

void Loop::MembersChanged() {
  watch_ = coordinator_.size() > 1 ? options_.watch : nullptr;
  if (options_.watch != nullptr) options_.watch->MembersChanged();
  kind_ = kTrainingSteps;
  stretch_ = 1;
  run_begin_ = done_;
  taken_ = 0;
}

absl::Status Loop::ChangeMembers() {
  LossHandler* const losses = options_.losses;
  const bool wants =
      losses != nullptr ? losses->wants_change(coordinator_) : coordinator_.has_leaving();
  if (!wants) return absl::OkStatus();
  if (losses != nullptr) {
    // What workers still write would be lost with the job that they leave.
    if (options_.checkpointer != nullptr) {
      WEFT_RETURN_IF_ERROR(options_.checkpointer->Poll(coordinator_, /*wait=*/true));
    }
    const absl::StatusOr<bool> changed = losses->ChangeMembers(coordinator_, done_);
    gave_up_ = gave_up_ || !changed.ok();
    WEFT_RETURN_IF_ERROR(changed.status());
    if (*changed) {
      MembersChanged();
      return absl::OkStatus();
    }
  }
  result_.stopped = true;
  return absl::OkStatus();
}

absl::Status Loop::RunStretch(const std::vector<StepRange>& ranges, int64_t end) {
  const LoggedPhase phase(absl::StrCat("steps ", done_, " to ", end), LogLevel::kDebug);
  const int64_t begin = clock_.MonotonicNanos();
  const absl::Status run = RunRanges(ranges);
  if (MayGoOn(run)) return GoOn(run, ranges);
  WEFT_RETURN_IF_ERROR(run);
  const int64_t steps = end - done_;
  const double seconds = static_cast<double>(clock_.MonotonicNanos() - begin) * 1e-9;
  const double fitting = seconds > 0 ? static_cast<double>(steps) * kStretchSeconds / seconds : 0;
  const int64_t max_stretch = kStretchGrowth * std::max(steps, stretch_);
  stretch_ = static_cast<int64_t>(std::clamp(fitting, 1.0, static_cast<double>(max_stretch)));
  done_ = end;
  return absl::OkStatus();
}

absl::Status Loop::CallHooks() {
  for (size_t i = 0; i < options_.hooks.size();) {
    LoopHook* const hook = options_.hooks[i];
    // Steps that are done again after a loss have the results that they had.
    if (called_[i] < done_ && hook->NextCall(done_ - 1) == done_) {
      const int64_t at = done_;
      const absl::StatusOr<std::string> end = hook->Call(coordinator_, done_);
      if (!end.ok()) {
        WEFT_RETURN_IF_ERROR(Survive(end.status()));
        if (done_ != at) return absl::OkStatus();  // when the job is here again
        continue;                                  // once more, on the workers that are left
      }
      called_[i] = done_;
      if (result_.end.empty()) result_.end = *end;
    }
    ++i;
  }
  return absl::OkStatus();
}

absl::Status Loop::SaveLast() {
  Checkpointer* const checkpointer = options_.checkpointer;
  if (checkpointer == nullptr) return absl::OkStatus();
  const int64_t at = done_;
  while (done_ == at && checkpointer->last_step() < done_) {
    WEFT_ASSIGN_OR_RETURN(const std::string folder,
                          checkpointer->Begin(coordinator_, done_, HookState()));
    if (!folder.empty()) WEFT_RETURN_IF_ERROR(RunStretch({Snapshot(folder)}, done_));
  }
  return checkpointer->Poll(coordinator_, /*wait=*/true);
}

absl::Status Loop::Survive(const absl::Status& error) {
  return MayGoOn(error) ? GoOn(error, {}) : error;
}

absl::Status Loop::RunNext() {
  WEFT_RETURN_IF_ERROR(ChangeMembers());
  if (result_.stopped) return absl::OkStatus();
  if (watch_ != nullptr) {
    WEFT_ASSIGN_OR_RETURN(kind_, watch_->ChooseProgram(coordinator_, done_));
  }
  const int64_t before = done_;
  int64_t end = StretchEnd();
  WEFT_ASSIGN_OR_RETURN(const std::vector<StepRange> ranges, StretchRanges(end));
  WEFT_RETURN_IF_ERROR(RunStretch(ranges, end));
  if (done_ > before) WEFT_RETURN_IF_ERROR(CallHooks());
  if (options_.checkpointer == nullptr) return absl::OkStatus();
  return options_.checkpointer->Poll(coordinator_, /*wait=*/false);
}

absl::Status Loop::End() {
  for (LoopHook* const hook : options_.hooks) {
    WEFT_RETURN_IF_ERROR(hook->AtEnd(coordinator_, done_));
  }
  WEFT_RETURN_IF_ERROR(SaveLast());
  result_.steps = done_;
  WEFT_ASSIGN_OR_RETURN(result_.memory, coordinator_.AskAll(MemoryRequest{}));
  auto parameters = ReadTrained(coordinator_, job_);
  if (!parameters.ok()) return AfterSteps(parameters.status());
  result_.parameters = *std::move(parameters);
  auto averages = ReadAverages(coordinator_, job_);
  if (!averages.ok()) return AfterSteps(averages.status());
  result_.averages = *std::move(averages);
  return absl::OkStatus();
}

absl::StatusOr<TrainResult> Loop::Run() {
  WEFT_RETURN_IF_ERROR(TakeKept());
  if (done_ < options_.steps) first_step_.emplace("first step");
  while (true) {
    while (!result_.stopped && done_ < (result_.end.empty() ? options_.steps : told_)) {
      if (options_.stop != nullptr && options_.stop()) {
        result_.stopped = true;
        break;
      }
      const absl::Status ran = RunNext();
      if (!ran.ok()) WEFT_RETURN_IF_ERROR(Survive(ran));
    }
    // A loss may take the state back to an earlier step.
    const int64_t at = done_;
    const absl::Status ended = End();
    if (!ended.ok()) {
      WEFT_RETURN_IF_ERROR(Survive(ended));
    } else if (done_ == at) {
      return std::move(result_);
    }
  }
}

}  // namespace

absl::StatusOr<TrainResult> Train(Coordinator& coordinator, const PreparedJob& job,
                                  const TrainOptions& options,
                                  const std::function<void(const TrainProgress&)>& progress) {
  return Loop(coordinator, job, options, progress).Run();
}

namespace {

// Who reads trained values keeps them: none that is not finite.
absl::Status CheckFinite(const std::map<std::string, Tensor>& values) {
  for (const auto& [name, value] : values) {
    WEFT_RETURN_IF_ERROR(CheckVariableFinite(name, value));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::map<std::string, Tensor>> ReadTrained(Coordinator& coordinator,
                                                          const PreparedJob& job) {
  WEFT_ASSIGN_OR_RETURN(auto values, coordinator.ReadVariables(TrainedNames(job)));
  WEFT_RETURN_IF_ERROR(CheckFinite(values));
  return values;
}

absl::StatusOr<std::map<std::string, Tensor>> ReadAverages(Coordinator& coordinator,
                                                           const PreparedJob& job) {
  std::vector<std::string> names = TrainedNames(job), stored;
  bool any = false;
  for (const std::string& name : names) {
    const std::string average = AverageOf(job, name);
    any = any || !average.empty();
    stored.push_back(average.empty() ? name : average);
  }
  std::map<std::string, Tensor> averages;
  if (!any) return averages;
  WEFT_ASSIGN_OR_RETURN(const auto values, coordinator.ReadVariables(stored));
  for (size_t i = 0; i < names.size(); ++i) averages[names[i]] = values.at(stored[i]);
  WEFT_RETURN_IF_ERROR(CheckFinite(averages));
  return averages;
}

absl::StatusOr<std::map<std::string, double>> Evaluate(
    Coordinator& coordinator, const PreparedJob& job,
    const std::function<void(const TrainProgress&)>& progress) {
  MetricTotals totals;
  const std::vector<StepRange> ranges =
      StepRanges(*job.data, kEvaluationSteps, 0, job.data->steps_per_epoch(), {});
  WEFT_RETURN_IF_ERROR(coordinator.RunSteps(ranges, [&](const StepReport& report) {
    totals.Add(report.values);
    progress(ProgressOf(report, *job.data));
  }));
  return totals.Values();
}

}  // namespace weft
