#include "distributed/nccl/planned_cards.h"

#include "absl/strings/str_cat.h"
#include "distributed/nccl/nccl_memory.h"
#include "platform/status_macros.h"
#include "tensor/device.h"

namespace weft {
namespace {

// For want of the workers' word: any, the same for all.
constexpr int kOneNcclVersion = 1;

}  // namespace

std::vector<RankCard> CardsOfWorkers(const ClusterSpec& cluster, const std::vector<int>& workers) {
  std::vector<RankCard> cards(workers.size());
  for (size_t rank = 0; rank < workers.size(); ++rank) {
    const WorkerSpec& worker = cluster.workers[static_cast<size_t>(workers[rank])];
    if (worker.device != DeviceKind::kCuda) continue;
    cards[rank] = {absl::StrCat(worker.host, "/", worker.device_index), kOneNcclVersion, ""};
  }
  return cards;
}

absl::StatusOr<PlannedCards> PlanCards(const ClusterSpec& cluster, const Plan& plan,
                                       const std::vector<Partition>& partitions) {
  PlannedCards planned;
  const std::vector<RankCard> cards = CardsOfWorkers(cluster, plan.workers);
  planned.groups = ChooseCardGroups(cards, partitions, plan.strict);
  if (partitions.size() == plan.workers.size()) {
    WEFT_ASSIGN_OR_RETURN(planned.sends, ChooseCardPairs(cards, partitions));
  }
  return planned;
}

std::vector<int64_t> NcclBytes(const PlannedCards& cards, size_t ranks) {
  return NcclBytes(ranks, cards.groups.groups, PairsOf(cards.sends));
}

}  // namespace weft
