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
//
// How "dp" leaves choices out. A bound never lies: a choice is skipped only if its lower bound
// exceeds the best step time so far. LowerBound takes for granted that smaller micro-batches are
// not faster per sample, so steps from one number of micro-batches to another without a pipeline do
// not ask it. CloseBound then counts the choice's own micro-batches and shards, with collectives
// and what runs again; where the best few are simulated from their partitions, what may be a fifth
// better than coarse estimates say is looked at. What cannot fit however it were cut (CannotFit) is
// skipped too. One choice of each mesh is looked at all the same, so that it can be said what it
// takes.
//
// Two guesses, and no more. Interleaved stages are looked at only where the same pipeline of whole
// stages would be within a fifth of the best if its schedule were as short: they send more, and
// only wait less. And what is a tenth slower by coarse estimates than a plan that was simulated is
// not simulated. Of 470 interleaved pipelines and 450 simulated plans neither would have hidden the
// best; tests/plan_quality_test holds both against exhaustive search.
absl::StatusOr<std::unique_ptr<SearchStrategy>> NewSearchStrategy(const std::string& name);

}  // namespace weft

#endif  // WEFT_PLACEMENT_SEARCH_SEARCH_STRATEGY_H_
