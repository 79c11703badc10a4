// What else a user could ask for when a plan does not fit into memory.
#ifndef WEFT_PLACEMENT_SEARCH_ALTERNATIVES_H_
#define WEFT_PLACEMENT_SEARCH_ALTERNATIVES_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "graph/cluster_spec.h"
#include "graph/graph.h"
#include "graph/inference.h"
#include "graph/plan.h"
#include "placement/cost/cost_model.h"
#include "placement/search/search_options.h"

namespace weft {

struct Alternative {
  std::string what;          // "recomputation"
  std::string parallel;      // a value of --parallel
  int64_t memory_bytes = 0;  // of the rank that is nearest to its limit
};

// By rank, what a complete plan needs, SearchOptions::process_bytes not counted.
using MemoryOfPlanFn = std::function<absl::StatusOr<std::vector<int64_t>>(const Plan& plan)>;

// Up to three ways to change the complete plan `refused`, each of another kind: recomputation,
// ZeRO, more micro-batches (unless they are fixed), another mesh or several at once. Each was
// completed from its flags and fits by `memory_of` into SearchOptions::memory_limits. Empty when
// nothing does.
std::vector<Alternative> FindAlternatives(const Graph& graph, const ClusterSpec& cluster,
                                          const CostModel& cost, const Plan& refused,
                                          const SearchOptions& options,
                                          const MemoryOfPlanFn& memory_of,
                                          NodeEvaluator& evaluator);

// "; each of these fits: --parallel A (recomputation: 10 MiB), ..." or, without any, "".
std::string AlternativesText(const std::vector<Alternative>& alternatives);

}  // namespace weft

#endif  // WEFT_PLACEMENT_SEARCH_ALTERNATIVES_H_
