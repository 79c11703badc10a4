// PlannedStep: a training step as it would be run, from the flags of a job: what plan and simulate
// have in common.
#ifndef WEFT_TOOLS_JOBS_PLANNED_STEP_H_
#define WEFT_TOOLS_JOBS_PLANNED_STEP_H_

#include <vector>

#include "absl/status/statusor.h"
#include "graph/graph.h"
#include "graph/partition.h"
#include "graph/plan.h"
#include "placement/cost/cost_model.h"
#include "tools/flags/job_flags.h"
#include "tools/flags/loop_flags.h"
#include "tools/jobs/phase_dump.h"
#include "training/job/job.h"
#include "training/job/stored_programs.h"

namespace weft {

// A job's step with its complete plan and the partitions of all ranks.
struct PlannedStep {
  JobSpec spec;
  Graph graph;  // the logical one
  Plan plan;    // complete, with its prediction
  std::vector<Partition> partitions;
  CostModel costs;
};

// The training graph of the flags' model, its inputs shaped by the data where there is some. Errors
// carry their exit code. `dump` (null: nobody) is told of the phases from import to differentiate;
// Cancelled where it ends there.
absl::StatusOr<Graph> TrainingGraphOf(const JobFlags& flags, const ImportedModel& model,
                                      const TrainingSpec& training, PhaseDump* dump = nullptr);

// All that workers of the job would get: programs for all shapes of the data (without data: for the
// batch), and of the evaluation within it if `evaluation` asks for one. `graph` is TrainingGraphOf.
absl::StatusOr<StoredPrograms> AllPrograms(const JobFlags& flags, const LoopFlags& evaluation,
                                           const ImportedModel& model, const JobSpec& spec,
                                           const Graph& graph, const Plan& plan);

// Reads model, cluster and plan (or finds one, as train does), but no samples. All errors carry
// their exit code.
absl::StatusOr<PlannedStep> PlanStep(const JobFlags& flags);

}  // namespace weft

#endif  // WEFT_TOOLS_JOBS_PLANNED_STEP_H_
