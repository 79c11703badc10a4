#include "tools/jobs/planned_step.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "ops/node_runner.h"
#include "placement/graph_views/graph_digest.h"
#include "placement/partition/partitioner.h"
#include "placement/search/given_plan.h"
#include "placement/simulation/plan_prediction.h"
#include "platform/status_macros.h"
#include "tools/console/exit_code.h"
#include "tools/jobs/training_trial.h"
#include "training/job/batch_cuts.h"
#include "training/job/card_paths.h"
#include "training/job/cpu_fallback.h"
#include "training/job/job_search.h"

namespace weft {
namespace {

absl::StatusOr<Plan> PlanOf(const Graph& graph, const JobSpec& spec, const TrainingSpec& training,
                            const CostModel& costs, int64_t batch) {
  if (spec.search.wanted && !training.model_training_info) {
    absl::StatusOr<SearchResult> found = SearchJobPlan(graph, spec, costs, batch);
    if (found.ok()) return std::move(found->plan);
    if (spec.search.demanded || absl::IsResourceExhausted(found.status())) {
      return found.status();
    }
  }
  JobSpec given = spec;
  KeepReplicaLimit(given);
  return CompleteGivenPlan(graph, spec.cluster, costs, std::move(given.plan), batch,
                           CpuNodeEvaluator());
}

// Whether partitions leave it to the workers of the job what runs on hosts, as those of `train` do.
bool LeavesFallbackToWorkers(const JobSpec& spec, const Plan& plan) {
  JobSpec settled = spec;
  settled.plan = plan;
  return WorkersSettleFallback(settled, KernelRegistry::Global());
}

}  // namespace

absl::StatusOr<PlannedInput> PlannedInputOf(const TrainFlags& flags) {
  PlannedInput input;
  if (flags.job().has_data()) {
    WEFT_ASSIGN_OR_RETURN(input.data, flags.job().OpenData(flags.shuffles()));
  }
  WEFT_ASSIGN_OR_RETURN(input.training, flags.PlannedTraining(input.data.get()));
  const RateSchedule& schedule = input.training.schedule;
  if (!schedule.needs_total() || schedule.total > 0) return input;
  return UsageError(absl::StrCat("--schedule ", schedule.kind,
                                 " runs over all steps of the run: give --steps N, --epochs N with "
                                 "--data, or --schedule-steps N, as train will have it"));
}

absl::StatusOr<Graph> TrainingGraphOf(const PlannedInput& input, const ImportedModel& model,
                                      PhaseDump* dump) {
  const GraphObserver observe = dump == nullptr ? nullptr : dump->observer();
  if (input.data == nullptr && dump != nullptr) WEFT_RETURN_IF_ERROR(dump->CheckWithoutData());
  const ShapeInputsFn shape = [&](Graph& graph) {
    return input.data == nullptr ? absl::OkStatus() : BindInputs(graph, *input.data, 0, observe);
  };
  return MakeTrainingGraph(model.graph, input.training, shape, dump);
}

absl::StatusOr<JobSpec> PlannedJob(const TrainFlags& flags) {
  WEFT_ASSIGN_OR_RETURN(JobSpec spec, flags.job().Job());
  spec.checkpoints = flags.loop().saves();
  spec.plan.commits = flags.loop().continues();
  return spec;
}

absl::StatusOr<StoredPrograms> AllPrograms(const TrainFlags& flags, const PlannedInput& input,
                                           const ImportedModel& model, const JobSpec& spec,
                                           const Graph& graph, const Plan& plan) {
  const TrainingSpec& training = input.training;
  const LoopFlags& evaluation = flags.loop();
  StoredPrograms all;
  all.workers = static_cast<int>(spec.cluster.workers.size());
  all.plan = plan;
  if (input.data == nullptr) {
    if (evaluation.evaluates()) {
      return UsageError("--eval-every needs --data");
    }
    const BatchShape shape = {input.batch(flags), 0};
    auto partitions =
        PartitionStep(graph, plan, {/*training=*/true, shape.batch}, CpuNodeEvaluator());
    if (!partitions.ok()) return WithExitCode(partitions.status(), ExitCode::kPlan);
    if (LeavesFallbackToWorkers(spec, plan)) {
      for (Partition& partition : *partitions) partition.host_ops = AnyOperator();
    }
    all.programs.push_back({ProgramName(kTrainingSteps, shape), shape, *std::move(partitions)});
    return all;
  }
  PreparedJob job;
  job.graph = graph.Clone();
  job.plan = plan;
  job.cluster = spec.cluster;
  job.data = input.data;
  job.workers_settle_fallback = LeavesFallbackToWorkers(spec, plan);
  auto programs = PartitionTraining(job, model.graph, training, plan, kTrainingSteps);
  if (!programs.ok()) return WithExitCode(programs.status(), ExitCode::kPlan);
  job.programs = *std::move(programs);
  if (evaluation.evaluates()) {
    WEFT_ASSIGN_OR_RETURN(auto data, evaluation.OpenEvaluationData(job.data->spec()));
    auto within =
        PrepareEvaluationWithin(job, model.graph, training.loss, evaluation.Metrics(training.loss),
                                spec, std::move(data), evaluation.evaluates_averages());
    if (!within.ok()) return WithExitCode(within.status(), ExitCode::kPlan);
    all.evaluation_digest = GraphDigest(within->graph);
    for (JobProgram& program : within->programs) job.programs.push_back(std::move(program));
  }
  all.programs = std::move(job.programs);
  return all;
}

absl::StatusOr<PlannedStep> PlanStep(const TrainFlags& flags) {
  WEFT_ASSIGN_OR_RETURN(PlannedInput input, PlannedInputOf(flags));
  WEFT_ASSIGN_OR_RETURN(const ImportedModel model, flags.job().LoadModel());
  WEFT_RETURN_IF_ERROR(flags.job().TakeLoss(model.graph, input.training.loss));
  WEFT_ASSIGN_OR_RETURN(JobSpec spec, PlannedJob(flags));
  WEFT_ASSIGN_OR_RETURN(Graph graph, TrainingGraphOf(input, model));
  const int64_t batch = input.batch(flags);
  if (!input.training.model_training_info) {
    WEFT_RETURN_IF_ERROR(WithExitCode(LimitBatchCuts(graph, batch, spec), ExitCode::kPlan));
  }
  std::vector<std::string> notes;  // of train and plan
  WEFT_RETURN_IF_ERROR(WithExitCode(
      SettleCpuFallback(graph, batch, KernelRegistry::Global(), spec, notes), ExitCode::kPlan));
  auto costs = CostsOf(spec, GraphDigest(graph));
  if (!costs.ok()) return WithExitCode(costs.status(), ExitCode::kPlan);
  auto plan = PlanOf(graph, spec, input.training, *costs, batch);
  if (!plan.ok()) return WithExitCode(plan.status(), ExitCode::kPlan);
  auto partitions = PartitionStep(graph, *plan, {/*training=*/true, batch}, CpuNodeEvaluator());
  if (!partitions.ok()) return WithExitCode(partitions.status(), ExitCode::kPlan);
  // Nobody asks for the memory of a simulated step, and its cluster may be large: no compiles.
  WEFT_ASSIGN_OR_RETURN(HostPaths host, PlannedHostPaths(spec.cluster, *plan, *partitions));
  WEFT_RETURN_IF_ERROR(PredictPlan(*partitions, *costs, *plan, /*rank_memory=*/nullptr, host));
  return PlannedStep{std::move(spec),        std::move(graph),  *std::move(plan),
                     *std::move(partitions), *std::move(costs), std::move(host)};
}

}  // namespace weft
