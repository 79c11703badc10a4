#include "tensor/testing/fake_stream.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "platform/status_macros.h"
#include "tensor/fault_status.h"

namespace weft::testing {
namespace {

// When a machine counts as busy, and for how many items of a stream.
constexpr absl::Duration kLongYields = absl::Microseconds(500);
constexpr int kItemsWithoutYield = 32;

}  // namespace

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
    WEFT_RETURN_IF_ERROR(Error());
  }
  absl::Status status = work.run(work.argument, *this);
  MutexLock lock(scheduler_->mutex_);
  if (Error().ok()) refused_ = std::move(status);
  return Error();
}

absl::Status FakeStream::EnqueueLater(Work work) {
  MutexLock lock(scheduler_->mutex_);
  WEFT_RETURN_IF_ERROR(AwaitSpace());
  if (capture_ != nullptr) {
    Capture({.work = work});
    return absl::OkStatus();
  }
  Append(Item{.kind = ItemKind::kWork, .work = work});
  return absl::OkStatus();
}

absl::Status FakeStream::EnqueueCopy(const void* from, void* to, size_t bytes) {
  MutexLock lock(scheduler_->mutex_);
  WEFT_RETURN_IF_ERROR(AwaitSpace());
  if (capture_ != nullptr) {
    Capture({.from = from, .to = to, .bytes = bytes});
    return absl::OkStatus();
  }
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
  own->state_->capture = capture_;
  own->state_->last = last_;
  if (capture_ != nullptr) return absl::OkStatus();
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
    return Error();
  }
  MutexLock lock(scheduler_->mutex_);
  WEFT_RETURN_IF_ERROR(AwaitSpace());
  if (capture_ != nullptr || own->state_->capture != nullptr) return Join(*own->state_);
  const uint64_t recording = own->state_->recorded;
  Append(Item{.kind = ItemKind::kWait, .event = own->state_, .recording = recording});
  return absl::OkStatus();
}

absl::Status FakeStream::Synchronize(absl::Duration timeout) {
  const absl::Time deadline = options_.clock->Now() + timeout;
  MutexLock lock(scheduler_->mutex_);
  if (capture_ != nullptr) {
    return absl::FailedPreconditionError(
        absl::StrCat(Describe(), " records, so that there is nothing to wait for"));
  }
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
  if (options_.hooks == nullptr) return Error();
  const std::shared_ptr<const FakePast> past = options_.hooks->PastOfStream();
  if (past != nullptr) past->SeenByHost();
  const DeviceFault* const fault = options_.hooks->fault();
  if (fault != nullptr && status_.ok()) {
    const FakeMemoryAccess access(memory_);
    status_ = FaultStatus(*fault);
  }
  return Error();
}

