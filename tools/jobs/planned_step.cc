#include "tools/jobs/planned_step.h"

#include <memory>
#include <utility>

#include "ops/node_runner.h"
#include "placement/graph_views/graph_digest.h"
#include "placement/partition/partitioner.h"
#include "placement/search/given_plan.h"
#include "placement/simulation/plan_prediction.h"
#include "platform/status_macros.h"
#include "tools/console/exit_code.h"
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
  return CompleteGivenPlan(graph, spec.cluster, costs, spec.plan, batch, CpuNodeEvaluator());
}

}  // namespace

absl::StatusOr<Graph> TrainingGraphOf(const JobFlags& flags, const ImportedModel& model,
                                      const TrainingSpec& training) {
  Graph bound = model.graph.Clone();
  std::shared_ptr<const DataSet> data;
  if (flags.has_data()) {
    WEFT_ASSIGN_OR_RETURN(data, flags.OpenData(/*shuffle=*/false));
    WEFT_RETURN_IF_ERROR(WithExitCode(BindInputs(bound, *data), ExitCode::kData));
  }
  auto graph = BuildTrainingGraph(bound, training);
  if (!graph.ok()) return WithExitCode(graph.status(), ExitCode::kModel);
  if (data != nullptr) {
    WEFT_RETURN_IF_ERROR(WithExitCode(BindInputs(*graph, *data), ExitCode::kData));
  }
  return graph;
}

absl::StatusOr<PlannedStep> PlanStep(const JobFlags& flags) {
  WEFT_ASSIGN_OR_RETURN(const TrainingSpec training, flags.Training());
  WEFT_ASSIGN_OR_RETURN(const ImportedModel model, flags.LoadModel());
  WEFT_ASSIGN_OR_RETURN(JobSpec spec, flags.Job());
  WEFT_ASSIGN_OR_RETURN(Graph graph, TrainingGraphOf(flags, model, training));
  auto costs = CostsOf(spec, GraphDigest(graph));
  if (!costs.ok()) return WithExitCode(costs.status(), ExitCode::kPlan);
  auto plan = PlanOf(graph, spec, training, *costs, flags.batch());
  if (!plan.ok()) return WithExitCode(plan.status(), ExitCode::kPlan);
  auto partitions =
      PartitionStep(graph, *plan, {/*training=*/true, flags.batch()}, CpuNodeEvaluator());
  if (!partitions.ok()) return WithExitCode(partitions.status(), ExitCode::kPlan);
  WEFT_RETURN_IF_ERROR(PredictPlan(*partitions, *costs, *plan));
  return PlannedStep{std::move(spec), std::move(graph), *std::move(plan), *std::move(partitions),
                     *std::move(costs)};
}

}  // namespace weft
