#include "distributed/grpc/inbox.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "graph/schedule/channel_credits.h"
#include "platform/checksum.h"

namespace weft {

void Inbox::Receive(const MessageHeader& header, void* data, TransferObserver& observer) {
  const Operation operation{header, data, &observer};
  absl::Status failure;
  {
    MutexLock lock(mutex_);
    Stream& stream = streams_[header.stream];
    if (!stream.unexpected.empty()) {
      Deliver(stream.unexpected.Pop(), operation);
      ResumeIfHeld();
      return;
    }
    failure = failure_;
    if (failure.ok()) {
      stream.posted.Push(operation);
      ResumeIfHeld();
      return;
    }
  }
  observer.Done(failure);
}

void Inbox::Fail(const absl::Status& status) {
  MutexLock lock(mutex_);
  FailLocked(status);
}

void Inbox::FailLocked(const absl::Status& status) {
  if (!failure_.ok()) return;
  failure_ = status;
  // Messages that are here in whole may still be taken, unless the job is over.
  for (auto& [id, stream] : streams_) {
    while (!stream.posted.empty()) stream.posted.Pop().observer->Done(failure_);
    while (absl::IsAborted(failure_) && !stream.unexpected.empty()) stream.unexpected.Pop();
  }
  if (arrival_.active && !copying_) {
    if (arrival_.operation.observer != nullptr) arrival_.operation.observer->Done(failure_);
    arrival_ = Arrival();
  }
  ResumeIfHeld();
}

absl::Status Inbox::Attach(InboxSource& source) {
  MutexLock lock(mutex_);
  if (had_source_) {
    return absl::FailedPreconditionError(
        absl::StrCat("rank ", peer_.value,
                     " has opened its stream of this job already; do two "
                     "processes claim the same rank?"));
  }
  source_ = &source;
  had_source_ = true;
  return absl::OkStatus();
}

void Inbox::Detach() {
  MutexLock lock(mutex_);
  source_ = nullptr;
}

void Inbox::ResumeIfHeld() {
  if (!held_ || source_ == nullptr) return;
  held_ = false;
  source_->ScheduleResume();
}

absl::Status Inbox::CheckFrame(const Frame& frame) {
  if (incarnation_ == 0) incarnation_ = frame.header.incarnation;
  if (frame.header.incarnation != incarnation_) {
    return absl::DataLossError(absl::StrCat("message from rank ", peer_.value,
                                            " is of incarnation ", frame.header.incarnation,
                                            ", its stream of ", incarnation_));
  }
  const uint64_t expected_offset = arrival_.active ? arrival_.received : 0;
  const uint64_t bytes = arrival_.active ? arrival_.header.bytes : frame.header.bytes;
  if (frame.offset != expected_offset || frame.header.bytes != bytes ||
      frame.part_bytes > bytes - frame.offset || (frame.part_bytes == 0 && bytes != 0) ||
      (arrival_.active && frame.header.stream != arrival_.header.stream)) {
    return absl::DataLossError(
        absl::StrCat("message from rank ", peer_.value, " on stream ", frame.header.stream,
                     " came in disorder: ", frame.part_bytes, " bytes at ", frame.offset, " of ",
                     frame.header.bytes, ", expected byte ", expected_offset, " of ", bytes));
  }
  return absl::OkStatus();
}

bool Inbox::Begin(const Frame& frame) {
  Stream& stream = streams_[frame.header.stream];
  Arrival arrival;
  arrival.active = true;
  arrival.header = frame.header;
  if (!stream.posted.empty()) {
    arrival.operation = stream.posted.Pop();
    arrival.status = CheckHeader(peer_, arrival.operation.header, frame.header);
    if (arrival.status.ok()) arrival.target = static_cast<std::byte*>(arrival.operation.target);
  } else {
    const bool room = unexpected_messages_ < kInbox.messages && unexpected_bytes_ <= kInbox.bytes &&
                      frame.header.bytes <= kInbox.bytes - unexpected_bytes_;
    if (!room) {
      held_ = true;
      return false;
    }
    arrival.unexpected = NewUnexpected(frame.header);
    arrival.target = arrival.unexpected->bytes.get();
  }
  arrival_ = std::move(arrival);
  return true;
}

std::unique_ptr<Inbox::Unexpected> Inbox::TakeSpare(uint64_t bytes) {
  auto best = spare_.end();
  for (auto spare = spare_.begin(); spare != spare_.end(); ++spare) {
    const uint64_t capacity = (*spare)->capacity;
    if (capacity < bytes || capacity > 2 * bytes + kSpareBytes / 16) continue;
    if (best == spare_.end() || capacity < (*best)->capacity) best = spare;
  }
  if (best == spare_.end()) return nullptr;
  std::swap(*best, spare_.back());
  std::unique_ptr<Unexpected> unexpected = std::move(spare_.back());
  spare_.pop_back();
  return unexpected;
}

std::unique_ptr<Inbox::Unexpected> Inbox::NewUnexpected(const MessageHeader& header) {
  unexpected_bytes_ += header.bytes;
  ++unexpected_messages_;
  max_unexpected_bytes_ = std::max(max_unexpected_bytes_, unexpected_bytes_);
  std::unique_ptr<Unexpected> unexpected = TakeSpare(header.bytes);
  if (unexpected == nullptr) {
    while (!spare_.empty() && capacity_ + header.bytes > max_unexpected_bytes_ + kSpareBytes) {
      capacity_ -= spare_.back()->capacity;
      spare_.pop_back();
    }
    unexpected = std::make_unique<Unexpected>();
    unexpected->bytes = std::make_unique_for_overwrite<std::byte[]>(header.bytes);
    unexpected->capacity = header.bytes;
    capacity_ += header.bytes;
  }
  unexpected->header = header;
  return unexpected;
}

void Inbox::Deliver(std::unique_ptr<Unexpected> unexpected, const Operation& operation) {
  absl::Status status = CheckHeader(peer_, operation.header, unexpected->header);
  if (status.ok()) status = unexpected->status;
  if (status.ok() && unexpected->header.bytes > 0) {
    std::memcpy(operation.target, unexpected->bytes.get(), unexpected->header.bytes);
  }
  unexpected_bytes_ -= unexpected->header.bytes;
  --unexpected_messages_;
  unexpected->status = absl::OkStatus();
  spare_.push_back(std::move(unexpected));
  operation.observer->Done(status);
}

Inbox::Next Inbox::Take(const Frame& frame, uint64_t part_bytes,
                        absl::FunctionRef<void(std::byte*)> copy) {
  std::byte* target = nullptr;
  {
    MutexLock lock(mutex_);
    if (!failure_.ok()) return Next::kEnd;
    absl::Status status = CheckFrame(frame);
    if (status.ok() && part_bytes != frame.part_bytes) {
      status = absl::DataLossError(absl::StrCat("message from rank ", peer_.value,
                                                " is shorter or longer than its header says"));
    }
    if (!status.ok()) {
      FailLocked(status);
      return Next::kEnd;
    }
    if (!arrival_.active && !Begin(frame)) return Next::kHold;
    target = arrival_.target == nullptr ? nullptr : arrival_.target + frame.offset;
    copying_ = true;
  }
  bool damaged = false;
  if (target != nullptr && frame.part_bytes > 0) {
    copy(target);
    damaged = Checksum({target, frame.part_bytes}) != frame.header.checksum;
  }
  MutexLock lock(mutex_);
  copying_ = false;
  if (damaged && arrival_.status.ok()) {
    arrival_.status = absl::DataLossError(
        absl::StrCat("message ", frame.header.sequence, " from rank ", peer_.value, " on stream ",
                     frame.header.stream, " was damaged on its way: the checksum of bytes ",
                     frame.offset, " to ", frame.offset + frame.part_bytes, " differs"));
  }
  if (!failure_.ok()) {
    if (arrival_.operation.observer != nullptr) arrival_.operation.observer->Done(failure_);
    arrival_ = Arrival();
    return Next::kEnd;
  }
  arrival_.received += frame.part_bytes;
  if (arrival_.received == arrival_.header.bytes) Finish();
  return Next::kRead;
}

void Inbox::Finish() {
  arrival_.active = false;
  if (arrival_.unexpected == nullptr) {
    arrival_.operation.observer->Done(arrival_.status);
    return;
  }
  arrival_.unexpected->status = std::move(arrival_.status);
  arrival_.status = absl::OkStatus();
  Stream& stream = streams_[arrival_.header.stream];
  if (stream.posted.empty()) {
    stream.unexpected.Push(std::move(arrival_.unexpected));
  } else {
    Deliver(std::move(arrival_.unexpected), stream.posted.Pop());
  }
}

}  // namespace weft
