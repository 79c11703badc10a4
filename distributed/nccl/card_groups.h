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

// The groups of two members and more of a rank's collectives, each once, in its order.
std::vector<std::vector<RankId>> CollectiveGroups(const Partition& partition);
// Whether all of them have a card.
bool HaveCards(const std::vector<RankId>& group, const std::vector<RankCard>& cards);
// "worker:1 has no GPU", of the first that has none. REQUIRES: not HaveCards.
std::string NoCardText(const std::vector<RankId>& group, const std::vector<RankCard>& cards);
// Why NCCL does not join the cards of the group, which all have one; empty: it does.
std::string CardRefusal(const std::vector<RankId>& group, const std::vector<RankCard>& cards);

// Ranks, some of which have cards, whose collectives go through the host all the same.
struct HostGroup {
  std::vector<RankId> members;
  std::string reason;
};

struct CardGroupChoice {
  // Those of the program's collectives that can be joined, in the order in which the partitions
  // name them.
  std::vector<std::vector<RankId>> groups;
  std::vector<HostGroup> host;  // the others with a card among them, in that order
  // Why some collective between cards alone goes through the host; empty: none does.
  std::string refusal;
};

// How the collectives of GPUs, and what one sends to another, go in a job.
struct CardUse {
  int nccl_version = 0;      // 0: nothing goes by NCCL
  int ranks = 0;             // whose collectives NCCL runs
  int pairs = 0;             // senders and receivers that NCCL serves
  std::string refusal;       // why some collective between GPUs goes through the host; empty: none
  std::string send_refusal;  // the same of sends
};

// "collectives of 4 GPUs, sends of 2 pairs: NCCL 2.28.9", and what goes through the host, and why:
// one line. Empty where GPUs have nothing for each other.
std::string DescribeCardUse(const CardUse& use);

// `cards` and `partitions` by rank. A group is joined whose members all have cards, each another,
// and one version of NCCL. None is in a strict job, whose sums have an order of their own, nor
// where some ranks have micro-batches and others have none: their lists of collectives differ, and
// NCCL wants one order.
CardGroupChoice ChooseCardGroups(const std::vector<RankCard>& cards,
                                 const std::vector<Partition>& partitions, bool strict);

}  // namespace weft

#endif  // WEFT_DISTRIBUTED_NCCL_CARD_GROUPS_H_
