#include "tensor/testing/lazy_device.h"

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
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

// The two sides of a copy that has not been made.
struct LazyCopy {
  const void* from = nullptr;
  const void* to = nullptr;
  size_t bytes = 0;

  bool Uses(const void* data, size_t size) const {
    return bytes > 0 && (Overlap(from, data, size) || Overlap(to, data, size));
  }

 private:
  bool Overlap(const void* side, const void* data, size_t size) const {
    const std::less<> before;
    const auto* const a = static_cast<const char*>(side);
    const auto* const b = static_cast<const char*>(data);
    return before(a, b + size) && before(b, a + bytes);
  }
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
    return AddItem(stream, {std::move(action), {}, kNoCopy});
  }
  absl::Status AddCopy(int stream, const LazyCopy& copy, LazyAction action)
      ABSL_LOCKS_EXCLUDED(mutex_, copies_mutex_) {
    MutexLock lock(mutex_);
    return AddItem(stream, {std::move(action), {}, Begin(copy)});
  }
  absl::Status AddWait(int stream, const LazyPlace& place) ABSL_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(mutex_);
    return AddItem(stream, {nullptr, place, kNoCopy});
  }
  // The end of what the stream has been given; its error, if it has one.
  absl::StatusOr<LazyPlace> EndOf(int stream) const ABSL_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(mutex_);
    const Queue& queue = queues_[static_cast<size_t>(stream)];
    WEFT_RETURN_IF_ERROR(queue.status);
    return LazyPlace{stream, queue.given};
  }
  bool IsReached(const LazyPlace& place) const ABSL_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(mutex_);
    return HasReached(place);
  }
  // The stream goes on up to the place, for no longer than `timeout`. Its error, if it has one.
  absl::Status Reach(const LazyPlace& place, absl::Duration timeout) ABSL_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(mutex_);
    return GoOn(place, timeout);
  }
  absl::Status ReachEnd(int stream, absl::Duration timeout) ABSL_LOCKS_EXCLUDED(mutex_) {
    MutexLock lock(mutex_);
    return GoOn({stream, queues_[static_cast<size_t>(stream)].given}, timeout);
  }

  // Memory is given back. What a copy is still to use, is kept: the fault shows in `damage` alone.
  void MemoryEnds(std::shared_ptr<Buffer> memory) ABSL_LOCKS_EXCLUDED(copies_mutex_) {
    MutexLock lock(copies_mutex_);
    for (const auto& [number, copy] : copies_) {
      if (!copy.Uses(memory->data(), memory->size())) continue;
      if (damage_.ok()) {
        damage_ = absl::InternalError(absl::StrCat(
            memory->size(), " bytes of memory were given back before a copy of ", copy.bytes,
            " bytes that uses them was made: who gives them back has to wait for it"));
      }
      kept_.push_back(std::move(memory));
      return;
    }
  }
  // Before the device behind ends.
  void ForgetKept() ABSL_LOCKS_EXCLUDED(copies_mutex_) {
    MutexLock lock(copies_mutex_);
    kept_.clear();
  }
  absl::Status damage() const ABSL_LOCKS_EXCLUDED(copies_mutex_) {
    MutexLock lock(copies_mutex_);
    return damage_;
  }

 private:
  static constexpr int64_t kNoCopy = -1;

  struct Item {
    LazyAction action;  // null: a wait
    LazyPlace awaited;
    int64_t copy = kNoCopy;  // its number among the copies
  };
  struct Queue {
    Stream* behind = nullptr;
    std::deque<Item> items;       // the stream behind has not been given them
    std::vector<Item> under_way;  // it has, and may not have done them
    int64_t given = 0;
    int64_t done = 0;
    absl::Status status;  // the first error
  };

  absl::Status AddItem(int stream, Item item) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    Queue& queue = queues_[static_cast<size_t>(stream)];
    if (!queue.status.ok()) {
      End(item);
      return queue.status;
    }
    queue.items.push_back(std::move(item));
    ++queue.given;
    return absl::OkStatus();
  }
  bool HasReached(const LazyPlace& place) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return place.stream < 0 || queues_[static_cast<size_t>(place.stream)].done >= place.items;
  }
  absl::Status GoOn(const LazyPlace& place, absl::Duration timeout)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    Queue& queue = queues_[static_cast<size_t>(place.stream)];
    while (queue.given - static_cast<int64_t>(queue.items.size()) < place.items) {
      Item& next = queue.items.front();
      if (next.action == nullptr) {
        // One stream at a time.
        WEFT_RETURN_IF_ERROR(Finish(queue, timeout));
        if (!HasReached(next.awaited)) {
          const absl::Status other = GoOn(next.awaited, timeout);
          // An error of the other is not this one's.
          if (!HasReached(next.awaited)) return other;
        }
      } else if (queue.status.ok()) {
        queue.status = next.action(*queue.behind);
      }
      queue.under_way.push_back(std::move(next));
      queue.items.pop_front();
    }
    WEFT_RETURN_IF_ERROR(Finish(queue, timeout));
    return queue.status;
  }
  // Waits for the stream behind. An error of its work is the queue's; DeadlineExceeded, and
  // nothing is done, where it has not come to the end in time.
  absl::Status Finish(Queue& queue, absl::Duration timeout) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (queue.under_way.empty()) return absl::OkStatus();
    const absl::Status status = queue.behind->Synchronize(timeout);
    if (absl::IsDeadlineExceeded(status)) return status;
    queue.status.Update(status);
    for (const Item& item : queue.under_way) End(item);
    queue.done += static_cast<int64_t>(queue.under_way.size());
    queue.under_way.clear();
    return absl::OkStatus();
  }

  int64_t Begin(const LazyCopy& copy) ABSL_LOCKS_EXCLUDED(copies_mutex_) {
    MutexLock lock(copies_mutex_);
    copies_[next_copy_] = copy;
    return next_copy_++;
  }
  void End(const Item& item) ABSL_LOCKS_EXCLUDED(copies_mutex_) {
    if (item.copy == kNoCopy) return;
    MutexLock lock(copies_mutex_);
    copies_.erase(item.copy);
  }

  mutable Mutex mutex_;
  std::deque<Queue> queues_ ABSL_GUARDED_BY(mutex_);  // also of streams that have ended

  // Apart: work of a stream may give memory back while that stream is waited for.
  mutable Mutex copies_mutex_ ABSL_ACQUIRED_AFTER(mutex_);
  std::map<int64_t, LazyCopy> copies_ ABSL_GUARDED_BY(copies_mutex_);  // not made yet
  int64_t next_copy_ ABSL_GUARDED_BY(copies_mutex_) = 0;
  absl::Status damage_ ABSL_GUARDED_BY(copies_mutex_);
  std::vector<std::shared_ptr<Buffer>> kept_ ABSL_GUARDED_BY(copies_mutex_);
};

