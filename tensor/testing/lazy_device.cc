#include "tensor/testing/lazy_device.h"

#include <cstdint>
#include <deque>
#include <functional>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/time/time.h"
#include "platform/mutex.h"
#include "platform/status_macros.h"

namespace weft::testing {
namespace {

// What a stream of the device behind is to do.
using LazyAction = std::function<absl::Status(Stream&)>;

// Whoever asks so often whether an event is done, waits for it.
constexpr int kMaxQuestions = 50;
constexpr absl::Duration kBehindTimeout = absl::Seconds(60);

// After so many items of a stream.
struct LazyPlace {
  int stream = -1;  // no recording yet
  int64_t items = 0;
};

}  // namespace

// What the streams of a device have been given and have not done.
class LazyQueues {
 public:
  // The number of a new stream; `behind` does its work.
  int AddStream(Stream& behind) ABSL_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(mutex_);
    queues_.emplace_back().behind = &behind;
    return static_cast<int>(queues_.size()) - 1;
  }
  absl::Status Add(int stream, LazyAction action) ABSL_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(mutex_);
    return AddItem(stream, {std::move(action), {}});
  }
  absl::Status AddWait(int stream, const LazyPlace& place) ABSL_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(mutex_);
    return AddItem(stream, {nullptr, place});
  }
  // The end of what the stream has been given.
  LazyPlace EndOf(int stream) const ABSL_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(mutex_);
    return {stream, queues_[static_cast<size_t>(stream)].given};
  }
  bool IsReached(const LazyPlace& place) const ABSL_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(mutex_);
    return place.stream < 0 || queues_[static_cast<size_t>(place.stream)].done >= place.items;
  }
  // The stream goes on up to the place. Its error, if it has one.
  absl::Status Reach(const LazyPlace& place, absl::Duration timeout) ABSL_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(mutex_);
    return GoOn(place, timeout);
  }

 private:
  struct Item {
    LazyAction action;  // null: a wait
    LazyPlace awaited;
  };
  struct Queue {
    Stream* behind = nullptr;
    std::deque<Item> items;  // not done yet
    int64_t given = 0;
    int64_t done = 0;
    absl::Status status;  // the first error
  };

  absl::Status AddItem(int stream, Item item) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    Queue& queue = queues_[static_cast<size_t>(stream)];
    WEFT_RETURN_IF_ERROR(queue.status);
    queue.items.push_back(std::move(item));
    ++queue.given;
    return absl::OkStatus();
  }
  absl::Status GoOn(const LazyPlace& place, absl::Duration timeout)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    Queue& queue = queues_[static_cast<size_t>(place.stream)];
    if (queue.done >= place.items) return queue.status;  // the stream may have ended
    while (queue.done < place.items) {
      const Item item = std::move(queue.items.front());
      queue.items.pop_front();
      if (item.action == nullptr) {
        // One stream at a time. The error of the other is not this one's.
        queue.status.Update(queue.behind->Synchronize(timeout));
        if (item.awaited.stream >= 0) (void)GoOn(item.awaited, timeout);
      } else if (queue.status.ok()) {
        queue.status = item.action(*queue.behind);
      }
      ++queue.done;
    }
    queue.status.Update(queue.behind->Synchronize(timeout));
    return queue.status;
  }

  mutable Mutex mutex_;
  std::deque<Queue> queues_ ABSL_GUARDED_BY(mutex_);  // also of streams that have ended
};

namespace {

class LazyEvent final : public Event {
 public:
  explicit LazyEvent(std::shared_ptr<LazyQueues> queues) : queues_(std::move(queues)) {}

  bool Done() const override {
    LazyPlace place;
    bool is_patient = false;
    {
      MutexLock lock(mutex_);
      place = place_;
      is_patient = ++questions_ < kMaxQuestions;
    }
    if (queues_->IsReached(place)) return true;
    if (is_patient) return false;
    (void)queues_->Reach(place, kBehindTimeout);  // the stream tells its error
    return true;
  }
  void MoveTo(const LazyPlace& place) {
    MutexLock lock(mutex_);
    place_ = place;
    questions_ = 0;
  }
  LazyPlace place() const {
    MutexLock lock(mutex_);
    return place_;
  }

