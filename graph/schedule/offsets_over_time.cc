#include "graph/schedule/offsets_over_time.h"

#include <algorithm>
#include <limits>

namespace weft {

OffsetsOverTime::OffsetsOverTime(int times) {
  while (size_ < times) size_ *= 2;
  nodes_.resize(2 * static_cast<size_t>(size_));
}

void OffsetsOverTime::Clear() {
  for (Node& node : nodes_) {
    node.throughout.clear();
    node.sometime.clear();
  }
}

// What overlaps or touches becomes one range.
void OffsetsOverTime::Add(OffsetRange range, Ranges& ranges) {
  const auto first =
      std::lower_bound(ranges.begin(), ranges.end(), range.begin,
                       [](const OffsetRange& known, int64_t begin) { return known.end < begin; });
  auto last = first;
  for (; last != ranges.end() && last->begin <= range.end; ++last) {
    range.begin = std::min(range.begin, last->begin);
    range.end = std::max(range.end, last->end);
  }
  if (first == last) {
    ranges.insert(first, range);
    return;
  }
  *first = range;
  ranges.erase(first + 1, last);
}

void OffsetsOverTime::Take(int first, int last, int64_t offset, int64_t bytes) {
  Take({1, 0, size_}, first, last, {offset, offset + bytes});
}

void OffsetsOverTime::Take(const Place& place, int first, int last, OffsetRange range) {
  Node& node = nodes_[place.node];
  Add(range, node.sometime);
  if (first <= place.begin && place.end - 1 <= last) {
    Add(range, node.throughout);
    return;
  }
  const int middle = (place.begin + place.end) / 2;
  if (first < middle) Take({2 * place.node, place.begin, middle}, first, last, range);
  if (last >= middle) Take({2 * place.node + 1, middle, place.end}, first, last, range);
}

void OffsetsOverTime::FindTaken(const Place& place, int first, int last) {
  const Node& node = nodes_[place.node];
  const bool is_within = first <= place.begin && place.end - 1 <= last;
  taken_.push_back(is_within ? node.sometime : node.throughout);
  looks_ += 1 + static_cast<int64_t>(taken_.back().size());
  if (is_within) return;
  const int middle = (place.begin + place.end) / 2;
  if (first < middle) FindTaken({2 * place.node, place.begin, middle}, first, last);
  if (last >= middle) FindTaken({2 * place.node + 1, middle, place.end}, first, last);
}

// The arena is most often solid from its begin to somewhere: that needs no sorting. Returns the end
// of it and leaves what is beyond.
int64_t OffsetsOverTime::DropSolid() {
  int64_t solid = 0;
  for (bool grows = true; grows;) {
    grows = false;
    for (std::span<const OffsetRange>& ranges : taken_) {
      while (!ranges.empty() && ranges.front().begin <= solid) {
        grows = grows || ranges.front().end > solid;
        solid = std::max(solid, ranges.front().end);
        ranges = ranges.subspan(1);
      }
    }
  }
  return solid;
}

int64_t OffsetsOverTime::FindGap(int first, int last, int64_t bytes) {
  taken_.clear();
  FindTaken({1, 0, size_}, first, last);
  int64_t end = DropSolid();
  sorted_.clear();
  for (const std::span<const OffsetRange> ranges : taken_) {
    sorted_.insert(sorted_.end(), ranges.begin(), ranges.end());
  }
  std::sort(sorted_.begin(), sorted_.end(),
            [](const OffsetRange& a, const OffsetRange& b) { return a.begin < b.begin; });
  int64_t best_gap = std::numeric_limits<int64_t>::max();
  int64_t best = -1;
  for (const OffsetRange& range : sorted_) {
    const int64_t gap = range.begin - end;
    const bool is_better = gap >= bytes && gap < best_gap;
    best_gap = is_better ? gap : best_gap;
    best = is_better ? end : best;
    end = std::max(end, range.end);
  }
  return best >= 0 ? best : end;
}

}  // namespace weft
