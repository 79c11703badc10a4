#include "training/job/card_paths.h"

#include <map>
#include <set>
#include <string>
#include <utility>

#include "distributed/nccl/nccl_memory.h"
#include "platform/status_macros.h"
#include "tensor/device.h"

namespace weft {

DeviceWays WaysOfWorkers(const ClusterSpec& cluster, const Plan& plan) {
  DeviceWays ways;
  ways.host_collectives = plan.strict;
  std::map<std::pair<std::string, int>, int> cards;
  for (size_t i = 0; i < cluster.workers.size(); ++i) {
    const WorkerSpec& worker = cluster.workers[i];
    const auto card =
        cards.try_emplace({worker.host, worker.device_index}, static_cast<int>(cards.size()));
    // Others have none, or a model of their own in a cluster that nobody has.
    const int none = -1 - static_cast<int>(i);
    ways.cards.push_back(worker.device == DeviceKind::kCuda ? card.first->second : none);
  }
  return ways;
}

HostPaths HostPathsOf(const PlannedCards& cards) {
  HostPaths host;
  for (const HostGroup& group : cards.groups.host) host.groups.insert(group.members);
  for (const CardSends& sends : cards.sends.host) {
    host.channels.insert(sends.channels.begin(), sends.channels.end());
  }
  return host;
}

absl::StatusOr<HostPaths> PlannedHostPaths(const ClusterSpec& cluster, const Plan& plan,
                                           const std::vector<Partition>& partitions) {
  WEFT_ASSIGN_OR_RETURN(const PlannedCards cards, PlanCards(cluster, plan, partitions));
  return HostPathsOf(cards);
}

std::vector<int64_t> NcclBytesOfPrograms(const std::vector<PlannedCards>& programs, size_t ranks) {
  std::set<std::vector<RankId>> groups;
  std::set<CardPair> pairs;
  for (const PlannedCards& cards : programs) {
    groups.insert(cards.groups.groups.begin(), cards.groups.groups.end());
    for (const CardSends& sends : cards.sends.sends) pairs.insert(sends.pair);
  }
  return NcclBytes(ranks, {groups.begin(), groups.end()}, {pairs.begin(), pairs.end()});
}

int64_t NcclBytesOfRank(const Partition& partition, bool strict) {
  const int ranks = partition.mesh.size();
  std::vector<std::vector<RankId>> groups;
  if (!strict) groups = CollectiveGroups(partition);
  std::set<CardPair> pairs;
  for (const Channel& channel : partition.channels) {
    if (channel.from != channel.to) pairs.insert({channel.from, channel.to});
  }
  const std::vector<int64_t> bytes =
      NcclBytes(static_cast<size_t>(ranks), groups, {pairs.begin(), pairs.end()});
  return bytes[static_cast<size_t>(partition.rank.value)];
}

}  // namespace weft