namespace {

// Memory of the fake device behind, or of the host.
class LazyBuffer final : public Buffer {
 public:
  LazyBuffer(Device& device, std::shared_ptr<Buffer> memory, std::shared_ptr<LazyQueues> queues)
      : Buffer(device, memory->data(), memory->size()),
        memory_(std::move(memory)),
        queues_(std::move(queues)) {}
  ~LazyBuffer() override { queues_->MemoryEnds(std::move(memory_)); }

 private:
  std::shared_ptr<Buffer> memory_;
  const std::shared_ptr<LazyQueues> queues_;
};

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
    return queues_->IsReached(place);
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

// Work that is told of the lazy stream, not of the one behind.
struct LazyWork {
  Work work;
  Stream* stream = nullptr;

  static absl::Status Run(void* argument, Stream&) {
    const LazyWork& own = *static_cast<const LazyWork*>(argument);
    return own.work.run(own.work.argument, *own.stream);
  }
};

class LazyStream final : public Stream {
 public:
  LazyStream(std::unique_ptr<Stream> behind, bool is_eager, std::shared_ptr<LazyQueues> queues)
      : behind_(std::move(behind)),
        is_eager_(is_eager),
        queues_(std::move(queues)),
        number_(queues_->AddStream(*behind_)) {}
  ~LazyStream() override {
    while (absl::IsDeadlineExceeded(Synchronize(kBehindTimeout))) {
    }
  }

