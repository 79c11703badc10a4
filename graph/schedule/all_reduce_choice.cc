#include "graph/schedule/all_reduce_choice.h"

#include <algorithm>
#include <array>
#include <map>

#include "graph/schedule/schedule_writer.h"

namespace weft {
namespace {

constexpr std::array<std::string_view, 5> kNames = {"ring", "recursive_doubling",
                                                    "halving_doubling", "tree", "hierarchical"};

// What a round costs besides its bytes, in bytes: on unix sockets and gRPC, where hand-overs
// between threads take some microseconds.
constexpr double kRoundBytes = 8 << 10;

// The rounds and bytes one after the other on the member that has most of them.
double CostOf(AllReduceAlgorithm algorithm, int members, double bytes) {
  const int power = PowerOfTwoIn(members);
  int rounds = 0;
  while ((1 << rounds) < power) ++rounds;
  const bool folds = power < members;
  switch (algorithm) {
    case AllReduceAlgorithm::kRecursiveDoubling:
      return (rounds + (folds ? 2 : 0)) * (kRoundBytes + bytes);
    case AllReduceAlgorithm::kHalvingDoubling:
      return (2 * rounds + (folds ? 3 : 0)) * kRoundBytes + 2 * bytes * (power - 1) / power +
             (folds ? 2 * bytes : 0);
    default:
      return 2 * (members - 1) * (kRoundBytes + bytes / members);
  }
}

// Every one of several hosts has two members or more.
bool SharesHosts(const AllReduceTask& task) {
  std::map<int, int> members;
  for (const int host : task.hosts) ++members[host];
  return members.size() > 1 && std::all_of(members.begin(), members.end(),
                                           [](const auto& host) { return host.second > 1; });
}

}  // namespace

std::string_view AllReduceAlgorithmName(AllReduceAlgorithm algorithm) {
  return kNames[static_cast<size_t>(algorithm)];
}

std::optional<AllReduceAlgorithm> ParseAllReduceAlgorithm(std::string_view name) {
  const auto it = std::find(kNames.begin(), kNames.end(), name);
  if (it == kNames.end()) return std::nullopt;
  return static_cast<AllReduceAlgorithm>(it - kNames.begin());
}

AllReduceAlgorithm FastestAllReduce(const AllReduceTask& task) {
  if (task.members <= 2) return AllReduceAlgorithm::kRecursiveDoubling;
  const double bytes = static_cast<double>(task.elements) * static_cast<double>(task.element_bytes);
  AllReduceAlgorithm best = AllReduceAlgorithm::kRecursiveDoubling;
  for (const AllReduceAlgorithm other :
       {AllReduceAlgorithm::kHalvingDoubling, AllReduceAlgorithm::kRing}) {
    if (CostOf(other, task.members, bytes) < CostOf(best, task.members, bytes)) best = other;
  }
  const bool is_small = best == AllReduceAlgorithm::kRecursiveDoubling;
  return !is_small && SharesHosts(task) ? AllReduceAlgorithm::kHierarchical : best;
}

CollectiveSchedule AllReduceBy(AllReduceAlgorithm algorithm, const AllReduceTask& task,
                               int member) {
  switch (algorithm) {
    case AllReduceAlgorithm::kRing:
      return RingAllReduce(task.members, member, task.elements);
    case AllReduceAlgorithm::kRecursiveDoubling:
      return RecursiveDoublingAllReduce(task.members, member, task.elements);
    case AllReduceAlgorithm::kHalvingDoubling:
      return HalvingDoublingAllReduce(task.members, member, task.elements);
    case AllReduceAlgorithm::kTree:
      return TreeAllReduce(task.members, member, task.elements);
    case AllReduceAlgorithm::kHierarchical:
      break;
  }
  std::vector<int> hosts = task.hosts;
  hosts.resize(task.members, 0);
  return HierarchicalAllReduce(hosts, member, task.elements);
}

}  // namespace weft
