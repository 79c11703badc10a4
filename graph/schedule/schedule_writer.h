// Building blocks of the generators of collective schedules. Internal to graph/schedule/.
#ifndef WEFT_GRAPH_SCHEDULE_SCHEDULE_WRITER_H_
#define WEFT_GRAPH_SCHEDULE_SCHEDULE_WRITER_H_

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "graph/schedule/collective_steps.h"

namespace weft {

// Collects the steps of one member; steps over nothing are left out (on both sides alike, since the
// sizes are the same on all members).
class ScheduleWriter {
 public:
  void Send(int peer, BufferRange source) {
    Add({CollectiveStep::Kind::kSend, peer, source, {}}, source.count);
  }
  void Receive(int peer, BufferRange target) {
    Add({CollectiveStep::Kind::kReceive, peer, {}, target}, target.count);
  }
  void Reduce(BufferRange source, BufferRange target) {
    Add({CollectiveStep::Kind::kReduce, -1, source, target}, source.count);
  }
  void Copy(BufferRange source, BufferRange target) {
    Add({CollectiveStep::Kind::kCopy, -1, source, target}, source.count);
  }
  // target += what `peer` sends, by way of scratch buffer 1.
  void ReceiveAndAdd(int peer, BufferRange target) {
    const BufferRange scratch{1, 0, target.count};
    scratch_ = std::max(scratch_, target.count);
    Receive(peer, scratch);
    Reduce(scratch, target);
  }
  // The steps of a schedule among `members` (of this group) over the elements of buffer 0 from
  // `first` on; its buffer 1 is the scratch of ReceiveAndAdd.
  void Embed(const CollectiveSchedule& part, const std::vector<int>& members, int64_t first) {
    for (CollectiveStep step : part.steps) {
      if (step.peer >= 0) step.peer = members[step.peer];
      if (step.source.buffer == 0) step.source.first += first;
      if (step.target.buffer == 0) step.target.first += first;
      steps_.push_back(step);
    }
    if (part.buffer_elements.size() > 1) scratch_ = std::max(scratch_, part.buffer_elements[1]);
  }

  CollectiveSchedule Finish(std::vector<int64_t> buffer_elements) {
    return {std::move(buffer_elements), std::move(steps_)};
  }
  // Buffer 0 of `elements`, and the scratch that was asked for.
  CollectiveSchedule FinishWithScratch(int64_t elements) { return Finish({elements, scratch_}); }

 private:
  void Add(CollectiveStep step, int64_t count) {
    if (count > 0) steps_.push_back(step);
  }
  std::vector<CollectiveStep> steps_;
  int64_t scratch_ = 0;
};

// Consecutive ranges of buffer 0.
inline std::vector<BufferRange> RangesOf(const std::vector<int64_t>& counts) {
  std::vector<BufferRange> ranges;
  int64_t first = 0;
  for (const int64_t count : counts) {
    ranges.push_back({0, first, count});
    first += count;
  }
  return ranges;
}

// `elements` in `pieces` ranges, the first ones one longer.
inline std::vector<BufferRange> EvenRanges(int pieces, int64_t elements) {
  std::vector<int64_t> counts(pieces, elements / pieces);
  for (int64_t i = 0; i < elements % pieces; ++i) ++counts[i];
  return RangesOf(counts);
}

inline int64_t TotalOf(const std::vector<BufferRange>& ranges) {
  return ranges.empty() ? 0 : ranges.back().first + ranges.back().count;
}

// The largest power of two that is at most n. REQUIRES n >= 1.
inline int PowerOfTwoIn(int n) {
  int power = 1;
  while (power * 2 <= n) power *= 2;
  return power;
}

}  // namespace weft

#endif  // WEFT_GRAPH_SCHEDULE_SCHEDULE_WRITER_H_
