// Places blocks of memory in near linear time: a sweep over time with a free list, and towers.
#ifndef WEFT_GRAPH_SCHEDULE_QUICK_PLACEMENT_H_
#define WEFT_GRAPH_SCHEDULE_QUICK_PLACEMENT_H_

#include <cstdint>
#include <vector>

namespace weft {

// A piece of memory that must exist from time `first` to `last`, both included.
struct TimedBlock {
  int64_t bytes = 0;
  int first = 0;
  int last = 0;
};

// Where each block lies. Offsets are sums of sizes of blocks, so what divides all sizes divides
// them too.
struct Placement {
  std::vector<int64_t> offsets;  // one per block, 0 for one of no bytes
  int64_t arena_bytes = 0;       // the end of the highest one
};

// Blocks in the order in which they begin and in which they end. Borrows the blocks.
// Thread-compatible.
class PlacementSweep {
 public:
  // REQUIRES: 0 <= first <= last < times for each block.
  PlacementSweep(const std::vector<TimedBlock>& blocks, int times);

  enum class Direction { kForward, kBackward };
  // Goes through time in `direction`. Each block that begins takes the smallest hole that fits
  // (best fit, Knuth, The Art of Computer Programming, volume 1, 2.5); what ends is freed and
  // joined with the holes beside it. Without a hole, a block of at least `long_time` instants comes
  // on top of the low end of the arena, a shorter one below its high end. So those that live long
  // lie side by side, and what comes and goes leaves no holes among them. Takes O(n log n) for n
  // blocks.
  Placement Place(Direction direction, int long_time) const;

 private:
  const std::vector<TimedBlock>& blocks_;
  int times_;
  std::vector<int> by_first_;  // blocks; larger ones first where several begin, or end
  std::vector<int> by_last_;
};

// Puts each block, those that live longest first, on the highest that it meets in time. No arena is
// smaller where of any two blocks that meet one lives within the other, as in a forward and a
// backward pass. Takes O(n log n). REQUIRES: as PlacementSweep.
Placement PlaceInTowers(const std::vector<TimedBlock>& blocks, int times);

}  // namespace weft

#endif  // WEFT_GRAPH_SCHEDULE_QUICK_PLACEMENT_H_
