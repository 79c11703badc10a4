#include "placement/search/collective_costs.h"

#include <algorithm>

#include "graph/schedule/all_reduce_choice.h"

namespace weft {
namespace {

// All bytes are counted as float32: what an element takes does not matter to a link.
constexpr int64_t kElementBytes = 4;

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

double CollectiveCosts::Seconds(const CollectiveUse& use, const std::vector<int>& workers) {
  if (workers.size() < 2 || use.bytes == 0) return 0;
  const auto [known, is_new] = known_[workers].try_emplace(use, 0);
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
