#include "tools/jobs/job_loop.h"

#include <algorithm>
#include <filesystem>
#include <ostream>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "distributed/coordinator_epoch.h"
#include "placement/files/plan_file.h"
#include "platform/byte_quantity.h"
#include "platform/checksum.h"
#include "platform/clock.h"
#include "platform/file_system.h"
#include "platform/folders.h"
#include "platform/status.h"
#include "platform/status_macros.h"
#include "tools/console/exit_code.h"
#include "training/job/resume.h"

namespace weft {
namespace {

// Whether both compute the same sums in the same order.
bool SameBits(const Plan& a, const Plan& b) {
  const bool same_parts = a.shares == b.shares || (a.strict && b.strict);
  return a.mesh == b.mesh && a.micro_batches == b.micro_batches && same_parts &&
         a.reduction == b.reduction && a.strict == b.strict && a.tf32 == b.tf32 &&
         a.host_ops == b.host_ops && a.threads_per_worker == b.threads_per_worker &&
         a.rank_threads == b.rank_threads && a.zero == b.zero && a.bucket_bytes == b.bucket_bytes &&
         a.schedule == b.schedule && a.chunks == b.chunks && a.stages == b.stages &&
         a.recompute == b.recompute && a.tensor_shardings == b.tensor_shardings;
}

// The shares that a job of this plan has come to, unless others are asked for.
void AdoptShares(const Plan& saved, bool keep_micro_batches, Plan& plan) {
  const bool fits = plan.mesh == Mesh() || plan.mesh == saved.mesh;
  if (saved.shares.empty() || !plan.shares.empty() || !fits) return;
  plan.mesh = saved.mesh;
  plan.shares = saved.shares;
  if (!plan.strict && !keep_micro_batches) plan.micro_batches = saved.micro_batches;
}

// "dp=2 x tp=1 x pp=1, shares 3:1".
std::string PlanText(const Plan& plan) {
  return absl::StrCat(plan.mesh.ToString(), plan.shares.empty() ? "" : ", shares ",
                      absl::StrJoin(plan.shares, ":"));
}

// Who trains: the decisions, and what came after them (adapters freeze what they stand beside).
void RecordParameters(const Graph& graph, const std::vector<ParameterDecision>& decisions,
                      CheckpointJob& job) {
  for (const Variable& variable : graph.variables()) {
    if (variable.trainable && variable.slot_of.empty()) job.trained.push_back(variable.name);
  }
  const std::set<std::string> trained(job.trained.begin(), job.trained.end());
  for (const ParameterDecision& decision : decisions) {
    if (trained.contains(decision.name)) continue;
    job.untrained[decision.name] = decision.trainable ? "frozen by --lora" : decision.reason;
  }
}

// The data of the job as its record has it: that of the first update, and by name that of others.
std::string DataRecord(const PreparedJob& job) {
  const std::string first = job.data->spec().ToJson();
  if (job.updates.size() < 2) return first;
  nlohmann::json record = nlohmann::json::parse(first, nullptr, /*allow_exceptions=*/false);
  for (size_t i = 1; i < job.updates.size(); ++i) {
    const PreparedUpdate& update = job.updates[i];
    nlohmann::json own = nlohmann::json::parse(update.data->spec().ToJson(), nullptr, false);
    // How the files are read changes no sample.
    own.erase("prefetch");
    own.erase("reader_threads");
    record[absl::StrCat("update ", update.name)] = std::move(own);
  }
  return record.dump();
}

double PercentOf(double part, double whole) { return whole > 0 ? 100 * part / whole : 0; }

}  // namespace

JobLoop::JobLoop(const LoopFlags& flags, Console& console) : flags_(flags), console_(console) {}

void JobLoop::Note(const std::string& text) {
  if (before_text_ != nullptr) before_text_();
  *console_.err << Printable(text) << "\n" << std::flush;
}

absl::Status JobLoop::OpenFolder() {
  if (!flags_.saves()) return absl::OkStatus();
  // Workers may have other working folders.
  std::error_code error;
  const auto root = std::filesystem::absolute(flags_.folder(), error);
  store_.emplace(RealFileSystem(), RealFolders(), error ? flags_.folder() : root.string());
  owner_.emplace(RealFileSystem(), store_->root());
  const auto steps = store_->Steps();
  if (!steps.ok()) return WithExitCode(Annotate(steps.status(), "--checkpoint"), ExitCode::kDisk);
  if (!steps->empty() && !flags_.resumes()) {
    return UsageError(absl::StrCat(
        "--checkpoint ", flags_.folder(), " has checkpoints up to step ", steps->back(),
        "; give --resume to continue from the newest, or another folder"));
  }
  if (flags_.resumes()) {
    std::vector<std::string> notes;
    auto newest = store_->OpenNewest(notes);
    for (const std::string& note : notes) Note(absl::StrCat("warning: ", note));
    if (!newest.ok()) return WithExitCode(Annotate(newest.status(), "--resume"), ExitCode::kDisk);
    checkpoint_ = *std::move(newest);
    Note(
        checkpoint_.has_value()
            ? absl::StrCat("resume step ", checkpoint_->index().step, " of ", checkpoint_->folder())
            : absl::StrCat("resume no checkpoint in ", store_->root(), ": from the beginning"));
  }
  return absl::OkStatus();
}

void JobLoop::CleanUp() {
  const auto removed = store_->CleanUp();
  if (!removed.ok()) {
    Note(absl::StrCat("warning: --checkpoint: ", std::string(removed.status().message()),
                      "; training goes on"));
    return;
  }
  for (const std::string& path : *removed) {
    Note(absl::StrCat("removed ", path, ", which was incomplete"));
  }
}

uint64_t JobLoop::Claim(const std::vector<WorkerClient*>& clients) {
  epoch_ = NextEpoch(clients, owner_.has_value() ? owner_->Epoch() : 0);
  // A folder that is not there yet is claimed when it is made.
  if (owner_.has_value() && RealFileSystem().Exists(store_->root())) ClaimFolder();
  return epoch_;
}

void JobLoop::ClaimFolder() {
  const absl::Status claimed = owner_->Claim(std::max<uint64_t>(epoch_, 1));
  if (claimed.ok()) return;
  Note(absl::StrCat("warning: --checkpoint: ", std::string(claimed.message()),
                    "; the run goes on, but an earlier one of the job that is only stopped would "
                    "not find out from the folder"));
}

uint64_t JobLoop::job_digest() const { return flags_.saves() ? JobDigest(job_) : 0; }

absl::Status JobLoop::CheckOwner() const {
  return owner_.has_value() ? owner_->Check() : absl::OkStatus();
}

void JobLoop::TakeOver(KeptSearch kept, int workers, JobStart& start) {
  const std::string instead = checkpoint_.has_value()
                                  ? absl::StrCat("the checkpoint of step ", checkpoint_step())
                                  : std::string("the beginning");
  if (!kept.why_not.empty()) {
    Note(
        absl::StrCat("note: what the workers keep of the job, whose coordinator was lost, cannot "
                     "be used (",
                     kept.why_not, "): the run goes on from ", instead));
  }
  if (!kept.state.has_value() || kept.state->steps <= checkpoint_step()) return;
  kept_ = std::move(kept.state);
  std::string how = "none of its steps is lost";
  if (kept_->source != nullptr) {
    start.recovers_job_id = kept_->job_id;
    how = absl::StrCat(kept_->source->text(), ", cut anew for this plan");
  } else {
    start.continues_job_id = kept_->job_id;
    start.newcomers = kept_->newcomers;
    start.handovers = kept_->handovers;
  }
  if (!kept_->newcomers.empty()) {
    absl::StrAppend(&how, "; ", kept_->newcomers.size(), " of them take the state of others");
  }
  Note(absl::StrCat("resume step ", kept_->steps, " from the memory of ", workers,
                    " workers, whose coordinator was lost, and not from ", instead, ": ", how));
}

absl::Status JobLoop::MakeFolder() {
  if (!flags_.saves()) return absl::OkStatus();
  absl::Status made = RealFileSystem().CreateDirectories(store_->root());
  // A file that is dropped before it has its name.
  if (made.ok()) {
    made = RealFileSystem().OpenReplacement(absl::StrCat(store_->root(), "/probe")).status();
  }
  if (made.ok()) {
    ClaimFolder();
    CleanUp();  // what another had begun before it lost the folder
  }
  return WithExitCode(Annotate(made, "--checkpoint"), ExitCode::kDisk);
}

void JobLoop::AdoptPlan(JobSpec& spec) const {
  if (!checkpoint_.has_value()) return;
  const auto saved = ParsePlanFile(checkpoint_->index().job.plan, "the checkpoint's plan");
  const int workers = static_cast<int>(spec.cluster.workers.size());
  if (!saved.ok() || saved->mesh.size() > workers) return;
  const bool uses_all = saved->mesh.size() == workers;
  if (!uses_all && !spec.search.may_leave_out) return;
  if (spec.search.wanted) {
    // The plan that was found then: another one might have other bits.
    const Plan given = std::exchange(spec.plan, *saved);
    spec.search.wanted = false;
    spec.plan.model_digest = spec.plan.cluster_digest = 0;
    spec.plan.strict = given.strict;
    spec.plan.tf32 = given.tf32;
    spec.plan.host_ops = given.host_ops;
    spec.plan.uses_cudnn = given.uses_cudnn;
    spec.plan.fuses_nodes = given.fuses_nodes;
    if (given.strict || spec.search.keep_micro_batches) {
      spec.plan.micro_batches = given.micro_batches;
    }
  }
  if (flags_.rebalances()) AdoptShares(*saved, spec.search.keep_micro_batches, spec.plan);
  for (WorkerSpec& worker : spec.cluster.workers) worker.threads = saved->threads_per_worker;
  for (size_t rank = 0; rank < saved->rank_threads.size(); ++rank) {
    const int worker = saved->workers[rank];
    if (worker < workers) spec.cluster.workers[worker].threads = saved->rank_threads[rank];
  }
  spec.plan.threads_per_worker = saved->threads_per_worker;
}

absl::Status JobLoop::PrepareEvaluation(const ImportedModel& model, const LossSpec& loss,
                                        const PreparedJob& job, const JobSpec& spec) {
  if (!flags_.evaluates()) return absl::OkStatus();
  WEFT_ASSIGN_OR_RETURN(auto data, flags_.OpenEvaluationData(job.data->spec()));
  auto evaluation = PrepareEvaluationWithin(job, model.graph, loss, flags_.Metrics(loss), spec,
                                            std::move(data), flags_.evaluates_averages());
  if (!evaluation.ok()) {
    return WithExitCode(Annotate(evaluation.status(), "--eval-every"), ExitCode::kPlan);
  }
  evaluation_ = *std::move(evaluation);
  return absl::OkStatus();
}

absl::Status JobLoop::CheckSame(const ImportedModel& model, const PreparedJob& job,
                                const std::vector<ParameterDecision>& decisions,
                                FlagRecord given_flags) {
  RecordParameters(model.graph, decisions, job_);
  if (!flags_.saves()) return absl::OkStatus();
  const std::string_view bytes = model.file.bytes();
  job_.model_checksum = MappedChecksum(std::as_bytes(std::span(bytes.data(), bytes.size())));
  job_.weights_checksum = WeightsChecksum(job.graph);
  job_.data = DataRecord(job);
  job_.steps_per_epoch = job.data->steps_per_epoch();
  job_.seed = job.data->spec().seed;
  job_.flags = std::move(given_flags);
  job_.workers = job.plan.mesh.size();
  job_.plan = PlanToYaml(job.plan);
  if (!checkpoint_.has_value()) return absl::OkStatus();
  const CheckpointJob& saved = checkpoint_->index().job;
  const std::vector<std::string> differences = JobDifferences(saved, job_);
  if (!differences.empty()) {
    return WithExitCode(
        absl::FailedPreconditionError(absl::StrCat(
            "--resume: this is not the job of ", checkpoint_->folder(), ": ",
            absl::StrJoin(differences, "; "), "; give the same again, or another --checkpoint")),
        ExitCode::kUsage);
  }
  const auto plan = ParsePlanFile(saved.plan, "the checkpoint's plan");
  if (plan.ok() && SameBits(*plan, job.plan)) return absl::OkStatus();
  Note(absl::StrCat("note: the checkpoint's plan was ", plan.ok() ? PlanText(*plan) : "other",
                    ", this one is ", PlanText(job.plan),
                    job.plan.strict ? "" : ": sums may round otherwise"));
  return absl::OkStatus();
}

absl::Status JobLoop::Begin(Coordinator& coordinator, const TrainedModel& model,
                            const PreparedJob& job, const LossSpec& loss,
                            std::function<void()> before_text) {
  before_text_ = std::move(before_text);
  model_ = &model;
  prepared_ = &job;
  if (kept_.has_value()) {
    if (kept_->source != nullptr) {
      WEFT_RETURN_IF_ERROR(Restore(coordinator, job, *kept_->source));
    }
  } else if (checkpoint_.has_value()) {
    WEFT_RETURN_IF_ERROR(Restore(coordinator, job, *checkpoint_));
  }
  if (evaluation_.has_value()) {
    periodic_.emplace(*evaluation_, flags_.Evaluation(*job.data, loss),
                      [this](Coordinator& workers, const Measurement& measured) {
                        return Measured(workers, measured);
                      });
    periodic_->LoadState(saved_state());
  }
  if (store_.has_value()) {
    CheckpointOptions options = flags_.Checkpoints(*job.data);
    options.is_wanted = saves_now_;
    options.may_write = [this] { return CheckOwner(); };
    checkpointer_.emplace(
        *store_, job_, options, checkpoint_step(), RealClock(),
        [this](const std::string& text) { Note(absl::StrCat("warning: ", text)); });
  }
  return absl::OkStatus();
}

void JobLoop::AddTo(TrainOptions& options) {
  options.first_step = first_step();
  if (kept_.has_value()) options.kept_reports = kept_->reports;
  options.check_numerics = flags_.check_numerics();
  if (checkpointer_.has_value()) options.checkpointer = &*checkpointer_;
  if (periodic_.has_value()) options.hooks.push_back(&*periodic_);
}

std::string JobLoop::Distrust(int64_t step) {
  if (!store_.has_value()) return "; there are no checkpoints (--checkpoint)";
  checkpointer_.reset();  // waits for the one that it is about to commit
  const auto aside = store_->SetAsideAfter(step);
  const auto left = aside.ok() ? store_->Steps() : aside.status();
  if (!left.ok()) {
    return absl::StrCat("; remove the checkpoints after step ", step, " of ", store_->root(),
                        " before --resume (", std::string(left.status().message()), ")");
  }
  std::string text;
  if (!aside->empty()) {
    text = absl::StrCat("; the checkpoints after step ", step, " were set aside as *.suspect");
  }
  return left->empty()
             ? absl::StrCat(text, "; no earlier checkpoint is left")
             : absl::StrCat(text, "; --resume goes on from ", store_->PathOf(left->back()));
}

std::function<absl::StatusOr<std::unique_ptr<StateSource>>(int64_t after)> JobLoop::Checkpoints() {
  if (!store_.has_value()) return nullptr;
  return [this](int64_t after) -> absl::StatusOr<std::unique_ptr<StateSource>> {
    // One that is about to get its name may be the newest.
    if (checkpointer_.has_value()) checkpointer_->GiveUp("a worker that had a part of it is lost");
    WEFT_ASSIGN_OR_RETURN(const std::vector<int64_t> steps, store_->Steps());
    if (steps.empty() || steps.back() <= after) return std::unique_ptr<StateSource>();
    std::vector<std::string> notes;
    auto newest = store_->OpenNewest(notes);
    for (const std::string& note : notes) Note(absl::StrCat("warning: ", note));
    WEFT_RETURN_IF_ERROR(newest.status());
    if (!newest->has_value() || (**newest).index().step <= after) {
      return std::unique_ptr<StateSource>();
    }
    return std::unique_ptr<StateSource>(std::make_unique<CheckpointSource>(**std::move(newest)));
  };
}

RebalancerOptions JobLoop::Rebalancing() {
  RebalancerOptions options;
  options.moves = flags_.rebalances();
  options.say = [this](const std::string& line) { Note(line); };
  options.on_plan = [this](const Plan& plan) {
    if (checkpointer_.has_value()) checkpointer_->set_plan(PlanToYaml(plan));
  };
  return options;
}

int64_t JobLoop::first_step() const {
  return kept_.has_value() ? kept_->first_step() : checkpoint_step();
}

absl::Status JobLoop::Measured(Coordinator& coordinator, const Measurement& measured) {
  std::vector<std::string> texts;
  for (const auto& [name, value] : measured.metrics) {
    texts.push_back(absl::StrFormat("%s %.6g", name, value));
  }
  Note(absl::StrCat("eval   step ", measured.step, ": ", absl::StrJoin(texts, ", "),
                    measured.is_best ? " (best)" : ""));
  last_metrics_ = measured.metrics;
  if (listener_ != nullptr) listener_(measured);
  if (!measured.is_best || flags_.best_output().empty()) return absl::OkStatus();
  WEFT_RETURN_IF_ERROR(CheckOwner());
  const auto read = flags_.evaluates_averages() ? ReadAverages : ReadTrained;
  WEFT_ASSIGN_OR_RETURN(auto values, read(coordinator, *prepared_));
  const auto saved = model_->Save(RealFileSystem(), flags_.best_output(), std::move(values));
  if (!saved.ok()) {
    Note(absl::StrCat("warning: --best: ", std::string(saved.status().message()),
                      "; training goes on"));
  }
  return absl::OkStatus();
}

void JobLoop::Report(double step_seconds, Console& console) const {
  if (periodic_.has_value() && periodic_->best().has_value()) {
    *console.out << absl::StrFormat("best %.6g at step %d\n", *periodic_->best(),
                                    periodic_->best_step());
  }
  if (!checkpointer_.has_value()) return;
  const CheckpointSummary& summary = checkpointer_->summary();
  if (summary.written + summary.failed == 0) return;
  *console.out << "checkpoints " << summary.written << " written";
  if (summary.failed > 0) *console.out << ", " << summary.failed << " failed";
  if (summary.written > 0) {
    const double pause = summary.pause_seconds / static_cast<double>(summary.written);
    *console.out << absl::StrFormat(
        ", the last of step %d: %s in %.3g ms, while steps went on; they waited %.3g ms, %.2g %% "
        "of a step",
        summary.last_step, ByteQuantity(summary.bytes), 1e3 * summary.write_seconds, 1e3 * pause,
        PercentOf(pause, step_seconds));
  }
  *console.out << "\n";
}

void JobLoop::AddToReport(double step_seconds, nlohmann::ordered_json& report) const {
  report["parameters"] = {{"trained", job_.trained}, {"not_trained", job_.untrained}};
  if (flags_.resumes()) report["first_step"] = first_step();
  if (periodic_.has_value() && periodic_->best().has_value()) {
    report["evaluation"] = {{"best", *periodic_->best()},
                            {"best_step", periodic_->best_step()},
                            {"last", last_metrics_}};
  }
  if (!checkpointer_.has_value()) return;
  const CheckpointSummary& summary = checkpointer_->summary();
  const double pause =
      summary.written > 0 ? summary.pause_seconds / static_cast<double>(summary.written) : 0;
  report["checkpoints"] = {{"written", summary.written},
                           {"failed", summary.failed},
                           {"last_step", summary.last_step},
                           {"bytes", summary.bytes},
                           {"write_seconds", summary.write_seconds},
                           {"pause_seconds", pause},
                           {"longest_pause_seconds", summary.longest_pause_seconds},
                           {"pause_percent_of_step", PercentOf(pause, step_seconds)}};
}

}  // namespace weft
