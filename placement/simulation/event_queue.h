// What happens next in virtual time. Internal to simulation/.
#ifndef WEFT_PLACEMENT_SIMULATION_EVENT_QUEUE_H_
#define WEFT_PLACEMENT_SIMULATION_EVENT_QUEUE_H_

#include <cstdint>
#include <queue>
#include <vector>

namespace weft {

// An event that the simulator will handle at a time.
struct PendingEvent {
  enum class Kind : uint8_t {
    kStepBegins,       // of rank `index`: its overhead is over
    kInstructionEnds,  // of rank `index`
    kSent,             // rank `index` has handed its message to the link
    kMessageArrived,   // that rank `index` waits for
    kCreditFree,       // that rank `index` waits for
    kCollectiveEnds,   // collective `index`
  };
  double time = 0;
  uint64_t order = 0;
  Kind kind = Kind::kStepBegins;
  int32_t index = 0;
};

// By time; those of one time in the order in which they were added.
class EventQueue {
 public:
  void Add(double time, PendingEvent::Kind kind, int32_t index) {
    queue_.push({time, next_++, kind, index});
  }
  bool empty() const { return queue_.empty(); }
  PendingEvent Pop() {
    const PendingEvent event = queue_.top();
    queue_.pop();
    return event;
  }

 private:
  struct Later {
    bool operator()(const PendingEvent& a, const PendingEvent& b) const {
      return a.time != b.time ? a.time > b.time : a.order > b.order;
    }
  };
  std::priority_queue<PendingEvent, std::vector<PendingEvent>, Later> queue_;
  uint64_t next_ = 0;
};

}  // namespace weft

#endif  // WEFT_PLACEMENT_SIMULATION_EVENT_QUEUE_H_
