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
  // The choices that were evaluated, in any order, including those that do not fit.
  virtual absl::StatusOr<std::vector<EvaluatedChoice>> Run(const PlanSpace& space,
                                                           PlanEvaluator& evaluator) const = 0;
};

std::vector<std::string> SearchStrategyNames();

// "dp": evaluates choices in order of their lower bound, until no bound is below the best step
// time.
//   Stages are cut by dynamic programming. Ways to save memory are tried only on meshes on which
//   nothing faster fits. A local search then starts at the best plans of some meshes.
// "exhaustive": every choice, every cut of stages. For small jobs: the reference for the others.
// "anneal": a random walk (simulated annealing: Kirkpatrick et al., 1983) with a fixed seed.
// InvalidArgument, naming them, for another name.
//
// How "dp" prunes. A choice is skipped if its lower bound exceeds the best step time found so far.
// There are two bounds. LowerBound assumes that smaller micro-batches are not faster per sample. So
// it is not applied when only the number of micro-batches changes and there is no pipeline.
// CloseBound uses the choice's own micro-batches and shards, with collectives and recomputation. If
// the best few plans are simulated from their partitions, CloseBound may exceed the best by a
// fifth. A choice that cannot fit with any cut (CannotFit) is skipped too. One choice of each mesh
// is always evaluated, so that the report can say what the mesh needs.
//
// Two heuristics prune more. Interleaved schedules are tried only if the pipeline of whole stages,
// with the shorter bubble, would be within a fifth of the best: interleaving adds communication and
// can only reduce idle time. A plan whose coarse estimate is more than a tenth slower than a plan
// that was simulated is not simulated. Among 470 interleaved pipelines and 450 simulated plans,
// neither heuristic would have missed the best. tests/plan_quality_test compares both with
// exhaustive search.
absl::StatusOr<std::unique_ptr<SearchStrategy>> NewSearchStrategy(const std::string& name);

}  // namespace weft

#endif  // WEFT_PLACEMENT_SEARCH_SEARCH_STRATEGY_H_
