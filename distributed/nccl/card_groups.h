// Which ranks' cards NCCL joins for a program.
#ifndef WEFT_DISTRIBUTED_NCCL_CARD_GROUPS_H_
#define WEFT_DISTRIBUTED_NCCL_CARD_GROUPS_H_

#include <string>
#include <vector>

#include "graph/ids.h"
#include "graph/partition.h"

namespace weft {

// What a rank says of its card when it joins the job (WorkerCard).
struct RankCard {
  std::string name;      // empty: it has none
  int nccl_version = 0;  // 0: `problem` says why there is none
  std::string problem;
};

struct CardGroupChoice {
  // Those of the program's collectives that can be joined, in the order in which the partitions
  // name them.
  std::vector<std::vector<RankId>> groups;
  // Why some collective between cards alone goes through the host; empty: none does.
  std::string refusal;
};

// `cards` and `partitions` by rank. A group is joined whose members all have cards, each another,
// and one version of NCCL. None is in a strict job, whose sums have an order of their own, nor
// where some ranks have micro-batches and others have none: their lists of collectives differ, and
// NCCL wants one order.
CardGroupChoice ChooseCardGroups(const std::vector<RankCard>& cards,
                                 const std::vector<Partition>& partitions, bool strict);

}  // namespace weft

#endif  // WEFT_DISTRIBUTED_NCCL_CARD_GROUPS_H_
