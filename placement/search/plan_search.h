// SearchPlan: the plan that takes the least time of those that fit, and why the others are not it.
#ifndef WEFT_PLACEMENT_SEARCH_PLAN_SEARCH_H_
#define WEFT_PLACEMENT_SEARCH_PLAN_SEARCH_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "graph/cluster_spec.h"
#include "graph/graph.h"
#include "graph/inference.h"
#include "graph/plan.h"
#include "placement/cost/cost_model.h"
#include "placement/search/plan_choice.h"
#include "placement/search/search_options.h"

namespace weft {

// A plan as the search sees it. Seconds are of a step: of it all, and the mean rank's shares.
struct PlanCandidate {
  PlanChoice choice;
  double step_seconds = 0;
  double compute_seconds = 0;
  double communication_seconds = 0;
  double bubble_seconds = 0;
  int64_t memory_bytes = 0;  // of the rank that is nearest to its limit
  int64_t memory_limit = 0;  // 0 = none
  bool fits = true;
  bool exact = false;     // its partitions were simulated, not the coarse estimates
  bool compiled = false;  // memory_bytes is what compiles found (SearchOptions::rank_memory)
  std::string reason;     // why it was not chosen; empty for the chosen one
};

struct SearchResult {
  Plan plan;  // complete
  PlanCandidate chosen;
  // The best of the others, one of each mesh, the fastest first; then those that do not fit, the
  // smallest first.
  std::vector<PlanCandidate> rejected;
  int evaluated = 0;         // choices that were looked at closely
  bool partitioned = false;  // the chosen plan's partitions were made, and fit
  std::string batch_reason;  // SearchOptions::batch_reason
};

// `graph` is a differentiated training graph. The plan is deterministic: same input, same plan. Of
// plans that were simulated exactly, what is alive at once decides first whether they fit; the
// arena of the fastest one is then laid out, or, near a limit, its ranks are compiled where
// SearchOptions::rank_memory can do that; the next fastest is taken where it does not fit.
// ResourceExhausted when no plan fits, naming the one that needs least; InvalidArgument for an
// unknown strategy, and when there is no plan at all (more workers than samples).
absl::StatusOr<SearchResult> SearchPlan(const Graph& graph, const ClusterSpec& cluster,
                                        const CostModel& cost, const SearchOptions& options,
                                        NodeEvaluator& evaluator);

// Whether partial results of a micro-batch change variables besides the trained ones (running
// statistics of a normalization): then what a step computes depends on how the batch is cut.
bool DependsOnMicroBatches(const Graph& graph);

// Bytes of memory a rank needs most of besides its process, by rank, from its partition
// (MemoryOfRank).
absl::StatusOr<std::vector<int64_t>> MemoryOfPlan(const Graph& graph, const Plan& plan,
                                                  int64_t global_batch, NodeEvaluator& evaluator,
                                                  const RankMemoryFn& rank_memory = nullptr);

}  // namespace weft

#endif  // WEFT_PLACEMENT_SEARCH_PLAN_SEARCH_H_
