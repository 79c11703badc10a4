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
// A plan for some of these ranks (`left`, ascending, one at least): batch and micro-batches stay
// the job's. Of what the mesh is made of, replicas go first: with stages and shards as they are,
// the job has as many replicas as the ranks that are left can make up. Where they make up none,
// fewer stages, each of several that were beside each other; then fewer shards. A strict plan keeps
// its shards, on which its bits depend: FailedPrecondition where too few ranks are left for that.
// With all ranks it is the plan itself. Equal arguments give equal plans.
absl::StatusOr<SurvivorPlan> PlanForFewer(const Plan& plan, const std::vector<int>& left);

}  // namespace weft

#endif  // WEFT_TRAINING_RECOVERY_SURVIVOR_PLAN_H_
