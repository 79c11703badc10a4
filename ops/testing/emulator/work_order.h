// Which work on a device comes before which: by its stream, by events, and by what the host waited
// for.
#ifndef WEFT_OPS_TESTING_EMULATOR_WORK_ORDER_H_
#define WEFT_OPS_TESTING_EMULATOR_WORK_ORDER_H_

#include <cstdint>
#include <map>
#include <memory>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "platform/mutex.h"
#include "tensor/testing/fake_stream.h"

namespace weft::testing {

// For each stream, the number of its last work that is over.
using WorkClock = std::map<uint32_t, uint64_t>;

class WorkOrder;

// A clock that was right at some point.
class WorkPast final : public FakePast {
 public:
  explicit WorkPast(WorkClock clock) : clock_(std::move(clock)) {}
  void SeenByHost() const override;
  const WorkClock& clock() const { return clock_; }

 private:
  const WorkClock clock_;
};

// The clocks of all streams of all emulated devices of the process, for their events order each
// other. A vector clock: "Time, Clocks, and the Ordering of Events in a Distributed System"
// (Lamport, 1978), extended to vectors by Fidge and Mattern. Thread-safe.
class WorkOrder {
 public:
  static WorkOrder& Global();

  uint32_t AddStream() ABSL_LOCKS_EXCLUDED(mutex_);
  // The host has waited for all its work.
  void RemoveStream(uint32_t stream) ABSL_LOCKS_EXCLUDED(mutex_);
  // The number of work that begins on a stream: it comes after what the stream has seen.
  uint64_t Begin(uint32_t stream) ABSL_LOCKS_EXCLUDED(mutex_);
  // Whether work `number` of stream `earlier` comes before what runs on `stream` now.
  bool IsBefore(uint32_t earlier, uint64_t number, uint32_t stream) ABSL_LOCKS_EXCLUDED(mutex_);

  std::shared_ptr<const WorkPast> PastOf(uint32_t stream) ABSL_LOCKS_EXCLUDED(mutex_);
  std::shared_ptr<const WorkPast> PastOfHost() ABSL_LOCKS_EXCLUDED(mutex_);
  void Join(uint32_t stream, const WorkClock& clock) ABSL_LOCKS_EXCLUDED(mutex_);
  void JoinHost(const WorkClock& clock) ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  Mutex mutex_;
  uint32_t streams_ ABSL_GUARDED_BY(mutex_) = 0;
  // Streams up to this one had ended when there was no stream: they come before all that follows.
  uint32_t forgotten_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<uint32_t, WorkClock> clocks_ ABSL_GUARDED_BY(mutex_);  // of streams that have not ended
  std::shared_ptr<const WorkPast> host_ ABSL_GUARDED_BY(mutex_) =
      std::make_shared<const WorkPast>(WorkClock{});
};

}  // namespace weft::testing

#endif  // WEFT_OPS_TESTING_EMULATOR_WORK_ORDER_H_
