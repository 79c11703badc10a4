// PlanSpace: the choices that there are for a job on a cluster.
#ifndef WEFT_PLACEMENT_SEARCH_PLAN_SPACE_H_
#define WEFT_PLACEMENT_SEARCH_PLAN_SPACE_H_

#include <vector>

#include "placement/search/plan_choice.h"
#include "placement/search/plan_evaluator.h"

namespace weft {

class PlanSpace {
 public:
  // For the cluster, batch and options of the evaluator.
  explicit PlanSpace(const PlanEvaluator& evaluator);

  // Meshes on workers: the fastest hosts first, a host's workers together, no tensor-parallel group
  // across hosts. All workers, or with SearchOptions::may_leave_out also fewer. Micro-batches,
  // schedule and the like are not decided.
  const std::vector<PlanChoice>& meshes() const { return meshes_; }

  // What can be decided on a mesh, for speed: micro-batches by schedule and chunks, ZeRO 0 and 2.
  std::vector<PlanChoice> FastVariants(const PlanChoice& mesh) const;
  // What takes less memory and more time: more micro-batches, recomputation, ZeRO 1 and 3.
  std::vector<PlanChoice> SmallVariants(const PlanChoice& mesh) const;
  // Choices that differ from this one in one decision by one step: micro-batches, unequal shares of
  // them, schedule with its chunks, recomputation, ZeRO. Some are variants too.
  std::vector<PlanChoice> Neighbours(const PlanChoice& choice) const;

 private:
  void AddMeshes(int workers);
  bool KeepsTensorInHosts(const PlanChoice& choice) const;
  // Of a replica, from few to many: those whose micro-batches are equal, where there are any.
  std::vector<int> EqualCounts(const PlanChoice& mesh) const;
  std::vector<int> MicroBatchCounts(const PlanChoice& mesh) const;
  std::vector<double> Speeds(const PlanChoice& choice) const;
  void SetShares(PlanChoice& choice) const;
  std::vector<PlanChoice> WithSchedules(const PlanChoice& choice) const;
  void AddOtherCounts(const PlanChoice& choice, std::vector<PlanChoice>& list) const;
  void AddOtherShares(const PlanChoice& choice, std::vector<PlanChoice>& list) const;
  void AddOtherSchedules(const PlanChoice& choice, std::vector<PlanChoice>& list) const;

  const PlanEvaluator& evaluator_;
  std::vector<int> order_;  // workers, the ones to take first in front
  std::vector<PlanChoice> meshes_;
};

}  // namespace weft

#endif  // WEFT_PLACEMENT_SEARCH_PLAN_SPACE_H_
