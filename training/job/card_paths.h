// What GPUs of a job have for each other: what of it goes through hosts, and what NCCL takes for
// the rest.
#ifndef WEFT_TRAINING_JOB_CARD_PATHS_H_
#define WEFT_TRAINING_JOB_CARD_PATHS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "distributed/nccl/planned_cards.h"
#include "graph/cluster_spec.h"
#include "graph/partition.h"
#include "graph/plan.h"
#include "placement/cost/cost_model.h"
#include "placement/simulation/host_paths.h"

namespace weft {

// What is known before there are partitions: strict plans, and workers that share a card.
DeviceWays WaysOfWorkers(const ClusterSpec& cluster, const Plan& plan);

// For a prediction: what the choice leaves to hosts.
HostPaths HostPathsOf(const PlannedCards& cards);
// The same of a plan's partitions, of all ranks. Errors are those of PlanCards.
absl::StatusOr<HostPaths> PlannedHostPaths(const ClusterSpec& cluster, const Plan& plan,
                                           const std::vector<Partition>& partitions);

// By rank, in bytes: what the communicators of some programs take of the cards (NcclBytes); each
// is made once for all of them.
std::vector<int64_t> NcclBytesOfPrograms(const std::vector<PlannedCards>& programs, size_t ranks);

// Of one rank where no partition but its own is known: as if the other ranks had GPUs of their own.
// So it may be more than in the job.
int64_t NcclBytesOfRank(const Partition& partition, bool strict);

}  // namespace weft

#endif  // WEFT_TRAINING_JOB_CARD_PATHS_H_
