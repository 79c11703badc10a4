// Collective algorithms as data: the sends, receives, sums and copies of each member, in
// rounds. The runtime executes it, the simulator times it, a test proves it.
#ifndef WEFT_GRAPH_SCHEDULE_COLLECTIVE_SCHEDULE_H_
#define WEFT_GRAPH_SCHEDULE_COLLECTIVE_SCHEDULE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "graph/schedule/collective_steps.h"

namespace weft {

// -- Generators. `member` of `members`; all members must be given the same sizes.

// Sum of `elements` over all members, in place: reduce-scatter around the ring, then all-gather;
// each member sends 2 (n - 1) / n of the data. (Patarasuk and Yuan, 2009.)
CollectiveSchedule RingAllReduce(int members, int member, int64_t elements);
// The same sum in the fewest rounds: with n = 2^k members each exchanges everything with one other
// in each of k rounds and sends k times the data; members beyond the largest power of two give
// theirs to one below it first and get the result last. (Recursive doubling: Thakur, Rabenseifner
// and Gropp, 2005.)
CollectiveSchedule RecursiveDoublingAllReduce(int members, int member, int64_t elements);
// As few bytes as the ring where n is a power of two, in 2 log2(n) rounds: recursive halving
// (reduce-scatter), then recursive doubling (all-gather). With n = p + r members, p the largest
// power of two: members m < r and m + p first add one half of the data each; the upper one sends
// its half back, 1 times the data in all, and gets the result last; the lower one sends
// 1/2 + 2 (p - 1) / p + 1 times the data. (Rabenseifner, 2004; Thakur, Rabenseifner and Gropp,
// 2005, section 4.5.)
CollectiveSchedule HalvingDoublingAllReduce(int members, int member, int64_t elements);
// Binomial trees: member 0 reduces, then broadcasts. Each member but 0 sends the data once up, and
// each sends it once down per child.
CollectiveSchedule TreeAllReduce(int members, int member, int64_t elements);
// Only the root ends with the sum; the others' data are spoilt. Each but the root sends the data
// once, in ceil(log2(n)) rounds.
CollectiveSchedule TreeReduce(int members, int member, int root, int64_t elements);

// Few bytes between hosts: `hosts[m]` is the host of member m, any numbers. With k the fewest
// members of a host, the first k members of each host own one k-th of the data: they sum it up in
// their host (reduce-scatter), then with the owners of the same piece on the other hosts, then give
// it to their host (all-gather). Where all hosts have k members, each sends
// 2 (k - 1) / k of the data inside its host and 2 (H - 1) / (H k) between the H hosts, both the
// least possible. (Goyal et al., 2017, section 4; NCCL's tree of rings is its like.)
CollectiveSchedule HierarchicalAllReduce(const std::vector<int>& hosts, int member,
                                         int64_t elements);

// The sum in the order of one binary tree over leaves 0..total_leaves-1, whatever the members
// (law 10 of docs/architecture.md). Member m holds the sums of some aligned blocks of leaves,
// `blocks[m]`, each a [first, last) range; the blocks of all members tile [0, total_leaves) in
// order. Buffer 0 holds this member's blocks one after the other (`elements` each); the result ends
// up in its first `elements`. Owner k of n collects slice k of every block, adds in tree order, and
// gives the slice to all.
struct LeafRange {
  int first = 0;
  int last = 0;
};
CollectiveSchedule OrderedTreeAllReduce(const std::vector<std::vector<LeafRange>>& blocks,
                                        int member, int total_leaves, int64_t elements);

// The maximal aligned power-of-two blocks that tile [first, last): the subtrees a replica can
// finish by itself.
std::vector<LeafRange> AlignedBlocks(int first, int last, int total_leaves);

// The additions that reduce `blocks` (which tile [0, total)) to one sum in tree order: each pair
// says "block a += block b", in order; the result is in block 0. The tree of n > 1 leaves splits
// them at the largest power of two below n.
std::vector<std::pair<int, int>> TreeAdditions(const std::vector<LeafRange>& blocks);

// Shards of sizes counts[m], one after the other in buffer 0; member m's own is in place at the
// start.
CollectiveSchedule RingAllGather(const std::vector<int64_t>& counts, int member);
// Inverse sums: at the end the member's own shard of buffer 0 holds the sum.
CollectiveSchedule RingReduceScatter(const std::vector<int64_t>& counts, int member);
// Root's buffer to all, along a binomial tree.
CollectiveSchedule TreeBroadcast(int members, int member, int root, int64_t elements);

// Every member gives each other one a piece of its own: `counts[from][to]` elements. Buffer 1 holds
// the member's pieces in the order of their receivers; afterwards buffer 0 holds what it got, in
// the order of the senders, its own piece among them. n - 1 rounds; it sends all but its own piece.
// (Pairwise exchange: Thakur, Rabenseifner and Gropp, 2005, section 4.4.)
CollectiveSchedule PairwiseAllToAll(const std::vector<std::vector<int64_t>>& counts, int member);

// Runs all members' schedules together; InvalidArgument on a receive that is never sent to, sizes
// that differ, or a range outside its buffer.
absl::Status ValidateSchedules(const std::vector<CollectiveSchedule>& members);

}  // namespace weft

#endif  // WEFT_GRAPH_SCHEDULE_COLLECTIVE_SCHEDULE_H_
