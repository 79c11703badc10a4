#include "tools/jobs/batch_choice.h"

#include <algorithm>
#include <ostream>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "ops/defs/optimizer/optimizer.h"
#include "platform/status.h"
#include "platform/status_macros.h"
#include "tools/console/exit_code.h"
#include "tools/jobs/training_trial.h"
#include "tools/jobs/worker_group.h"
#include "training/job/job.h"
#include "training/job/job_search.h"
#include "training/job/trainer.h"
#include "training/scaling/batch_rule.h"
#include "training/scaling/noise_scale.h"

namespace weft {
namespace {

// Names in the flags of a job's record.
constexpr char kChosenBatch[] = "chosen batch";
constexpr char kChosenFactor[] = "chosen rate factor";
constexpr char kChosenWarmup[] = "chosen warm-up";
constexpr char kChosenFrom[] = "measured noise scale";

// The flag that errors are about.
constexpr char kFlag[] = "--batch auto";

// What the steps that measure have otherwise.
TrainingSpec MeasuringTraining(const TrainingSpec& given) {
  TrainingSpec training = given;
  training.measure_noise = true;
  training.report_gradients = false;
  training.schedule = {};
  training.schedule.total = kMaxMeasuringSteps;
  return training;
}

JobSpec MeasuringSpec(const JobSpec& given) {
  JobSpec spec = given;
  spec.checkpoints = false;
  spec.measures_only = true;
  // Each worker may be a replica.
  const int wanted =
      std::max(kMeasuringMicroBatches, static_cast<int>(spec.cluster.workers.size()));
  if (!spec.search.keep_micro_batches && spec.plan.micro_batches < wanted) {
    spec.plan.micro_batches = wanted;
    spec.search.keep_micro_batches = true;
  }
  return spec;
}

// Why a job cannot be prepared to measure, as where nodes mix the samples of a batch that is cut.
// `training`: that it was to measure with.
absl::Status WhyNotMeasured(const UnplannedJob& job, const TrainingSpec& training,
                            const std::shared_ptr<const DataSet>& data, const absl::Status& error) {
  TrainingSpec plain = training;
  plain.measure_noise = false;
  const auto without = PrepareTraining(job.model, plain, job.spec, data);
  if (!without.ok()) return without.status();
  return absl::Status(error.code(), absl::StrCat(kFlag, ": ", std::string(error.message()),
                                                 "; or give --batch N, which measures nothing"));
}

absl::StatusOr<NoiseAverage> Measure(const TrainFlags& flags, const UnplannedJob& job,
                                     const std::shared_ptr<const DataSet>& data, int64_t steps,
                                     Console& console) {
  const JobSpec spec = MeasuringSpec(job.spec);
  const TrainingSpec training = MeasuringTraining(job.training);
  WEFT_RETURN_IF_ERROR(CheckModelAndData(job.model, training, *data));
  auto prepared = PrepareTraining(job.model, training, spec, data);
  if (!prepared.ok()) {
    return WithExitCode(WhyNotMeasured(job, training, data, prepared.status()), ExitCode::kPlan);
  }
  *console.err << "batch  the noise scale is measured in " << steps << " steps of "
               << data->spec().batch << " samples, " << prepared->plan.mesh.ToString()
               << "; their weights are thrown away\n"
               << std::flush;
  WEFT_ASSIGN_OR_RETURN(const std::unique_ptr<WorkerGroup> workers,
                        WorkerGroup::Start(flags.job(), spec, *prepared, console));
  NoiseAverage noise;
  TrainOptions options;
  options.steps = steps;
  options.noise_every = 1;
  const auto result =
      Train(workers->coordinator(), *prepared, options, [&noise, steps](const TrainProgress& done) {
        if (done.noise.has_value() && 2 * done.step >= steps) {
          noise.Add(*done.noise);
        }
      });
  if (!result.ok()) return workers->Explain(Annotate(result.status(), kFlag));
  return noise;
}

// ResourceExhausted where no worker can have its share.
absl::Status CheckBatchFits(const TrainFlags& flags, const UnplannedJob& job, int64_t batch) {
  WEFT_ASSIGN_OR_RETURN(const auto data, flags.job().OpenData(flags.shuffles(), batch));
  TrainingSpec training = job.training;
  training.report_gradients = false;
  // How long the run is does not matter to its memory, but a schedule is longer than its warm-up.
  if (training.schedule.total == 0) {
    training.schedule.total = training.schedule.warmup + kMaxMeasuringSteps;
  }
  WEFT_ASSIGN_OR_RETURN(const PreparedJob prepared,
                        PrepareTraining(job.model, training, job.spec, data));
  WEFT_ASSIGN_OR_RETURN(const CostModel costs, CostsOf(job.spec, prepared.plan.model_digest));
  return CheckPlanFits(prepared, job.spec, costs);
}

BatchQuestion QuestionOf(const TrainFlags& flags, const UnplannedJob& job, const DataSet& data,
                         double noise_scale) {
  BatchQuestion question;
  question.noise_scale = noise_scale;
  question.base_batch = data.spec().batch;
  const OptimizerKind* const kind = FindOptimizer(job.training.optimizer.kind);
  question.rate_exponent = RateExponent(kind != nullptr && kind->is_linear);
  question.samples = data.samples();
  question.max_batch = flags.job().auto_batch()->max;
  question.min_batch = std::max<int64_t>(job.spec.plan.micro_batches, job.spec.plan.mesh.data);
  question.epochs = flags.epochs();
  if (flags.epochs() == 0) question.steps = flags.Steps(data);
  return question;
}

absl::StatusOr<BatchProposal> FittingProposal(const TrainFlags& flags, const UnplannedJob& job,
                                              const BatchQuestion& question) {
  auto proposal = ProposeFittingBatch(
      question, [&](int64_t batch) { return CheckBatchFits(flags, job, batch); });
  if (!proposal.ok()) return WithExitCode(Annotate(proposal.status(), kFlag), ExitCode::kPlan);
  return proposal;
}

std::string ChoiceText(const BatchChoice& choice, const TrainingSpec& training) {
  const double rate = training.optimizer.learning_rate;
  std::string text =
      absl::StrFormat("%d samples, learning rate %.4g (%.4g times %.4g)", choice.batch,
                      rate * choice.rate_factor, choice.rate_factor, rate);
  if (choice.warmup > 0 && training.schedule.warmup == 0) {
    absl::StrAppend(&text, ", warm-up of ", choice.warmup, " steps");
  }
  return text;
}

double NumberOf(const FlagRecord& flags, const char* name) {
  double number = 0;
  return absl::SimpleAtod(TextOfFlag(flags, name), &number) ? number : 0;
}

}  // namespace

absl::StatusOr<BatchChoice> ChooseBatch(const TrainFlags& flags, const UnplannedJob& job,
                                        const std::shared_ptr<const DataSet>& data,
                                        const FlagRecord& saved_flags, Console& console) {
  if (const auto saved = RecordedChoice(saved_flags)) {
    *console.err << "batch  " << ChoiceText(*saved, job.training) << ", as the checkpoint has it\n";
    return *saved;
  }
  if (job.training.model_training_info) {
    return UsageError(
        "--batch auto measures between micro-batches, and --optimizer model takes "
        "whole batches; give --batch N");
  }
  BatchChoice choice;
  choice.batch = data->spec().batch;
  const int64_t run = flags.Steps(*data);
  const int64_t steps = std::clamp(run / 10, kMinMeasuringSteps, kMaxMeasuringSteps);
  WEFT_ASSIGN_OR_RETURN(const NoiseAverage noise, Measure(flags, job, data, steps, console));
  const std::optional<double> scale = noise.scale();
  if (!scale.has_value()) {
    *console.err << "batch  " << choice.batch << " samples stay: " << NoiseText(noise, choice.batch)
                 << "\n";
    return choice;
  }
  const BatchQuestion question = QuestionOf(flags, job, *data, *scale);
  WEFT_ASSIGN_OR_RETURN(const BatchProposal proposal, FittingProposal(flags, job, question));
  choice = {proposal.batch, proposal.rate_factor, proposal.warmup, *scale};
  *console.err << absl::StrFormat(
      "batch  noise scale %.4g samples, from %d measurements: gradient variance %.4g per sample, "
      "gradient square %.4g\n",
      *scale, noise.count(), noise.mean().variance, noise.mean().square);
  *console.err << "batch  " << ChoiceText(choice, job.training) << "; limited by " << proposal.limit
               << "\n"
               << std::flush;
  return choice;
}

void ApplyChoice(const BatchChoice& choice, TrainingSpec& training) {
  training.optimizer.learning_rate *= choice.rate_factor;
  for (auto& [pattern, rate] : training.groups.learning_rates) rate *= choice.rate_factor;
  // The last rate was given as a number of its own; it is never above the first.
  training.schedule.end = std::min(1.0, training.schedule.end / choice.rate_factor);
  RateSchedule& schedule = training.schedule;
  // One cycle begins with a rise of its own.
  if (schedule.warmup > 0 || schedule.kind == "one_cycle") return;
  // A schedule whose length was given needs steps behind it.
  const int64_t room = schedule.total > 0 ? schedule.total - 1 : choice.warmup;
  schedule.warmup = std::min(choice.warmup, room);
}

void RecordChoice(const BatchChoice& choice, FlagRecord& flags) {
  flags[kChosenBatch] = absl::StrCat(choice.batch);
  flags[kChosenFactor] = absl::StrFormat("%.17g", choice.rate_factor);
  flags[kChosenWarmup] = absl::StrCat(choice.warmup);
  flags[kChosenFrom] = absl::StrFormat("%.17g", choice.noise_scale);
}

std::optional<BatchChoice> RecordedChoice(const FlagRecord& flags) {
  BatchChoice choice;
  choice.batch = static_cast<int64_t>(NumberOf(flags, kChosenBatch));
  choice.rate_factor = NumberOf(flags, kChosenFactor);
  choice.warmup = static_cast<int64_t>(NumberOf(flags, kChosenWarmup));
  choice.noise_scale = NumberOf(flags, kChosenFrom);
  if (choice.batch < 1 || !(choice.rate_factor > 0)) return std::nullopt;
  return choice;
}

}  // namespace weft
