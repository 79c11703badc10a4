// ReplicationOf: who keeps copies of whose state, and how large they are.
#ifndef WEFT_TRAINING_JOB_REPLICATION_H_
#define WEFT_TRAINING_JOB_REPLICATION_H_

#include <cstdint>
#include <vector>

#include "distributed/worker_client.h"
#include "graph/plan.h"
#include "training/job/job_spec.h"

namespace weft {

// Of each rank another one that keeps copies of its state: of another host where the plan has
// several (Plan::hosts), and as few for each as that allows. Equal plans have equal keepers.
// REQUIRES: two ranks at least.
std::vector<int32_t> KeepersOf(const Plan& plan);

// Copies of a training job's state after `every` steps: the variables that its programs change. No
// copies for 0, and for a job of one rank.
Replication ReplicationOf(const std::vector<JobProgram>& programs, const Plan& plan, int64_t every);

}  // namespace weft

#endif  // WEFT_TRAINING_JOB_REPLICATION_H_
