// The steps of a collective algorithm on one member, as data.
#ifndef WEFT_GRAPH_SCHEDULE_COLLECTIVE_STEPS_H_
#define WEFT_GRAPH_SCHEDULE_COLLECTIVE_STEPS_H_

#include <cstdint>
#include <string>
#include <vector>

namespace weft {

// A range of elements of one of the member's buffers. Buffer 0 is the collective's own data (in and
// out, in place); buffers >= 1 are scratch that the schedule asks for.
struct BufferRange {
  int buffer = 0;
  int64_t first = 0;
  int64_t count = 0;
};

// Executed in list order on each member. A send never waits for the receiver; a receive waits for
// its message. Messages between two members are matched in order.
struct CollectiveStep {
  enum class Kind : uint8_t {
    kSend,     // `source` to member `peer`
    kReceive,  // from member `peer` into `target`
    kReduce,   // target += source, element by element
    kCopy,     // target = source
  };
  Kind kind = Kind::kSend;
  int peer = -1;  // index in the group
  BufferRange source;
  BufferRange target;
};

// One member's part of a collective: steps over numbered buffers. Counts are in elements.
struct CollectiveSchedule {
  std::vector<int64_t> buffer_elements;  // elements of buffer 0, 1, ...
  std::vector<CollectiveStep> steps;
  // Elements this member sends in all.
  int64_t elements_sent() const;
  std::string ToString() const;
};

}  // namespace weft

#endif  // WEFT_GRAPH_SCHEDULE_COLLECTIVE_STEPS_H_
