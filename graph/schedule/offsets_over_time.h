// Which offsets of an arena are taken, and when.
#ifndef WEFT_GRAPH_SCHEDULE_OFFSETS_OVER_TIME_H_
#define WEFT_GRAPH_SCHEDULE_OFFSETS_OVER_TIME_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace weft {

// Half-open.
struct OffsetRange {
  int64_t begin = 0;
  int64_t end = 0;
};

// A segment tree over time whose nodes hold the union of what is taken in their stretch. Buffers of
// one kind lie side by side, so that a union has few ranges, however many micro-batches a step has;
// a search then looks at a number of them that grows with the logarithm of time. Where
// blocks have nothing in common, it looks at as many as there are: users bound that by looks().
//
// Not thread-safe.
class OffsetsOverTime {
 public:
  // Times are 0 .. times - 1.
  explicit OffsetsOverTime(int times);

  // Nothing is taken any more.
  void Clear();
  // Takes [offset, offset + bytes) from time `first` to `last`, both included. What others have
  // taken may be taken again. REQUIRES: 0 <= first <= last < times, offset >= 0, bytes > 0.
  void Take(int first, int last, int64_t offset, int64_t bytes);
  // Where the smallest gap of at least `bytes` begins that is free from `first` to `last`, the
  // lowest of equal ones; the end of all that is taken then, if no gap is large enough.
  // REQUIRES: bytes > 0, times as above.
  int64_t FindGap(int first, int last, int64_t bytes);
  // How many nodes and ranges all searches have looked at: what they took, on any machine alike.
  int64_t looks() const { return looks_; }

 private:
  // Ascending, with gaps between them.
  using Ranges = std::vector<OffsetRange>;
  struct Node {
    Ranges throughout;  // taken over all of its stretch, but not over all of its parent's
    Ranges sometime;    // taken at any time of its stretch
  };
  // A node and its stretch [begin, end).
  struct Place {
    size_t node = 1;
    int begin = 0;
    int end = 0;
  };
  static void Add(OffsetRange range, Ranges& ranges);
  void Take(const Place& place, int first, int last, OffsetRange range);
  void FindTaken(const Place& place, int first, int last);
  int64_t DropSolid();

  int size_ = 1;             // a power of two
  std::vector<Node> nodes_;  // the halves of node i are 2 i and 2 i + 1; 1 is the root
  int64_t looks_ = 0;
  // Of a search.
  std::vector<std::span<const OffsetRange>> taken_;
  Ranges sorted_;
};

}  // namespace weft

#endif  // WEFT_GRAPH_SCHEDULE_OFFSETS_OVER_TIME_H_
