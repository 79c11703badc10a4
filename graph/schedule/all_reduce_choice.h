// The fastest all-reduce algorithm for given members, bytes and hosts.
#ifndef WEFT_GRAPH_SCHEDULE_ALL_REDUCE_CHOICE_H_
#define WEFT_GRAPH_SCHEDULE_ALL_REDUCE_CHOICE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "graph/schedule/collective_schedule.h"

namespace weft {

// The algorithms of an all-reduce in any order (law 5 of docs/architecture.md).
enum class AllReduceAlgorithm : uint8_t {
  kRing,
  kRecursiveDoubling,
  kHalvingDoubling,
  kTree,
  kHierarchical,
};
std::string_view AllReduceAlgorithmName(AllReduceAlgorithm algorithm);  // "halving_doubling"
std::optional<AllReduceAlgorithm> ParseAllReduceAlgorithm(std::string_view name);

// What all members must agree on.
struct AllReduceTask {
  int members = 1;
  std::vector<int> hosts;  // of each member, any numbers; empty: all on one
  int64_t elements = 0;
  int64_t element_bytes = 1;
};

// Two members exchange all: one round, as many bytes as any way. More of them take what costs least
// of recursive doubling, halving-doubling and the ring: the rounds and bytes of the member that has
// most of them, a round counted like 8 KiB sent. That is recursive doubling for little data (four
// members: up to 32 KiB, which are sent twice). For much, powers of two take halving-doubling and
// other numbers the ring, with the fewest bytes; between, nine members and more may take
// halving-doubling too. Where it is not recursive doubling, and the members share several hosts
// with two or more on each, the hierarchical one is taken instead. Nobody asks this of ordered sums
// (strict mode), nor where a node names its algorithm: node_collective.cc.
AllReduceAlgorithm FastestAllReduce(const AllReduceTask& task);

CollectiveSchedule AllReduceBy(AllReduceAlgorithm algorithm, const AllReduceTask& task, int member);

}  // namespace weft

#endif  // WEFT_GRAPH_SCHEDULE_ALL_REDUCE_CHOICE_H_
