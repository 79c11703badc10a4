#include "tensor/testing/fake_stream.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "platform/status_macros.h"
#include "tensor/fault_status.h"

namespace weft::testing {

FakeScheduler::FakeScheduler(const FakeSchedulerOptions& options)
    : options_(options), random_(options.seed) {}

void FakeScheduler::Pause() {
  MutexLock lock(mutex_);
  paused_ = true;
}

void FakeScheduler::Resume() {
  MutexLock lock(mutex_);
  paused_ = false;
  Dispatch();
}

bool FakeScheduler::MayStart(const FakeStream& stream) const {
  stream.scheduler_->mutex_.AssertHeld();
  if (stream.granted_ || (paused_ && !stream.stopping_)) return false;
  return stream.IsReady();
}

FakeStream* FakeScheduler::Draw() {
  uint64_t candidates = 0;
  for (const FakeStream* stream : streams_) candidates += MayStart(*stream) ? 1 : 0;
  if (candidates == 0) return nullptr;
  uint64_t skipped = random_() % candidates;
  for (FakeStream* stream : streams_) {
    if (MayStart(*stream) && skipped-- == 0) return stream;
  }
  return nullptr;
}

void FakeScheduler::Grant(FakeStream& stream) {
  stream.scheduler_->mutex_.AssertHeld();
  stream.granted_ = true;
}

void FakeScheduler::Dispatch() {
  if (options_.turn == absl::ZeroDuration()) {
    for (FakeStream* stream : streams_) {
      if (MayStart(*stream)) Grant(*stream);
    }
  } else if (holder_ == nullptr) {
    holder_ = Draw();
    turn_end_ = absl::Now() + options_.turn;
    if (holder_ != nullptr) Grant(*holder_);
  }
  changed_.NotifyAll();
}

void FakeScheduler::AwaitTurn() {
  FakeStream* const holder = holder_;
  const absl::Time turn_end = turn_end_;
  if (holder == nullptr) {
    changed_.Wait(mutex_);
  } else if (!changed_.WaitUntil(mutex_, turn_end) && holder_ == holder && turn_end_ == turn_end) {
    holder_ = nullptr;
    Dispatch();
    // With nobody to take over, the holder stays out of turn: whoever becomes ready gets the next.
  }
}

FakeEvent::FakeEvent(std::shared_ptr<FakeScheduler> scheduler)
    : scheduler_(std::move(scheduler)), state_(std::make_shared<State>()) {}

bool FakeEvent::Done() const {
  MutexLock lock(scheduler_->mutex_);
  const bool done = state_->done == state_->recorded;
  if (done && state_->past != nullptr) state_->past->SeenByHost();
  return done;
}

FakeStream::FakeStream(FakeStreamOptions options, std::shared_ptr<FakeScheduler> scheduler,
                       FakeMemory& memory)
    : options_(std::move(options)),
      scheduler_(std::move(scheduler)),
      memory_(memory),
      ring_(options_.capacity) {
  if (options_.hooks != nullptr) options_.hooks->Attach(*this);
  {
    MutexLock lock(scheduler_->mutex_);
    scheduler_->streams_.push_back(this);
  }
  thread_ = std::thread([this] { RunItems(); });
}

FakeStream::~FakeStream() {
  {
    MutexLock lock(scheduler_->mutex_);
    stopping_ = true;
    scheduler_->Dispatch();
  }
  thread_.join();
  MutexLock lock(scheduler_->mutex_);
  std::erase(scheduler_->streams_, this);
}

void* FakeStream::native_handle() const {
  return options_.hooks == nullptr ? nullptr : options_.hooks->native_handle();
}

DeviceFault* FakeStream::fault() const {
  return options_.hooks == nullptr ? nullptr : options_.hooks->fault();
}

absl::Status FakeStream::Enqueue(Work work) {
  if (options_.runs_host_work) return EnqueueLater(work);
  {
    MutexLock lock(scheduler_->mutex_);
    WEFT_RETURN_IF_ERROR(status_);
  }
  absl::Status status = work.run(work.argument, *this);
  MutexLock lock(scheduler_->mutex_);
  if (status_.ok()) status_ = status;
  return status;
}

absl::Status FakeStream::EnqueueLater(Work work) {
  MutexLock lock(scheduler_->mutex_);
  WEFT_RETURN_IF_ERROR(AwaitSpace());
  Append(Item{.kind = ItemKind::kWork, .work = work});
  return absl::OkStatus();
}

absl::Status FakeStream::EnqueueCopy(const void* from, void* to, size_t bytes) {
  MutexLock lock(scheduler_->mutex_);
  WEFT_RETURN_IF_ERROR(AwaitSpace());
  Append(Item{.kind = ItemKind::kCopy, .from = from, .to = to, .bytes = bytes});
  return absl::OkStatus();
}

absl::Status FakeStream::Record(Event& event) {
  auto* const own = dynamic_cast<FakeEvent*>(&event);
  if (own == nullptr || own->scheduler_ != scheduler_) {
    return absl::InvalidArgumentError(absl::StrCat(
        Describe(), " can only record events of its device or of one that shares its scheduler"));
  }
  MutexLock lock(scheduler_->mutex_);
  WEFT_RETURN_IF_ERROR(AwaitSpace());
  const uint64_t recording = ++own->state_->recorded;
  Append(Item{.kind = ItemKind::kRecord, .event = own->state_, .recording = recording});
  return absl::OkStatus();
}

absl::Status FakeStream::Wait(Event& event) {
  auto* const own = dynamic_cast<FakeEvent*>(&event);
  if (own == nullptr || own->scheduler_ != scheduler_) {
    if (!event.Done()) {
      return absl::FailedPreconditionError(absl::StrCat(
          Describe(), " cannot wait for an event of another device that is not done and does not ",
          "share its scheduler; synchronize the stream that recorded it first"));
    }
    MutexLock lock(scheduler_->mutex_);
    return status_;
  }
  MutexLock lock(scheduler_->mutex_);
  WEFT_RETURN_IF_ERROR(AwaitSpace());
  const uint64_t recording = own->state_->recorded;
  Append(Item{.kind = ItemKind::kWait, .event = own->state_, .recording = recording});
  return absl::OkStatus();
}

absl::Status FakeStream::Synchronize(absl::Duration timeout) {
  const absl::Time deadline = options_.clock->Now() + timeout;
  MutexLock lock(scheduler_->mutex_);
  while (size_ > 0) {
    const bool in_time =
        options_.clock->WaitUntil(scheduler_->changed_, scheduler_->mutex_, deadline);
    if (!in_time && size_ > 0) {
      return absl::DeadlineExceededError(absl::StrCat(
          Describe(), " has not finished within ", absl::FormatDuration(timeout), ": ", size_,
          " items are left, the first of them ", granted_ ? "is running" : "has not started"));
    }
  }
  return StatusOfFinished();
}

absl::Status FakeStream::StatusOfFinished() {
  if (options_.hooks == nullptr) return status_;
  const std::shared_ptr<const FakePast> past = options_.hooks->PastOfStream();
  if (past != nullptr) past->SeenByHost();
  const DeviceFault* const fault = options_.hooks->fault();
  if (fault != nullptr && status_.ok()) {
    const FakeMemoryAccess access(memory_);
    status_ = FaultStatus(*fault);
  }
  return status_;
}

absl::Status FakeStream::AwaitSpace() {
  const absl::Time deadline = options_.clock->Now() + options_.enqueue_timeout;
  while (status_.ok() && size_ == ring_.size()) {
    const bool in_time =
        options_.clock->WaitUntil(scheduler_->changed_, scheduler_->mutex_, deadline);
    if (!in_time && size_ == ring_.size()) {
      return absl::DeadlineExceededError(
          absl::StrCat(Describe(), " was full, with ", size_, " items, for ",
                       absl::FormatDuration(options_.enqueue_timeout)));
    }
  }
  return status_;
}

void FakeStream::Append(Item item) {
  if (options_.hooks != nullptr) item.past = options_.hooks->PastOfHost();
  ring_[(first_ + size_) % ring_.size()] = std::move(item);
  ++size_;
  scheduler_->Dispatch();
}

bool FakeStream::IsReady() const {
  if (size_ == 0) return false;
  const Item& item = ring_[first_];
  return item.kind != ItemKind::kWait || item.event->done >= item.recording;
}

void FakeStream::RunItems() {
  MutexLock lock(scheduler_->mutex_);
  while (true) {
    while (!granted_) {
      if (stopping_ && size_ == 0) return;
      scheduler_->AwaitTurn();
    }
    RunFirstItem();
  }
}

void FakeStream::RunFirstItem() {
  Item& item = ring_[first_];
  FakeStreamHooks* const hooks = options_.hooks.get();
  if (hooks != nullptr) hooks->ComesAfter(item.past);
  const bool runs = item.kind == ItemKind::kWork || item.kind == ItemKind::kCopy;
  if (runs && status_.ok()) {
    const uint64_t choices = static_cast<uint64_t>(scheduler_->options_.max_yields) + 1;
    const uint64_t yields = scheduler_->random_() % choices;
    scheduler_->mutex_.Unlock();
    for (uint64_t i = 0; i < yields; ++i) std::this_thread::yield();
    absl::Status status = Execute(item);
    scheduler_->mutex_.Lock();
    status_ = std::move(status);
  } else if (item.kind == ItemKind::kRecord) {
    item.event->done = std::max(item.event->done, item.recording);
    if (hooks != nullptr) item.event->past = hooks->PastOfStream();
  } else if (item.kind == ItemKind::kWait && hooks != nullptr) {
    hooks->ComesAfter(item.event->past);
  }
  item = Item{};
  first_ = (first_ + 1) % ring_.size();
  --size_;
  granted_ = false;
  if (scheduler_->holder_ == this) scheduler_->holder_ = nullptr;
  scheduler_->Dispatch();
}

absl::Status FakeStream::Execute(const Item& item) {
  const FakeMemoryAccess access(memory_);
  FakeStreamHooks* const hooks = options_.hooks.get();
  if (item.kind == ItemKind::kWork) {
    if (hooks != nullptr) return hooks->RunWork(item.work, *this);
    return item.work.run(item.work.argument, *this);
  }
  if (hooks != nullptr) hooks->OnCopy(item.from, item.to, item.bytes);
  if (item.bytes > 0) std::memmove(item.to, item.from, item.bytes);
  return absl::OkStatus();
}

std::string FakeStream::Describe() const {
  return absl::StrCat("stream ", options_.name, " of ", options_.device);
}

}  // namespace weft::testing
