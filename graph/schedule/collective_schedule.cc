#include "graph/schedule/collective_schedule.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace weft {
namespace {

using Kind = CollectiveStep::Kind;

std::string RangeToString(const BufferRange& range) {
  return absl::StrCat("b", range.buffer, "[", range.first, "+", range.count, "]");
}

// Collects the steps of one member; steps over nothing are left out (on both sides alike, since the
// sizes are the same on all members).
class ScheduleWriter {
 public:
  void Send(int peer, BufferRange source) { Add({Kind::kSend, peer, source, {}}); }
  void Receive(int peer, BufferRange target) { Add({Kind::kReceive, peer, {}, target}); }
  void Reduce(BufferRange source, BufferRange target) { Add({Kind::kReduce, -1, source, target}); }
  void Copy(BufferRange source, BufferRange target) { Add({Kind::kCopy, -1, source, target}); }
  CollectiveSchedule Finish(std::vector<int64_t> buffer_elements) {
    return {std::move(buffer_elements), std::move(steps_)};
  }

 private:
  void Add(CollectiveStep step) {
    const BufferRange& range = step.kind == Kind::kReceive ? step.target : step.source;
    if (range.count > 0) steps_.push_back(step);
  }
  std::vector<CollectiveStep> steps_;
};

// Consecutive ranges of buffer 0, one per member.
std::vector<BufferRange> RangesOf(const std::vector<int64_t>& counts) {
  std::vector<BufferRange> ranges;
  int64_t first = 0;
  for (int64_t count : counts) {
    ranges.push_back({0, first, count});
    first += count;
  }
  return ranges;
}

// `elements` in `members` pieces, the first ones one longer.
std::vector<BufferRange> EvenRanges(int members, int64_t elements) {
  std::vector<int64_t> counts(members, elements / members);
  for (int64_t i = 0; i < elements % members; ++i) ++counts[i];
  return RangesOf(counts);
}

int64_t LongestOf(const std::vector<BufferRange>& ranges) {
  int64_t longest = 0;
  for (const BufferRange& range : ranges) longest = std::max(longest, range.count);
  return longest;
}

int64_t TotalOf(const std::vector<BufferRange>& ranges) {
  return ranges.empty() ? 0 : ranges.back().first + ranges.back().count;
}

// After it, member m's range (m + shift) mod n holds the sum. Needs scratch buffer 1 of
// LongestOf(ranges).
void WriteRingReduceScatter(const std::vector<BufferRange>& ranges, int member, int shift,
                            ScheduleWriter& writer) {
  const int n = static_cast<int>(ranges.size());
  const auto at = [&](int i) { return ranges[((i % n) + n) % n]; };
  for (int round = 0; round < n - 1; ++round) {
    const BufferRange incoming = at(member + shift - round - 2);
    const BufferRange scratch{1, 0, incoming.count};
    writer.Send((member + 1) % n, at(member + shift - round - 1));
    writer.Receive((member + n - 1) % n, scratch);
    writer.Reduce(scratch, incoming);
  }
}

// Member m starts with range (m + shift) mod n and ends with all.
void WriteRingAllGather(const std::vector<BufferRange>& ranges, int member, int shift,
                        ScheduleWriter& writer) {
  const int n = static_cast<int>(ranges.size());
  const auto at = [&](int i) { return ranges[((i % n) + n) % n]; };
  for (int round = 0; round < n - 1; ++round) {
    writer.Send((member + 1) % n, at(member + shift - round));
    writer.Receive((member + n - 1) % n, at(member + shift - round - 1));
  }
}

int LargestPowerOfTwoBelow(int n) {
  int power = 1;
  while (power * 2 < n) power *= 2;
  return power;
}

// Reduces the blocks inside [first, last) and returns the index of the block that holds the sum, or
// -1 where `blocks` does not tile the range.
int AddTree(const std::vector<LeafRange>& blocks, int first, int last,
            std::vector<std::pair<int, int>>& additions) {
  for (size_t i = 0; i < blocks.size(); ++i) {
    if (blocks[i].first == first && blocks[i].last == last) return static_cast<int>(i);
  }
  if (last - first < 2) return -1;
  const int middle = first + LargestPowerOfTwoBelow(last - first);
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

int64_t CollectiveSchedule::elements_sent() const {
  int64_t sent = 0;
  for (const CollectiveStep& step : steps) {
    if (step.kind == Kind::kSend) sent += step.source.count;
  }
  return sent;
}

std::string CollectiveSchedule::ToString() const {
  std::string text = "buffers";
  for (int64_t elements : buffer_elements) absl::StrAppend(&text, " ", elements);
  for (const CollectiveStep& step : steps) {
    switch (step.kind) {
      case Kind::kSend:
        absl::StrAppend(&text, "\nsend ", RangeToString(step.source), " to ", step.peer);
        break;
      case Kind::kReceive:
        absl::StrAppend(&text, "\nreceive ", RangeToString(step.target), " from ", step.peer);
        break;
      case Kind::kReduce:
        absl::StrAppend(&text, "\nreduce ", RangeToString(step.target),
                        " += ", RangeToString(step.source));
        break;
      case Kind::kCopy:
        absl::StrAppend(&text, "\ncopy ", RangeToString(step.target), " = ",
                        RangeToString(step.source));
        break;
    }
  }
  return text;
}

CollectiveSchedule RecursiveDoublingAllReduce(int members, int member, int64_t elements) {
  int power = 1;
  while (power * 2 <= members) power *= 2;
  const BufferRange own{0, 0, elements};
  const BufferRange scratch{1, 0, elements};
  ScheduleWriter writer;
  const auto add_from = [&](int peer) {
    writer.Receive(peer, scratch);
    writer.Reduce(scratch, own);
  };
  if (member >= power) {
    writer.Send(member - power, own);
    writer.Receive(member - power, own);
    return writer.Finish({elements, 0});
  }
  const bool has_partner_above = member + power < members;
  if (has_partner_above) add_from(member + power);
  for (int distance = 1; distance < power; distance *= 2) {
    writer.Send(member ^ distance, own);
    add_from(member ^ distance);
  }
  if (has_partner_above) writer.Send(member + power, own);
  return writer.Finish({elements, members > 1 ? elements : 0});
}

CollectiveSchedule AllReduceOfSize(int members, int member, int64_t elements,
                                   int64_t element_bytes) {
  constexpr int64_t kSmall = 32 << 10;
  const bool exchange = members <= 2 || elements * element_bytes <= kSmall;
  return exchange ? RecursiveDoublingAllReduce(members, member, elements)
                  : RingAllReduce(members, member, elements);
}

CollectiveSchedule RingAllReduce(int members, int member, int64_t elements) {
  const std::vector<BufferRange> ranges = EvenRanges(members, elements);
  ScheduleWriter writer;
  WriteRingReduceScatter(ranges, member, /*shift=*/0, writer);
  WriteRingAllGather(ranges, member, /*shift=*/0, writer);
  return writer.Finish({elements, members > 1 ? LongestOf(ranges) : 0});
}

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

CollectiveSchedule RingAllGather(const std::vector<int64_t>& counts, int member) {
  const std::vector<BufferRange> ranges = RangesOf(counts);
  ScheduleWriter writer;
  WriteRingAllGather(ranges, member, /*shift=*/0, writer);
  return writer.Finish({TotalOf(ranges)});
}

CollectiveSchedule RingReduceScatter(const std::vector<int64_t>& counts, int member) {
  const std::vector<BufferRange> ranges = RangesOf(counts);
  ScheduleWriter writer;
  WriteRingReduceScatter(ranges, member, /*shift=*/0, writer);
  return writer.Finish({TotalOf(ranges), counts.size() > 1 ? LongestOf(ranges) : 0});
}

CollectiveSchedule TreeBroadcast(int members, int member, int root, int64_t elements) {
  const BufferRange all{0, 0, elements};
  const int position = (member - root + members) % members;  // the root is at 0
  int reach = 1;  // the member receives from position - reach, its lowest set bit
  while (reach < members && (position & reach) == 0) reach *= 2;
  ScheduleWriter writer;
  if (position != 0) writer.Receive((position - reach + root) % members, all);
  for (int step = reach / 2; step >= 1; step /= 2) {
    if (position + step < members) writer.Send((position + step + root) % members, all);
  }
  return writer.Finish({elements});
}

}  // namespace weft
