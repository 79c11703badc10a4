// PlannedStep: a training step as it would be run, from the flags of a job: what plan and simulate
// have in common.
#ifndef WEFT_TOOLS_JOBS_PLANNED_STEP_H_
#define WEFT_TOOLS_JOBS_PLANNED_STEP_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "graph/graph.h"
#include "graph/partition.h"
#include "graph/plan.h"
#include "onnx_import/importer.h"
#include "placement/cost/cost_model.h"
#include "placement/simulation/host_paths.h"
#include "tools/flags/train_flags.h"
#include "tools/jobs/phase_dump.h"
#include "training/data/data_set.h"
#include "training/graph/training_spec.h"
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
  HostPaths host;  // what goes between GPUs through their hosts
};

// What is asked of a step, and the samples that it is made of; null without --data. The order of
// the samples is that of `train`.
struct PlannedInput {
  TrainingSpec training;
  std::shared_ptr<const DataSet> data;

  // Samples of the first step, as `train` would run it.
  int64_t batch(const TrainFlags& flags) const {
    return data == nullptr ? flags.job().batch() : data->batch_of(0);
  }
};
// Opens the data. Errors carry their exit code; one is that of a schedule over all steps of a run
// whose length the flags do not say.
absl::StatusOr<PlannedInput> PlannedInputOf(const TrainFlags& flags);

// The training graph of the flags' model, its inputs shaped by the data where there is some. Errors
// carry their exit code. `dump` (null: nobody) is told of the phases from import to differentiate;
// Cancelled where it ends there.
absl::StatusOr<Graph> TrainingGraphOf(const PlannedInput& input, const ImportedModel& model,
                                      PhaseDump* dump = nullptr);

// All that workers of the job would get: programs for all shapes of the data (without data: for the
// batch), and of the evaluation within it if `evaluation` asks for one. `graph` is TrainingGraphOf.
absl::StatusOr<StoredPrograms> AllPrograms(const TrainFlags& flags, const PlannedInput& input,
                                           const ImportedModel& model, const JobSpec& spec,
                                           const Graph& graph, const Plan& plan);

// The job of TrainFlags::job, with what else of the flags a plan depends on.
absl::StatusOr<JobSpec> PlannedJob(const TrainFlags& flags);

// Reads model, cluster and plan (or finds one, as train does), but no samples. All errors carry
// their exit code.
absl::StatusOr<PlannedStep> PlanStep(const TrainFlags& flags);

}  // namespace weft

#endif  // WEFT_TOOLS_JOBS_PLANNED_STEP_H_
