// SearchStrategy: in which order choices are looked at, and which are not. All are measured by the
// same evaluator.
#ifndef WEFT_PLACEMENT_SEARCH_SEARCH_STRATEGY_H_
#define WEFT_PLACEMENT_SEARCH_SEARCH_STRATEGY_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "placement/search/plan_evaluator.h"
#include "placement/search/plan_space.h"

namespace weft {

// Stateless. Deterministic: the same input gives the same answer.
class SearchStrategy {
 public:
  virtual ~SearchStrategy() = default;
  // What it looked at, in any order; those that do not fit too.
  virtual absl::StatusOr<std::vector<EvaluatedChoice>> Run(const PlanSpace& space,
                                                           PlanEvaluator& evaluator) const = 0;
};

std::vector<std::string> SearchStrategyNames();

// "dp": choices by their lower bound, stages by dynamic programming, until no bound is below the
//   best; what takes less memory only on meshes on which nothing fast fits; then steps from the
//   best plans of some meshes to neighbouring ones, while they are better.
// "exhaustive": every choice, every cut of stages. For small jobs: the reference for the others.
// "anneal": a random walk (simulated annealing: Kirkpatrick et al., 1983) with a fixed seed.
// InvalidArgument, naming them, for another name.
absl::StatusOr<std::unique_ptr<SearchStrategy>> NewSearchStrategy(const std::string& name);

}  // namespace weft

#endif  // WEFT_PLACEMENT_SEARCH_SEARCH_STRATEGY_H_
