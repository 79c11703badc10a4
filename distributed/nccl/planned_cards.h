// Which ways a plan's GPUs will take to each other, before any worker is asked.
#ifndef WEFT_DISTRIBUTED_NCCL_PLANNED_CARDS_H_
#define WEFT_DISTRIBUTED_NCCL_PLANNED_CARDS_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "distributed/nccl/card_groups.h"
#include "distributed/nccl/card_pairs.h"
#include "graph/cluster_spec.h"
#include "graph/partition.h"
#include "graph/plan.h"

namespace weft {

// By rank: what the workers will say of their cards, if all have one version of NCCL: each GPU of a
// host is a card by its index. `workers`: the cluster's worker of each rank (Plan::workers).
std::vector<RankCard> CardsOfWorkers(const ClusterSpec& cluster, const std::vector<int>& workers);

// What the coordinator chooses where the workers say so.
struct PlannedCards {
  CardGroupChoice groups;
  CardPairChoice sends;
};

// `partitions` of the plan, by rank. Of some of the ranks only (a simulation's representatives) or
// of none: no sends are chosen. Errors are those of ChooseCardPairs.
absl::StatusOr<PlannedCards> PlanCards(const ClusterSpec& cluster, const Plan& plan,
                                       const std::vector<Partition>& partitions);

// By rank, in bytes: NcclBytes of these. REQUIRES: the plan has `ranks` ranks.
std::vector<int64_t> NcclBytes(const PlannedCards& cards, size_t ranks);

}  // namespace weft

#endif  // WEFT_DISTRIBUTED_NCCL_PLANNED_CARDS_H_
