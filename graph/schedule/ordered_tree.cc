// The sum in the order of one binary tree, whoever holds its leaves.
#include <algorithm>

#include "graph/schedule/collective_schedule.h"
#include "graph/schedule/schedule_writer.h"

namespace weft {
namespace {

// Reduces the blocks inside [first, last) and returns the index of the block that holds the sum, or
// -1 where `blocks` does not tile the range.
int AddTree(const std::vector<LeafRange>& blocks, int first, int last,
            std::vector<std::pair<int, int>>& additions) {
  for (size_t i = 0; i < blocks.size(); ++i) {
    if (blocks[i].first == first && blocks[i].last == last) return static_cast<int>(i);
  }
  if (last - first < 2) return -1;
  const int middle = first + PowerOfTwoIn(last - first - 1);
  const int left = AddTree(blocks, first, middle, additions);
  const int right = AddTree(blocks, middle, last, additions);
  if (left >= 0 && right >= 0) additions.push_back({left, right});
  return left;
}

// One block of leaves at its owner: whose it is, and where its slice lies while it is added.
struct GatheredBlock {
  LeafRange leaves;
  int member = 0;
  BufferRange slice;
};

// The slices `slice` of all blocks as the owner `member` holds them: its own in place, the others'
// in buffer 1, one after the other.
std::vector<GatheredBlock> GatherPlaces(const std::vector<std::vector<LeafRange>>& blocks,
                                        int member, BufferRange slice, int64_t elements) {
  std::vector<GatheredBlock> places;
  int64_t scratch = 0;
  for (size_t m = 0; m < blocks.size(); ++m) {
    for (size_t b = 0; b < blocks[m].size(); ++b) {
      GatheredBlock place{blocks[m][b], static_cast<int>(m), slice};
      if (place.member == member) {
        place.slice.first += static_cast<int64_t>(b) * elements;
      } else {
        place.slice.buffer = 1;
        place.slice.first = scratch;
        scratch += slice.count;
      }
      places.push_back(place);
    }
  }
  return places;
}

// Sends every other owner its slice of each of this member's blocks.
void WriteBlockSends(int blocks, int member, const std::vector<BufferRange>& slices,
                     int64_t elements, ScheduleWriter& writer) {
  const int n = static_cast<int>(slices.size());
  for (int step = 1; step < n; ++step) {
    const int owner = (member + step) % n;
    for (int b = 0; b < blocks; ++b) {
      BufferRange source = slices[owner];
      source.first += static_cast<int64_t>(b) * elements;
      writer.Send(owner, source);
    }
  }
}

void WriteOwnerAdditions(const std::vector<GatheredBlock>& places, int member, int total_leaves,
                         BufferRange result, ScheduleWriter& writer) {
  std::vector<LeafRange> leaves;
  for (const GatheredBlock& place : places) {
    leaves.push_back(place.leaves);
    if (place.member != member) writer.Receive(place.member, place.slice);
  }
  for (const auto& [target, source] : TreeAdditions(leaves)) {
    writer.Reduce(places[source].slice, places[target].slice);
  }
  if (total_leaves == 0 || places.empty()) return;
  const BufferRange& sum = places[0].slice;
  if (sum.buffer != result.buffer || sum.first != result.first) writer.Copy(sum, result);
}

}  // namespace

CollectiveSchedule OrderedTreeAllReduce(const std::vector<std::vector<LeafRange>>& blocks,
                                        int member, int total_leaves, int64_t elements) {
  const int n = static_cast<int>(blocks.size());
  const int own = static_cast<int>(blocks[member].size());
  const std::vector<BufferRange> slices = EvenRanges(n, elements);
  const BufferRange mine = slices[member];
  const std::vector<GatheredBlock> places = GatherPlaces(blocks, member, mine, elements);
  ScheduleWriter writer;
  WriteBlockSends(own, member, slices, elements, writer);
  WriteOwnerAdditions(places, member, total_leaves, mine, writer);
  for (int step = 1; step < n; ++step) writer.Send((member + step) % n, mine);
  for (int step = 1; step < n; ++step) {
    const int owner = (member + n - step) % n;
    writer.Receive(owner, slices[owner]);
  }
  const int64_t gathered = static_cast<int64_t>(places.size()) - own;
  return writer.Finish({std::max(own, 1) * elements, gathered * mine.count});
}

std::vector<LeafRange> AlignedBlocks(int first, int last, int total_leaves) {
  std::vector<LeafRange> blocks;
  last = std::min(last, total_leaves);
  while (first < last) {
    int size = 1;
    while (first % (size * 2) == 0 && first + size * 2 <= last) size *= 2;
    blocks.push_back({first, first + size});
    first += size;
  }
  return blocks;
}

std::vector<std::pair<int, int>> TreeAdditions(const std::vector<LeafRange>& blocks) {
  std::vector<std::pair<int, int>> additions;
  if (!blocks.empty()) AddTree(blocks, blocks.front().first, blocks.back().last, additions);
  return additions;
}

}  // namespace weft