  absl::Status Enqueue(Work work) override {
    // The queue keeps the action, and so this, until the work has run.
    const auto own = std::make_shared<LazyWork>(LazyWork{work, this});
    return AfterAdding(queues_->Add(number_, [own](Stream& behind) {
      return behind.Enqueue({&LazyWork::Run, own.get()});
    }));
  }
  absl::Status Record(Event& event) override {
    WEFT_ASSIGN_OR_RETURN(const LazyPlace place, queues_->EndOf(number_));
    dynamic_cast<LazyEvent&>(event).MoveTo(place);
    return absl::OkStatus();
  }
  absl::Status Wait(Event& event) override {
    return AfterAdding(queues_->AddWait(number_, dynamic_cast<LazyEvent&>(event).place()));
  }
  absl::Status Synchronize(absl::Duration timeout) override {
    return queues_->ReachEnd(number_, timeout);
  }
  absl::Status Copy(const LazyCopy& copy, LazyAction action) {
    return AfterAdding(queues_->AddCopy(number_, copy, std::move(action)));
  }

 private:
  absl::Status AfterAdding(const absl::Status& added) {
    WEFT_RETURN_IF_ERROR(added);
    return is_eager_ ? Synchronize(kBehindTimeout) : absl::OkStatus();
  }

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

LazyDevice::~LazyDevice() { queues_->ForgetKept(); }

absl::StatusOr<std::shared_ptr<Buffer>> LazyDevice::Allocate(size_t bytes) {
  WEFT_ASSIGN_OR_RETURN(std::shared_ptr<Buffer> memory, fake_.Allocate(bytes));
  return std::make_shared<LazyBuffer>(*this, std::move(memory), queues_);
}

absl::StatusOr<std::unique_ptr<Stream>> LazyDevice::NewStream(const std::string& name) {
  WEFT_ASSIGN_OR_RETURN(std::unique_ptr<Stream> behind, fake_.NewStream(name));
  return std::make_unique<LazyStream>(std::move(behind), name == eager_stream_, queues_);
}

absl::StatusOr<std::unique_ptr<Event>> LazyDevice::NewEvent() {
  return std::make_unique<LazyEvent>(queues_);
}

absl::StatusOr<std::shared_ptr<Buffer>> LazyDevice::AllocateHostMemory(size_t bytes) {
  WEFT_ASSIGN_OR_RETURN(std::shared_ptr<Buffer> memory, fake_.AllocateHostMemory(bytes));
  Device& host = memory->device();
  return std::make_shared<LazyBuffer>(host, std::move(memory), queues_);
}

absl::Status LazyDevice::CopyFromHost(Stream& stream, const void* host, void* device,
                                      size_t bytes) {
  return dynamic_cast<LazyStream&>(stream).Copy({host, device, bytes}, [=, this](Stream& behind) {
    return fake_.CopyFromHost(behind, host, device, bytes);
  });
}

absl::Status LazyDevice::CopyToHost(Stream& stream, const void* device, void* host, size_t bytes) {
  return dynamic_cast<LazyStream&>(stream).Copy({device, host, bytes}, [=, this](Stream& behind) {
    return fake_.CopyToHost(behind, device, host, bytes);
  });
}

absl::Status LazyDevice::CopyOnDevice(Stream& stream, const void* from, void* to, size_t bytes) {
  return dynamic_cast<LazyStream&>(stream).Copy({from, to, bytes}, [=, this](Stream& behind) {
    return fake_.CopyOnDevice(behind, from, to, bytes);
  });
}

absl::Status LazyDevice::Verify() {
  WEFT_RETURN_IF_ERROR(fake_.Verify());
  return queues_->damage();
}

}  // namespace weft::testing
