#include "graph/schedule/quick_placement.h"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <tuple>

#include "absl/container/btree_set.h"

namespace weft {
namespace {

// One end of an arena: what is taken lies from 0 up, with holes in it. A list of pieces in the
// order of their offsets, of which the last is never a hole, and the holes by size.
class ArenaEnd {
 public:
  int64_t top() const { return last_ < 0 ? 0 : pieces_[last_].end; }

  // The size of the smallest hole of at least `bytes`; -1 if there is none.
  int64_t SmallestHole(int64_t bytes) const {
    const auto hole = holes_.lower_bound({bytes, 0, 0});
    return hole == holes_.end() ? -1 : hole->bytes;
  }

  // Takes the low end of that hole, the lowest of equal ones, or what comes after the top. Returns
  // the piece.
  int Take(int64_t bytes) {
    const auto hole = holes_.lower_bound({bytes, 0, 0});
    if (hole == holes_.end()) return Append(bytes);
    const int piece = hole->piece;
    holes_.erase(hole);
    Piece& taken = pieces_[piece];
    taken.is_hole = false;
    const int64_t end = taken.begin + bytes;
    if (end == taken.end) return piece;
    const Piece rest = {end, taken.end, piece, taken.next, true};
    taken.end = end;
    const int added = NewPiece(rest);  // may move `taken`
    pieces_[piece].next = added;
    pieces_[rest.next].previous = added;
    AddHole(added);
    return piece;
  }

  int64_t offset(int piece) const { return pieces_[piece].begin; }

  void Free(int piece) {
    if (piece == last_) {
      Drop(piece);
      if (last_ >= 0 && pieces_[last_].is_hole) {
        EraseHole(last_);
        Drop(last_);
      }
      return;
    }
    const int next = pieces_[piece].next;
    if (pieces_[next].is_hole) {
      EraseHole(next);
      pieces_[piece].end = pieces_[next].end;
      Unlink(next);
    }
    const int previous = pieces_[piece].previous;
    if (previous >= 0 && pieces_[previous].is_hole) {
      EraseHole(previous);
      pieces_[piece].begin = pieces_[previous].begin;
      Unlink(previous);
    }
    pieces_[piece].is_hole = true;
    AddHole(piece);
  }

 private:
  struct Piece {
    int64_t begin = 0;
    int64_t end = 0;
    int previous = -1;
    int next = -1;
    bool is_hole = false;
  };
  struct Hole {
    int64_t bytes = 0;
    int64_t begin = 0;
    int piece = 0;
    friend bool operator<(const Hole& a, const Hole& b) {
      return std::tie(a.bytes, a.begin) < std::tie(b.bytes, b.begin);
    }
  };

  Hole HoleOf(int piece) const {
    const Piece& hole = pieces_[piece];
    return {hole.end - hole.begin, hole.begin, piece};
  }
  void AddHole(int piece) { holes_.insert(HoleOf(piece)); }
  void EraseHole(int piece) { holes_.erase(HoleOf(piece)); }

  int NewPiece(const Piece& piece) {
    if (unused_.empty()) {
      pieces_.push_back(piece);
      return static_cast<int>(pieces_.size()) - 1;
    }
    const int reused = unused_.back();
    unused_.pop_back();
    pieces_[reused] = piece;
    return reused;
  }
  int Append(int64_t bytes) {
    const int piece = NewPiece({top(), top() + bytes, last_, -1, false});
    if (last_ >= 0) pieces_[last_].next = piece;
    last_ = piece;
    return piece;
  }
  // The last one.
  void Drop(int piece) {
    last_ = pieces_[piece].previous;
    if (last_ >= 0) pieces_[last_].next = -1;
    unused_.push_back(piece);
  }
  // Not the last one.
  void Unlink(int piece) {
    const Piece gone = pieces_[piece];
    if (gone.previous >= 0) pieces_[gone.previous].next = gone.next;
    pieces_[gone.next].previous = gone.previous;
    unused_.push_back(piece);
  }

  std::vector<Piece> pieces_;
  std::vector<int> unused_;
  int last_ = -1;
  absl::btree_set<Hole> holes_;
};

// The highest offset that is taken at each time, in a tree over time whose inner nodes hold the
// maximum of what was raised in their stretch.
class Heights {
 public:
  explicit Heights(int times) : size_(static_cast<size_t>(times)), nodes_(2 * size_) {}

  // The maximum from `first` to `last`, both included.
  int64_t Highest(int first, int last) const {
    size_t low = first + size_;
    size_t high = last + size_ + 1;
    int64_t highest = 0;
    for (size_t node = low; node > 0; node /= 2) highest = std::max(highest, nodes_[node].all);
    for (size_t node = high - 1; node > 0; node /= 2) highest = std::max(highest, nodes_[node].all);
    for (; low < high; low /= 2, high /= 2) {
      if (low % 2 == 1) highest = std::max(highest, AnyOf(low++));
      if (high % 2 == 1) highest = std::max(highest, AnyOf(--high));
    }
    return highest;
  }