absl::Status FakeStream::AwaitSpace() {
  const absl::Time deadline = options_.clock->Now() + options_.enqueue_timeout;
  while (Error().ok() && size_ == ring_.size()) {
    const bool in_time =
        options_.clock->WaitUntil(scheduler_->changed_, scheduler_->mutex_, deadline);
    if (!in_time && size_ == ring_.size()) {
      return absl::DeadlineExceededError(
          absl::StrCat(Describe(), " was full, with ", size_, " items, for ",
                       absl::FormatDuration(options_.enqueue_timeout)));
    }
  }
  return Error();
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
  const bool runs = item.kind == ItemKind::kWork || item.kind == ItemKind::kCopy ||
                    item.kind == ItemKind::kRecording;
  if (runs && status_.ok()) {
    const uint64_t choices = static_cast<uint64_t>(scheduler_->options_.max_yields) + 1;
    const uint64_t yields = scheduler_->random_() % choices;
    scheduler_->mutex_.Unlock();
    Hesitate(yields);
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

// On a busy machine a yield lasts as long as another process's turn, milliseconds, and the system
// mixes threads by itself: then the next items do without.
void FakeStream::Hesitate(uint64_t yields) {
  if (items_without_yield_ > 0) {
    --items_without_yield_;
    return;
  }
  const absl::Time begin = absl::Now();
  for (uint64_t i = 0; i < yields; ++i) std::this_thread::yield();
  if (absl::Now() - begin > kLongYields) items_without_yield_ = kItemsWithoutYield;
}

absl::Status FakeStream::Execute(const Item& item) {
  const FakeMemoryAccess access(memory_);
  if (item.kind == ItemKind::kRecording) return ExecuteRecording(item);
  FakeStreamHooks* const hooks = options_.hooks.get();
  if (item.kind == ItemKind::kWork) {
    if (hooks != nullptr) return hooks->RunWork(item.work, *this);
    return item.work.run(item.work.argument, *this);
  }
  if (hooks != nullptr) hooks->OnCopy(item.from, item.to, item.bytes);
  if (item.bytes > 0) std::memmove(item.to, item.from, item.bytes);
  return absl::OkStatus();
}

absl::Status FakeStream::ExecuteRecording(const Item& item) {
  const std::vector<FakeRecordedItem>& items = *item.recorded;
  std::mt19937_64 random(item.seed);
  std::vector<bool> done(items.size());
  for (size_t count = 0; count < items.size(); ++count) {
    std::vector<size_t> ready;
    for (size_t i = 0; i < items.size(); ++i) {
      const bool may = std::all_of(items[i].after.begin(), items[i].after.end(),
                                   [&](int before) { return done[static_cast<size_t>(before)]; });
      if (!done[i] && may) ready.push_back(i);
    }
    const size_t chosen = ready[random() % ready.size()];
    const FakeRecordedItem& next = items[chosen];
    if (next.work.run != nullptr) {
      WEFT_RETURN_IF_ERROR(next.work.run(next.work.argument, *this));
    } else if (next.bytes > 0) {
      std::memmove(next.to, next.from, next.bytes);
    }
    done[chosen] = true;
  }
  return absl::OkStatus();
}

absl::Status FakeStream::BeginRecording() {
  if (options_.hooks != nullptr) return Stream::BeginRecording();  // They see single runs.
  MutexLock lock(scheduler_->mutex_);
  WEFT_RETURN_IF_ERROR(AwaitSpace());
  if (capture_ != nullptr) {
    return absl::FailedPreconditionError(absl::StrCat(Describe(), " records already"));
  }
  capture_ = std::make_shared<FakeCapture>();
  capture_->origin = this;
  last_.clear();
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<RecordedWork>> FakeStream::EndRecording(
    std::unique_ptr<RecordedWork> former) {
  MutexLock lock(scheduler_->mutex_);
  const std::shared_ptr<FakeCapture> capture = capture_;
  if (capture == nullptr || capture->origin != this) {
    return absl::FailedPreconditionError(
        absl::StrCat(Describe(), " has no recording to end; begin one"));
  }
  // All that the end of this stream comes after.
  std::set<int> reached;
  std::vector<int> open(last_.begin(), last_.end());
  while (!open.empty()) {
    const int item = open.back();
    open.pop_back();
    if (!reached.insert(item).second) continue;
    const std::set<int>& after = capture->items[static_cast<size_t>(item)].after;
    open.insert(open.end(), after.begin(), after.end());
  }
  for (FakeStream* const stream : scheduler_->streams_) {
    stream->scheduler_->mutex_.AssertHeld();
    if (stream->capture_ != capture) continue;
    const bool is_joined = std::all_of(stream->last_.begin(), stream->last_.end(),
                                       [&](int item) { return reached.contains(item); });
    if (!is_joined && capture->status.ok()) {
      capture->status = absl::FailedPreconditionError(
          absl::StrCat(Describe(), " ends a recording that ", stream->Describe(),
                       " has joined, without a wait for an event of it"));
    }
    stream->capture_ = nullptr;
    stream->last_.clear();
  }
  capture->has_ended = true;
  WEFT_RETURN_IF_ERROR(Error());
  WEFT_RETURN_IF_ERROR(capture->status);
  auto items = std::make_shared<const std::vector<FakeRecordedItem>>(std::move(capture->items));
  if (auto* const own = dynamic_cast<FakeRecording*>(former.get()); own != nullptr) {
    if (own->TakeOver(items)) return former;
  }
  return std::make_unique<FakeRecording>(scheduler_, std::move(items));
}

bool FakeStream::IsRecording() const {
  MutexLock lock(scheduler_->mutex_);
  return capture_ != nullptr;
}

void FakeStream::Capture(FakeRecordedItem item) {
  item.after = last_;
  capture_->items.push_back(std::move(item));
  last_ = {static_cast<int>(capture_->items.size()) - 1};
}

absl::Status FakeStream::Join(const FakeEvent::State& event) {
  if (event.capture != nullptr && event.capture->has_ended) {
    return absl::FailedPreconditionError(absl::StrCat(
        Describe(), " waits for an event of a recording that has ended; record the event again"));
  }
  const bool fits = event.capture != nullptr && (capture_ == nullptr || capture_ == event.capture);
  if (!fits) {
    const absl::Status status = absl::FailedPreconditionError(absl::StrCat(
        Describe(), " records, and waits for an event that is not part of the recording"));
    if (capture_->status.ok()) capture_->status = status;
    return status;
  }
  capture_ = event.capture;
  last_.insert(event.last.begin(), event.last.end());
  return absl::OkStatus();
}

absl::Status FakeStream::EnqueueRecording(
    std::shared_ptr<const std::vector<FakeRecordedItem>> recorded) {
  MutexLock lock(scheduler_->mutex_);
  WEFT_RETURN_IF_ERROR(AwaitSpace());
  if (capture_ != nullptr) {
    return absl::FailedPreconditionError(
        absl::StrCat(Describe(), " records, and cannot run a recording"));
  }
  Item item;
  item.kind = ItemKind::kRecording;
  item.recorded = std::move(recorded);
  item.seed = scheduler_->random_();
  Append(std::move(item));
  return absl::OkStatus();
}

bool FakeRecording::TakeOver(std::shared_ptr<const std::vector<FakeRecordedItem>> items) {
  const bool same_form =
      items->size() == items_->size() &&
      std::equal(items->begin(), items->end(), items_->begin(),
                 [](const FakeRecordedItem& a, const FakeRecordedItem& b) {
                   return a.after == b.after && (a.work.run == nullptr) == (b.work.run == nullptr);
                 });
  if (same_form) items_ = std::move(items);
  return same_form;
}

absl::Status FakeRecording::Run(Stream& stream) {
  auto* const own = dynamic_cast<FakeStream*>(&stream);
  if (own == nullptr || own->scheduler_ != scheduler_) {
    return absl::InvalidArgumentError("a recording of a fake device needs a stream of that device");
  }
  return own->EnqueueRecording(items_);
}

std::string FakeStream::Describe() const {
  return absl::StrCat("stream ", options_.name, " of ", options_.device);
}

}  // namespace weft::testing
