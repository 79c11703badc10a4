// The asynchronous streams of fake devices, and who of them goes on when.
#ifndef WEFT_TENSOR_TESTING_FAKE_STREAM_H_
#define WEFT_TENSOR_TESTING_FAKE_STREAM_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "platform/clock.h"
#include "platform/mutex.h"
#include "tensor/device.h"
#include "tensor/testing/fake_memory.h"

namespace weft::testing {

class FakeStream;

struct FakeSchedulerOptions {
  // Decides which stream goes on, and how long it hesitates.
  uint64_t seed = 1;
  // One item of one stream runs at a time; the next waits for it this long, then runs beside it (an
  // item may wait for something that other streams do). Zero: streams run freely beside each other,
  // for ThreadSanitizer to look at. Infinite: never two at a time.
  absl::Duration turn = absl::Milliseconds(5);
  // Before each item its thread yields up to so many times, so that host code gets ahead at random;
  // not where the machine is too busy for that.
  int max_yields = 16;
};

// Lets one randomly chosen ready stream run one item at a time. Given what was enqueued, the seed
// determines the interleaving; Pause makes "what was enqueued" exact. Devices that share a
// scheduler can wait for each other's events. Thread-safe; outlives its streams.
class FakeScheduler {
 public:
  explicit FakeScheduler(const FakeSchedulerOptions& options);
  FakeScheduler(const FakeScheduler&) = delete;
  FakeScheduler& operator=(const FakeScheduler&) = delete;

  // No item starts until Resume (streams being destroyed run theirs nevertheless).
  void Pause() ABSL_LOCKS_EXCLUDED(mutex_);
  void Resume() ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  friend class FakeEvent;
  friend class FakeStream;

  // Gives ready streams their turn, as far as there is one to give, and wakes everybody who waits.
  void Dispatch() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool MayStart(const FakeStream& stream) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // One of the streams that may start, drawn at random; null when there is none.
  FakeStream* Draw() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Grant(FakeStream& stream) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Waits for a change, or until the turn of a stream that has not come back is over.
  void AwaitTurn() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const FakeSchedulerOptions options_;

  Mutex mutex_;
  CondVar changed_;  // Any state below, or of a stream or event, has changed.
  bool paused_ ABSL_GUARDED_BY(mutex_) = false;
  std::mt19937_64 random_ ABSL_GUARDED_BY(mutex_);
  std::vector<FakeStream*> streams_ ABSL_GUARDED_BY(mutex_);  // In order of creation.
  FakeStream* holder_ ABSL_GUARDED_BY(mutex_) = nullptr;      // Whose turn it is.
  absl::Time turn_end_ ABSL_GUARDED_BY(mutex_) = absl::InfiniteFuture();
};

// One thing that a recording does, after some of those before it.
struct FakeRecordedItem {
  Work work = {};  // without `run`: a copy
  const void* from = nullptr;
  void* to = nullptr;
  size_t bytes = 0;
  std::set<int> after = {};
};

// What several streams record together.
struct FakeCapture {
  FakeStream* origin = nullptr;  // the one that began
  std::vector<FakeRecordedItem> items;
  absl::Status status;  // why it cannot be a recording
  bool has_ended = false;
};

// What had happened at some point of a stream or of the host: for devices that check the order of
// what their streams do.
class FakePast {
 public:
  virtual ~FakePast() = default;
  // The host knows that it has happened.
  virtual void SeenByHost() const = 0;
};

// What a device built on the fake one adds to a stream. A method with "any thread" may be called
// with the scheduler's lock held: it calls nothing of streams and events.
class FakeStreamHooks {
 public:
  virtual ~FakeStreamHooks() = default;
  // Called once, before anything else; the stream outlives its hooks.
  virtual void Attach(FakeStream& /*stream*/) {}
  virtual void* native_handle() { return nullptr; }
  virtual DeviceFault* fault() const { return nullptr; }
  // Runs a work item, on the stream's thread.
  virtual absl::Status RunWork(const Work& work, Stream& stream) {
    return work.run(work.argument, stream);
  }
  // Bytes are about to be copied, on the stream's thread. One side, or both, is device memory.
  virtual void OnCopy(const void* /*from*/, void* /*to*/, size_t /*bytes*/) {}
  // What the host has seen now, which enqueues an item; and, when the item runs, that it comes
  // after that. Any thread.
  virtual std::shared_ptr<const FakePast> PastOfHost() { return nullptr; }
  // What this stream has done and seen. Any thread.
  virtual std::shared_ptr<const FakePast> PastOfStream() { return nullptr; }
  // What comes now in this stream, comes after `past` (null: nothing). Any thread.
  virtual void ComesAfter(const std::shared_ptr<const FakePast>& /*past*/) {}
};

class FakeEvent final : public Event {
 public:
  explicit FakeEvent(std::shared_ptr<FakeScheduler> scheduler);

  bool Done() const override;

 private:
  friend class FakeScheduler;
  friend class FakeStream;

  // Shared with the items that refer to it: an event may end before they have run.
  struct State {
    uint64_t recorded = 0;  // Recordings enqueued so far; each is known by its number.
    uint64_t done = 0;      // The last of them that was reached.
    // Of the last recording, where that is part of what streams record.
    std::shared_ptr<FakeCapture> capture = nullptr;
    std::set<int> last = {};
    std::shared_ptr<const FakePast> past = nullptr;  // What had happened then.
  };

