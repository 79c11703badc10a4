#include "tools/jobs/training_job.h"

#include <algorithm>
#include <ostream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "onnx_import/edit/inference_form.h"
#include "onnx_import/edit/quantized_form.h"
#include "onnx_import/training_info.h"
#include "platform/file_system.h"
#include "platform/log.h"
#include "platform/status.h"
#include "platform/status_macros.h"
#include "tools/console/exit_code.h"
#include "tools/jobs/cluster_devices.h"
#include "tools/jobs/training_trial.h"
#include "tools/reports/model_plan.h"
#include "tools/reports/tie_text.h"
#include "tools/reports/training_report.h"
#include "training/adaptation/rebalancer.h"
#include "training/job/job_search.h"
#include "training/recovery/job_recovery.h"
#include "training/recovery/kept_state.h"

namespace weft {
namespace {

void NoteTrainingInfo(const TrainingJob& job, const JobFlags& flags, Console& console) {
  const TrainingInfo info = TrainingInfoOf(job.model.file);
  if (info.has_algorithm && !job.training.model_training_info) {
    *console.err << "note: the model has a training algorithm of its own: --optimizer model\n";
  }
  if (info.has_initialization && !flags.initializes()) {
    *console.err << "note: the model says how to make its initial weights: --initialize\n";
  }
}

// A model that cannot be written so is refused before it trains.
absl::Status TakeExportMode(ExportMode mode, TrainingJob& job) {
  job.export_mode = mode;
  if (mode != ExportMode::kInference) return absl::OkStatus();
  return WithExitCode(Annotate(CheckInferenceForm(job.model.file), "--export-mode inference"),
                      ExitCode::kModel);
}

// So is one that cannot be written with codes in it.
absl::Status CheckQuantizedExport(const TrainingJob& job) {
  if (job.quantization.empty()) return absl::OkStatus();
  const int64_t code_bytes = job.quantization.CodeBytes(job.model.graph);
  return WithExitCode(
      Annotate(CheckQuantizedForm(job.model.file, job.quantization.opset(), code_bytes), "--qat"),
      ExitCode::kModel);
}

// The job begins with what is in the file, wherever it lies.
void RecordAdaptersIn(const ModelChanges& changes, FlagRecord& given_flags) {
  const auto file = given_flags.find("--adapters-in");
  if (file != given_flags.end()) file->second.content = changes.adapters_in;
}

absl::StatusOr<PreparedJob> PreparePrograms(const TrainingJob& job,
                                            const std::shared_ptr<const DataSet>& data) {
  WEFT_RETURN_IF_ERROR(CheckModelAndData(job.model.graph, job.training, *data));
  auto prepared = PrepareTraining(job.model.graph, job.training, job.spec, data);
  if (!prepared.ok()) {
    return WithExitCode(ExplainedByOperators(job.model.graph, prepared.status()), ExitCode::kPlan);
  }
  return prepared;
}

// The updates of --alternate, each with its parameters and its samples.
absl::StatusOr<std::vector<std::shared_ptr<const DataSet>>> TakeUpdates(const TrainFlags& flags,
                                                                        TrainingJob& job) {
  WEFT_ASSIGN_OR_RETURN(job.updates, flags.job().Updates(job.training));
  auto frozen = AssignParameters(job.model.graph, job.updates);
  if (!frozen.ok()) {
    return UsageError(absl::StrCat("--alternate: ", std::string(frozen.status().message())));
  }
  job.frozen = *std::move(frozen);
  WEFT_ASSIGN_OR_RETURN(const DataSpec data, flags.job().TrainingData(flags.shuffles()));
  auto opened = OpenUpdateData(RealFileSystem(), job.model.graph, job.updates, data);
  if (!opened.ok()) return WithExitCode(opened.status(), ExitCode::kData);
  return opened;
}

std::vector<PreparedUpdate> TurnsOf(const std::vector<UpdateSpec>& updates,
                                    const std::vector<std::shared_ptr<const DataSet>>& data) {
  std::vector<PreparedUpdate> turns;
  for (size_t i = 0; i < updates.size(); ++i) {
    turns.emplace_back().steps = updates[i].steps;
    turns.back().data = data[i];
  }
  return turns;
}

// One line; "" where all parameters are of some update.
std::string FrozenText(const std::vector<std::string>& frozen) {
  if (frozen.empty()) return "";
  constexpr size_t kShown = 5;
  const std::vector<std::string> shown(frozen.begin(),
                                       frozen.begin() + std::min(frozen.size(), kShown));
  return absl::StrCat(
      "note   no update trains ", absl::StrJoin(shown, ", "),
      frozen.size() > kShown ? absl::StrCat(" and ", frozen.size() - kShown, " more") : "", "\n");
}

absl::StatusOr<PreparedJob> PrepareInTurn(const TrainingJob& job,
                                          const std::vector<std::shared_ptr<const DataSet>>& data) {
  auto prepared = PrepareAlternation(job.model.graph, job.updates, data, job.spec, job.steps);
  if (!prepared.ok()) {
    return WithExitCode(ExplainedByOperators(job.model.graph, prepared.status()), ExitCode::kPlan);
  }
  return prepared;
}

// Of a plan for other nodes, so that there may be other things to say.
void AddEvaluationNotes(const PreparedJob* evaluation, PreparedJob& job) {
  if (evaluation == nullptr) return;
  for (const std::string& note : evaluation->notes) {
    const bool is_said = std::find(job.notes.begin(), job.notes.end(), note) != job.notes.end();
    if (!is_said) job.notes.push_back(absl::StrCat("evaluation: ", note));
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<TrainingJob>> PrepareTrainingJob(const TrainFlags& flags,
                                                                FlagRecord given_flags,
                                                                JobLoop& loop, Console& console) {
  auto job = std::make_unique<TrainingJob>();
  WEFT_ASSIGN_OR_RETURN(job->training, flags.Training());
  LoggedPhase reading("import");
  ModelChanges changes;
  WEFT_ASSIGN_OR_RETURN(job->model,
                        flags.job().LoadModel(&changes, RepairOnData(flags, job->repair)));
  RecordAdaptersIn(changes, given_flags);
  job->ties = std::move(changes.ties);
  job->decisions = std::move(changes.decisions);
  job->adapters = std::move(changes.adapters);
  job->quantization = std::move(changes.quantization);
  WEFT_RETURN_IF_ERROR(flags.job().TakeLoss(job->model.graph, job->training.loss));
  reading.Note(job->model.graph.num_nodes(), " nodes");
  reading.End();
  WEFT_RETURN_IF_ERROR(flags.CheckAdapters(!job->adapters.empty()));
  NoteTrainingInfo(*job, flags.job(), console);
  WEFT_RETURN_IF_ERROR(TakeExportMode(flags.export_mode(), *job));
  WEFT_RETURN_IF_ERROR(CheckQuantizedExport(*job));
  LoggedPhase open("data");
  const bool alternates = flags.job().alternates();
  std::vector<std::shared_ptr<const DataSet>> data(1);
  if (alternates) {
    WEFT_ASSIGN_OR_RETURN(data, TakeUpdates(flags, *job));
  } else {
    WEFT_ASSIGN_OR_RETURN(data[0], flags.job().OpenData(flags.shuffles()));
  }
  open.Note(data[0]->samples(), " samples");
  open.End();
  if (!flags.loop().listen().empty() && !flags.job().starts_processes() &&
      !flags.job().connects()) {
    return UsageError("--listen needs workers that others can reach: give --local N or --cluster");
  }
  WEFT_ASSIGN_OR_RETURN(job->spec, flags.job().Job());
  WEFT_RETURN_IF_ERROR(CheckClusterDevices(job->spec.cluster));
  WEFT_RETURN_IF_ERROR(UseModelPlan(job->model, flags.job(), console, job->spec));
  WEFT_RETURN_IF_ERROR(loop.OpenFolder());
  job->spec.checkpoints = flags.loop().saves();
  if (flags.job().auto_batch().has_value()) {
    WEFT_ASSIGN_OR_RETURN(job->choice,
                          ChooseBatch(flags, {job->model.graph, job->training, job->spec}, data[0],
                                      loop.saved_flags(), console));
    WEFT_ASSIGN_OR_RETURN(data[0], flags.job().OpenData(flags.shuffles(), job->choice->batch));
    ApplyChoice(*job->choice, job->training);
    RecordChoice(*job->choice, given_flags);
  }
  job->noise_every = flags.noise_every();
  job->steps = alternates ? flags.Steps(TurnsOf(job->updates, data)) : flags.Steps(*data[0]);
  RateSchedule& schedule = job->training.schedule;
  if (schedule.total == 0 && !alternates) schedule.total = job->steps;
  loop.AdoptPlan(job->spec);
  job->spec.plan.commits = flags.loop().continues();
  WEFT_ASSIGN_OR_RETURN(job->job,
                        alternates ? PrepareInTurn(*job, data) : PreparePrograms(*job, data[0]));
  if (alternates && schedule.needs_total() && schedule.total == 0) schedule.total = job->steps;
  if (schedule.needs_total()) given_flags["--schedule-steps"] = absl::StrCat(schedule.total);
  WEFT_RETURN_IF_ERROR(
      loop.CheckSame(job->model, job->job, job->decisions, std::move(given_flags)));
  WEFT_RETURN_IF_ERROR(loop.PrepareEvaluation(job->model, job->training.loss, job->job, job->spec));
  AddEvaluationNotes(loop.evaluation(), job->job);
  const bool may_grow = !flags.loop().listen().empty();
  const std::string why_not = JobRecovery::WhyNot(job->job, job->spec, may_grow);
  if (may_grow && !why_not.empty()) {
    return UsageError(absl::StrCat("--listen: no worker can join this job: ", why_not));
  }
  job->spec.commits = flags.loop().continues() && why_not.empty();
  const bool may_go_back =
      flags.loop().continues() && JobRecovery::WhyNotFromState(job->job, job->spec).empty();
  job->spec.replicate_every = may_go_back ? flags.loop().replicate_every() : 0;
  job->goes_on =
      job->spec.commits || (may_go_back && (flags.loop().saves() || job->spec.replicate_every > 0));
  if (!job->spec.commits) {
    for (JobProgram& program : job->job.programs) {
      for (Partition& partition : program.partitions) partition.commits = false;
    }
  }
  return job;
}

void DescribeTrainingJob(const TrainingJob& job, const TrainFlags& flags, Console& console) {
  *console.err << TrainingSetupText({flags.job().model(), job.model.graph, job.adapters,
                                     job.training, job.job, flags.shuffles(), &job.decisions});
  *console.err << job.repair.Text() << Printable(job.quantization.ToString());
  *console.err << Printable(FrozenText(job.frozen));
  *console.err << TiesText(job.ties, job.model.graph);
  if (job.export_mode == ExportMode::kAsImported) {
    *console.err << TrainingModeText(TrainingModeNodesOf(job.model.file));
  }
  if (flags.loop().rebalances()) {
    const std::string why = Rebalancer::WhyNothingMoves(job.job.plan);
    if (!why.empty()) *console.err << "note   --rebalance can do nothing: " << why << "\n";
  }
  if (!job.goes_on && !job.spec.cluster.spares.empty()) {
    *console.err << "note   the cluster's spares do nothing for this job: "
                 << (flags.loop().continues()
                         ? Printable(JobRecovery::WhyNot(job.job, job.spec))
                         : std::string("it ends when it loses a worker (--on-loss stop)"))
                 << "\n";
  }
  if (job.spec.replicate_every > 0) {
    *console.err << "copies of each worker's state, every "
                 << (job.spec.replicate_every == 1
                         ? std::string("step")
                         : absl::StrCat(job.spec.replicate_every, " steps"))
                 << ", at a worker of "
                 << (job.job.plan.hosts.empty() ? "the same host" : "another host") << "\n";
  }
  if (flags.loop().replicate_every() > 0 && job.spec.replicate_every == 0) {
    const std::string why = JobRecovery::WhyNotFromState(job.job, job.spec);
    *console.err << "note   --replicate can do nothing: "
                 << (why.empty() ? std::string("--on-loss stop ends the run") : Printable(why))
                 << "\n";
  }
  *console.err << Printable(DataNotes(*job.job.data)) << std::flush;
}

absl::StatusOr<std::unique_ptr<WorkerGroup>> StartTrainingJob(const TrainingJob& job,
                                                              const TrainFlags& flags,
                                                              JobLoop& loop, Console& console,
                                                              bool asks_spares) {
  WEFT_ASSIGN_OR_RETURN(const CostModel costs, CostsOf(job.spec, job.job.plan.model_digest));
  WEFT_RETURN_IF_ERROR(CheckPlanFits(job.job, job.spec, costs));
  const bool takes_over = flags.loop().resumes() && flags.job().connects();
  WEFT_ASSIGN_OR_RETURN(
      std::unique_ptr<WorkerGroup> group,
      WorkerGroup::Launch(flags.job(), job.spec.cluster, job.job.plan.workers, console,
                          {flags.loop().detection(), !flags.loop().listen().empty(),
                           takes_over ? kAttendedPatience : absl::ZeroDuration()}));
  if (takes_over && asks_spares && job.goes_on) {
    WEFT_RETURN_IF_ERROR(group->AddFurther(job.spec.cluster, flags.loop().listen(), console));
  }
  const std::vector<WorkerClient*> clients = group->coordinator().clients();
  const std::vector<WorkerClient*> spares = group->further_clients();
  std::vector<WorkerClient*> all = clients;
  all.insert(all.end(), spares.begin(), spares.end());
  JobStart start;
  start.epoch = loop.Claim(all);
  start.job_digest = loop.job_digest();
  if (takes_over) {
    auto kept = FindKeptState(clients, job.job, loop.evaluation(), start.job_digest, spares);
    if (!kept.ok()) return group->Explain(kept.status());
    loop.TakeOver(*std::move(kept), static_cast<int>(clients.size()), start);
  }
  const absl::Status begun = group->Begin(job.spec, job.job, console, loop.evaluation(), start);
  if (!begun.ok()) return AddAlternatives(begun, job.job, job.spec, costs);
  return group;
}

}  // namespace weft
