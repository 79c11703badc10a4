// SurvivorPlan: a job's plan for the workers that are left.
#ifndef WEFT_TRAINING_RECOVERY_SURVIVOR_PLAN_H_
#define WEFT_TRAINING_RECOVERY_SURVIVOR_PLAN_H_

#include <vector>

#include "absl/status/statusor.h"
#include "graph/plan.h"

namespace weft {

struct SurvivorPlan {
  Plan plan;
  // Of the job so far, in ascending order: rank i of the plan is ranks[i].
  std::vector<int> ranks;
};

// The plan without the replicas that have lost a member; `left`: ranks of `plan` that still answer,
// in ascending order. Each rank that stays has the stage and the shard that it had, so its
// variables are those of the plan. Shares of those that stay keep their proportion. The prediction
// is left out. FailedPrecondition where no replica is whole, or each has state of its own
// (Plan::zero).
absl::StatusOr<SurvivorPlan> PlanWithout(const Plan& plan, const std::vector<int>& left);

// Whether the job's micro-batches are enough for so many replicas: each has one at least. A job
// that keeps its batches whole is cut for as many as there are.
bool HasRoomFor(const Plan& plan, int replicas);

// The plan with so many more replicas behind its own, each like the first: its stages, shards and
// threads, on a host of its own, with the mean of the others' shares. Their workers have numbers
// behind those of the plan's. The micro-batches stay (but see HasRoomFor). The prediction is left
// out.
Plan PlanWithMore(const Plan& plan, int more);

}  // namespace weft

#endif  // WEFT_TRAINING_RECOVERY_SURVIVOR_PLAN_H_