  const std::shared_ptr<FakeScheduler> scheduler_;
  const std::shared_ptr<State> state_;  // What it points to is guarded by scheduler_->mutex_.
};

struct FakeStreamOptions {
  std::string name;
  std::string device;
  size_t capacity = 1024;
  absl::Duration enqueue_timeout = absl::Seconds(60);
  Clock* clock = nullptr;
  bool runs_host_work = true;                        // as in FakeDeviceOptions
  std::unique_ptr<FakeStreamHooks> hooks = nullptr;  // may be null
};

// A bounded queue of items and a thread that runs them in order; enqueueing allocates nothing. A
// full queue makes Enqueue and its like wait, at most `enqueue_timeout`: then DeadlineExceeded. A
// recording knows what events put in order, and nothing else: each run takes another order that
// keeps to that.
class FakeStream final : public Stream {
 public:
  FakeStream(FakeStreamOptions options, std::shared_ptr<FakeScheduler> scheduler,
             FakeMemory& memory);
  ~FakeStream() override;

  absl::Status Enqueue(Work work) override;
  absl::Status Record(Event& event) override;
  absl::Status Wait(Event& event) override;
  absl::Status Synchronize(absl::Duration timeout) override;
  void* native_handle() const override;
  DeviceFault* fault() const override;
  // Enqueue for what runs on the device: on the stream's thread in its turn, whatever
  // runs_host_work says.
  absl::Status EnqueueLater(Work work);
  absl::Status EnqueueCopy(const void* from, void* to, size_t bytes);
  absl::Status BeginRecording() override;
  absl::StatusOr<std::unique_ptr<RecordedWork>> EndRecording(
      std::unique_ptr<RecordedWork> former) override;
  bool IsRecording() const;

  // The memory of its device.
  const FakeMemory& memory() const { return memory_; }

 private:
  friend class FakeScheduler;

  friend class FakeRecording;

  enum class ItemKind : uint8_t { kWork, kCopy, kRecord, kWait, kRecording };

  struct Item {
    ItemKind kind = ItemKind::kWork;
    Work work = {};
    const void* from = nullptr;
    void* to = nullptr;
    size_t bytes = 0;
    std::shared_ptr<FakeEvent::State> event = nullptr;
    uint64_t recording = 0;
    std::shared_ptr<const std::vector<FakeRecordedItem>> recorded = nullptr;
    uint64_t seed = 0;
    std::shared_ptr<const FakePast> past = nullptr;  // of the host, when it was enqueued
  };

  // The error of the stream, or room for one more item.
  absl::Status AwaitSpace() ABSL_EXCLUSIVE_LOCKS_REQUIRED(scheduler_->mutex_);
  void Append(Item item) ABSL_EXCLUSIVE_LOCKS_REQUIRED(scheduler_->mutex_);
  bool IsReady() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(scheduler_->mutex_);
  void RunItems();
  void RunFirstItem() ABSL_EXCLUSIVE_LOCKS_REQUIRED(scheduler_->mutex_);
  // Of the stream's thread, without the lock.
  void Hesitate(uint64_t yields);
  absl::Status Execute(const Item& item);
  absl::Status ExecuteRecording(const Item& item);
  absl::Status EnqueueRecording(std::shared_ptr<const std::vector<FakeRecordedItem>> recorded);
  // What comes next is after the event, in its recording.
  absl::Status Join(const FakeEvent::State& event)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(scheduler_->mutex_);
  // Puts the item into what is recorded.
  void Capture(FakeRecordedItem item) ABSL_EXCLUSIVE_LOCKS_REQUIRED(scheduler_->mutex_);
  // The stream's error; where it has none and its kernels reported bad data, that.
  absl::Status StatusOfFinished() ABSL_EXCLUSIVE_LOCKS_REQUIRED(scheduler_->mutex_);
  const absl::Status& Error() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(scheduler_->mutex_) {
    return refused_.ok() ? status_ : refused_;
  }
  std::string Describe() const;

  const FakeStreamOptions options_;
  const std::shared_ptr<FakeScheduler> scheduler_;
  FakeMemory& memory_;

  std::vector<Item> ring_ ABSL_GUARDED_BY(scheduler_->mutex_);
  // Of ring_: the item that runs, or the next to run.
  size_t first_ ABSL_GUARDED_BY(scheduler_->mutex_) = 0;
  // Items not finished.
  size_t size_ ABSL_GUARDED_BY(scheduler_->mutex_) = 0;
  // May run its first item, or is running it.
  int items_without_yield_ = 0;  // that come; the thread's own
  bool granted_ ABSL_GUARDED_BY(scheduler_->mutex_) = false;
  bool stopping_ ABSL_GUARDED_BY(scheduler_->mutex_) = false;
  // Null: it runs what it is given. `last_`: what comes next is after these items.
  std::shared_ptr<FakeCapture> capture_ ABSL_GUARDED_BY(scheduler_->mutex_);
  std::set<int> last_ ABSL_GUARDED_BY(scheduler_->mutex_);
  // The error of work that Enqueue called itself. What was enqueued before runs nevertheless.
  absl::Status refused_ ABSL_GUARDED_BY(scheduler_->mutex_);
  // The first error of an item.
  absl::Status status_ ABSL_GUARDED_BY(scheduler_->mutex_);

  std::thread thread_;  // Last: it uses all of the above.
};

class FakeRecording final : public RecordedWork {
 public:
  FakeRecording(std::shared_ptr<FakeScheduler> scheduler,
                std::shared_ptr<const std::vector<FakeRecordedItem>> items)
      : scheduler_(std::move(scheduler)), items_(std::move(items)) {}

  absl::Status Run(Stream& stream) override;
  // Does `items` from now on, if they are of the same form as those so far.
  bool TakeOver(std::shared_ptr<const std::vector<FakeRecordedItem>> items);

 private:
  const std::shared_ptr<FakeScheduler> scheduler_;
  std::shared_ptr<const std::vector<FakeRecordedItem>> items_;
};

}  // namespace weft::testing

#endif  // WEFT_TENSOR_TESTING_FAKE_STREAM_H_