 private:
  const std::shared_ptr<LazyQueues> queues_;
  mutable Mutex mutex_;
  LazyPlace place_ ABSL_GUARDED_BY(mutex_);
  mutable int questions_ ABSL_GUARDED_BY(mutex_) = 0;  // since it was recorded
};

class LazyStream final : public Stream {
 public:
  LazyStream(std::unique_ptr<Stream> behind, bool is_eager, std::shared_ptr<LazyQueues> queues)
      : behind_(std::move(behind)),
        is_eager_(is_eager),
        queues_(std::move(queues)),
        number_(queues_->AddStream(*behind_)) {}
  ~LazyStream() override { (void)Synchronize(kBehindTimeout); }

  absl::Status Enqueue(Work work) override {
    return Add([work](Stream& stream) { return stream.Enqueue(work); });
  }
  absl::Status Record(Event& event) override {
    dynamic_cast<LazyEvent&>(event).MoveTo(queues_->EndOf(number_));
    return absl::OkStatus();
  }
  absl::Status Wait(Event& event) override {
    WEFT_RETURN_IF_ERROR(queues_->AddWait(number_, dynamic_cast<LazyEvent&>(event).place()));
    return is_eager_ ? Synchronize(kBehindTimeout) : absl::OkStatus();
  }
  absl::Status Synchronize(absl::Duration timeout) override {
    return queues_->Reach(queues_->EndOf(number_), timeout);
  }
  absl::Status Add(LazyAction action) {
    WEFT_RETURN_IF_ERROR(queues_->Add(number_, std::move(action)));
    return is_eager_ ? Synchronize(kBehindTimeout) : absl::OkStatus();
  }

 private:
  const std::unique_ptr<Stream> behind_;
  const bool is_eager_;
  const std::shared_ptr<LazyQueues> queues_;
  const int number_;
};

}  // namespace

LazyDevice::LazyDevice(const FakeDeviceOptions& options, std::string eager_stream)
    : fake_(options),
      eager_stream_(std::move(eager_stream)),
      queues_(std::make_shared<LazyQueues>()) {}

LazyDevice::~LazyDevice() = default;

absl::StatusOr<std::shared_ptr<Buffer>> LazyDevice::Allocate(size_t bytes) {
  return fake_.Allocate(bytes);
}

absl::StatusOr<std::unique_ptr<Stream>> LazyDevice::NewStream(const std::string& name) {
  WEFT_ASSIGN_OR_RETURN(std::unique_ptr<Stream> behind, fake_.NewStream(name));
  return std::make_unique<LazyStream>(std::move(behind), name == eager_stream_, queues_);
}

absl::StatusOr<std::unique_ptr<Event>> LazyDevice::NewEvent() {
  return std::make_unique<LazyEvent>(queues_);
}

absl::StatusOr<std::shared_ptr<Buffer>> LazyDevice::AllocateHostMemory(size_t bytes) {
  return fake_.AllocateHostMemory(bytes);
}

absl::Status LazyDevice::CopyFromHost(Stream& stream, const void* host, void* device,
                                      size_t bytes) {
  return dynamic_cast<LazyStream&>(stream).Add(
      [=, this](Stream& behind) { return fake_.CopyFromHost(behind, host, device, bytes); });
}

absl::Status LazyDevice::CopyToHost(Stream& stream, const void* device, void* host, size_t bytes) {
  return dynamic_cast<LazyStream&>(stream).Add(
      [=, this](Stream& behind) { return fake_.CopyToHost(behind, device, host, bytes); });
}

absl::Status LazyDevice::CopyOnDevice(Stream& stream, const void* from, void* to, size_t bytes) {
  return dynamic_cast<LazyStream&>(stream).Add(
      [=, this](Stream& behind) { return fake_.CopyOnDevice(behind, from, to, bytes); });
}

}  // namespace weft::testing
