// The search for a job's plan (placement/search/), and alternatives if none fits.
#ifndef WEFT_TRAINING_JOB_JOB_SEARCH_H_
#define WEFT_TRAINING_JOB_JOB_SEARCH_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "graph/graph.h"
#include "graph/plan.h"
#include "placement/cost/cost_model.h"
#include "placement/search/plan_search.h"
#include "training/job/job_spec.h"

namespace weft {

// The cost model of a job whose training graph has this digest (GraphDigest): spec.costs, or what
// the cluster spec says, corrected by the history. Searches and predictions use the same.
absl::StatusOr<CostModel> CostsOf(const JobSpec& spec, uint64_t model_digest);

// The fastest plan that fits for the training graph of a job. What spec.plan says of strictness,
// threads, buckets and shardings is kept; its micro-batches are kept where results depend on them
// (JobSpec::PlanSearch::keep_micro_batches, strict jobs), and where a normalization takes its
// statistics per micro-batch, which the user has to ask for, the batch is cut as data parallelism
// over all workers would cut it. LimitBatchCuts (batch_cuts.h) comes before.
// Errors are those of SearchPlan.
absl::StatusOr<SearchResult> SearchJobPlan(const Graph& graph, const JobSpec& spec,
                                           const CostModel& costs, int64_t global_batch);

// The same where no plan fits as ranks' compiles find (SearchJobPlan is ResourceExhausted): by
// estimates alone, which are less. For a caller that goes on to CheckPlanFits, which refuses such a
// plan with what would fit: recomputation and ZeRO are not searched for.
absl::StatusOr<SearchResult> SearchJobPlanByEstimates(const Graph& graph, const JobSpec& spec,
                                                      const CostModel& costs, int64_t global_batch);

// What the user should know of a plan that had to use all workers: "2 of 4 workers would be 1.8
// times as fast (predicted): ...". Empty where fewer are no better.
std::string NoteOnFewerWorkers(const Graph& graph, const JobSpec& spec, const CostModel& costs,
                               int64_t global_batch, const SearchResult& result);

// ResourceExhausted unless each rank's share of the plan can fit into its worker's memory: the
// exact memory of its partition with what its requirement would add (data, checkpoints, messages),
// and the least that a worker process takes. Names up to three values of --parallel that fit.
// Nothing has been started then.
absl::Status CheckPlanFits(const PreparedJob& job, const JobSpec& spec, const CostModel& costs);

// ResourceExhausted, from workers that were asked to take the job, with those alternatives; other
// errors as they are.
absl::Status AddAlternatives(const absl::Status& error, const PreparedJob& job, const JobSpec& spec,
                             const CostModel& costs);

}  // namespace weft

#endif  // WEFT_TRAINING_JOB_JOB_SEARCH_H_
