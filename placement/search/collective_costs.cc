#include "placement/search/collective_costs.h"

#include <algorithm>

#include "graph/schedule/all_reduce_choice.h"

namespace weft {
namespace {

// All bytes are counted as float32: what an element takes does not matter to a link.
constexpr int64_t kElementBytes = 4;

// Each has a link to each: of larger groups they are too many to compare. The cost model simulates
// no larger ones.
constexpr size_t kMaxCompared = 16;

AllReduceTask TaskOf(int64_t bytes, const std::vector<int>& workers, const CostModel& cost) {
  AllReduceTask task;
  task.members = static_cast<int>(workers.size());
  task.elements = std::max<int64_t>(1, bytes / kElementBytes);
  task.element_bytes = kElementBytes;
  bool several = false;
  for (const int worker : workers) {
    task.hosts.push_back(cost.host(worker));
    several |= task.hosts.back() != task.hosts.front();
  }
  if (!several) task.hosts.clear();
  return task;
}

}  // namespace

std::optional<CollectiveKind> CollectiveOfConversion(const AxisSharding& from,
                                                     const AxisSharding& to) {
  if (from == to || from.is_replicated()) return std::nullopt;
  if (from.is_partial()) {
    return to.is_replicated() ? CollectiveKind::kAllReduce : CollectiveKind::kGatherOrScatter;
  }
  const bool moves = to.is_split() && to.axis != from.axis;
  return moves ? CollectiveKind::kAllToAll : CollectiveKind::kGatherOrScatter;
}

std::vector<int> CollectiveCosts::TraitsOf(const std::vector<int>& workers) {
  const ClusterProfile& profile = cost_.profile();
  std::vector<int> traits = {static_cast<int>(workers.size()),
                             static_cast<int>(cost_.WayOfGroup(workers))};
  if (workers.size() > kMaxCompared) {
    traits.insert(traits.end(), workers.begin(), workers.end());
    return traits;
  }
  std::vector<int> hosts;
  for (const int worker : workers) hosts.push_back(profile.host_of[worker]);
  std::sort(hosts.begin(), hosts.end());
  hosts.erase(std::unique(hosts.begin(), hosts.end()), hosts.end());
  for (const int worker : workers) {
    const auto host = std::lower_bound(hosts.begin(), hosts.end(), profile.host_of[worker]);
    traits.push_back(profile.device_of[worker]);
    traits.push_back(static_cast<int>(host - hosts.begin()));
    for (const int to : workers) {
      const LinkProfile& link = profile.link(worker, to);
      const auto known = std::find(links_.begin(), links_.end(), link);
      traits.push_back(static_cast<int>(known - links_.begin()));
      if (known == links_.end()) links_.push_back(link);
    }
  }
  return traits;
}

CollectiveCosts::Times& CollectiveCosts::TimesOf(const std::vector<int>& workers) {
  const auto [known, is_new] = known_.try_emplace(workers, nullptr);
  if (is_new) known->second = &times_[TraitsOf(workers)];
  return *known->second;
}

double CollectiveCosts::Seconds(const CollectiveUse& use, const std::vector<int>& workers) {
  if (workers.size() < 2 || use.bytes == 0) return 0;
  const auto [known, is_new] = TimesOf(workers).try_emplace(use, 0);
  if (!is_new) return known->second;
  const double bytes = static_cast<double>(use.bytes);
  switch (use.kind) {
    case CollectiveKind::kAllReduce:
      known->second = cost_.AllReduceSeconds(TaskOf(use.bytes, workers, cost_), workers);
      break;
    case CollectiveKind::kGatherOrScatter:
      known->second = cost_.RingSeconds(bytes, workers);
      break;
    case CollectiveKind::kAllToAll:
      known->second = cost_.AllToAllSeconds(bytes, workers);
      break;
  }
  return known->second;
}

}  // namespace weft