  // To at least `height`.
  void Raise(int first, int last, int64_t height) {
    size_t low = first + size_;
    size_t high = last + size_ + 1;
    for (; low < high; low /= 2, high /= 2) {
      if (low % 2 == 1) RaiseAll(low++, height);
      if (high % 2 == 1) RaiseAll(--high, height);
    }
  }

 private:
  struct Node {
    int64_t all = 0;  // raised over the whole stretch
    int64_t any = 0;  // raised anywhere below
  };
  int64_t AnyOf(size_t node) const { return std::max(nodes_[node].all, nodes_[node].any); }
  void RaiseAll(size_t node, int64_t height) {
    nodes_[node].all = std::max(nodes_[node].all, height);
    for (node /= 2; node > 0 && nodes_[node].any < height; node /= 2) nodes_[node].any = height;
  }

  size_t size_;
  std::vector<Node> nodes_;
};

// Indices of blocks by time(block), larger blocks first at the same time, then by index.
template <typename TimeFn>
std::vector<int> SortByTime(const std::vector<TimedBlock>& blocks, TimeFn time) {
  std::vector<int> order;
  order.reserve(blocks.size());
  for (size_t i = 0; i < blocks.size(); ++i) {
    if (blocks[i].bytes > 0) order.push_back(static_cast<int>(i));
  }
  std::sort(order.begin(), order.end(), [&](int a, int b) {
    return std::tuple(time(blocks[a]), -blocks[a].bytes, a) <
           std::tuple(time(blocks[b]), -blocks[b].bytes, b);
  });
  return order;
}

int LengthOf(const TimedBlock& block) { return block.last - block.first + 1; }

}  // namespace

PlacementSweep::PlacementSweep(const std::vector<TimedBlock>& blocks, int times)
    : blocks_(blocks),
      times_(times),
      by_first_(SortByTime(blocks, [](const TimedBlock& block) { return block.first; })),
      by_last_(SortByTime(blocks, [&](const TimedBlock& block) { return times - block.last; })) {}

Placement PlacementSweep::Place(Direction direction, int long_time) const {
  const bool is_forward = direction == Direction::kForward;
  const std::vector<int>& begins = is_forward ? by_first_ : by_last_;
  const std::vector<int>& ends = is_forward ? by_last_ : by_first_;  // the last one is the first
  const auto begin_of = [&](int i) {
    return is_forward ? blocks_[i].first : times_ - blocks_[i].last;
  };
  const auto end_of = [&](int i) {
    return is_forward ? blocks_[i].last : times_ - blocks_[i].first;
  };
  Placement placement;
  placement.offsets.assign(blocks_.size(), 0);
  ArenaEnd arena_ends[2];
  std::vector<int> pieces(blocks_.size());
  std::vector<bool> is_high(blocks_.size());
  auto ending = ends.rbegin();
  for (const int i : begins) {
    for (; end_of(*ending) < begin_of(i); ++ending) {
      arena_ends[is_high[*ending] ? 1 : 0].Free(pieces[*ending]);
    }
    const int64_t bytes = blocks_[i].bytes;
    const int64_t low_hole = arena_ends[0].SmallestHole(bytes);
    bool high = LengthOf(blocks_[i]) < long_time;
    if (high) {
      const int64_t high_hole = arena_ends[1].SmallestHole(bytes);
      high = low_hole < 0 || (high_hole >= 0 && high_hole <= low_hole);
    }
    is_high[i] = high;
    ArenaEnd& end = arena_ends[high ? 1 : 0];
    pieces[i] = end.Take(bytes);
    placement.offsets[i] = end.offset(pieces[i]);
    placement.arena_bytes =
        std::max(placement.arena_bytes, arena_ends[0].top() + arena_ends[1].top());
  }
  for (const int i : begins) {
    int64_t& offset = placement.offsets[i];
    if (is_high[i]) offset = placement.arena_bytes - offset - blocks_[i].bytes;
  }
  return placement;
}

Placement PlaceInTowers(const std::vector<TimedBlock>& blocks, int times) {
  Placement placement;
  placement.offsets.assign(blocks.size(), 0);
  Heights heights(times);
  for (const int i : SortByTime(blocks, [](const TimedBlock& block) { return -LengthOf(block); })) {
    const TimedBlock& block = blocks[i];
    int64_t& offset = placement.offsets[i];
    offset = heights.Highest(block.first, block.last);
    heights.Raise(block.first, block.last, offset + block.bytes);
    placement.arena_bytes = std::max(placement.arena_bytes, offset + block.bytes);
  }
  return placement;
}

}  // namespace weft
