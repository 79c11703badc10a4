#include "distributed/shared_memory/ring_outbox.h"

#include <utility>
#include <vector>

#include "distributed/grpc/frame.h"
#include "platform/status_macros.h"

namespace weft {

void RingOutbox::Open(std::unique_ptr<RingWriter> writer) {
  owned_writer_ = std::move(writer);
  writer_.store(owned_writer_.get(), std::memory_order_release);
}

bool RingOutbox::Post(const MessageHeader& header, const void* data, TransferObserver& observer) {
  absl::Status failure;
  {
    MutexLock lock(mutex_);
    failure = failure_;
    if (failure.ok()) {
      queue_.Push({header, static_cast<const std::byte*>(data), &observer});
      return messages_.fetch_add(1) == 0;
    }
  }
  observer.Done(failure);
  return false;
}

bool RingOutbox::Begin(Part& part) {
  MutexLock lock(mutex_);
  if (current_.observer == nullptr) {
    if (queue_.empty()) {
      is_writing_ = false;
      return false;
    }
    current_ = queue_.Pop();
    offset_ = 0;
    bytes_left_.store(current_.header.bytes, std::memory_order_relaxed);
  }
  part = {current_, offset_};
  return true;
}

void RingOutbox::Leave() {
  Message ended;
  absl::Status failure;
  {
    MutexLock lock(mutex_);
    is_writing_ = false;
    failure = failure_;
    if (!failure.ok() && current_.observer != nullptr) {
      ended = std::exchange(current_, Message());
      messages_.fetch_sub(1);
    }
  }
  if (ended.observer != nullptr) ended.observer->Done(failure);
}

void RingOutbox::Written(uint64_t bytes) {
  Message ended;
  absl::Status status;
  {
    MutexLock lock(mutex_);
    offset_ += bytes;
    bytes_left_.store(current_.header.bytes - offset_, std::memory_order_relaxed);
    status = failure_;
    if (offset_ == current_.header.bytes || !status.ok()) {
      ended = std::exchange(current_, Message());
      messages_.fetch_sub(1);
    }
  }
  if (ended.observer != nullptr) ended.observer->Done(status);
}

absl::StatusOr<RingOutbox::Next> RingOutbox::Pump(uint64_t budget, bool announces,
                                                  absl::FunctionRef<void()> wake) {
  RingWriter* const writer = writer_.load(std::memory_order_acquire);
  if (writer == nullptr) return Next::kNothing;
  {
    MutexLock lock(mutex_);
    if (is_writing_) return Next::kNothing;
    is_writing_ = true;
  }
  uint64_t done = 0;
  bool is_announced = false;
  Part part;
  while (Begin(part)) {
    if (done >= budget) {
      Leave();
      return Next::kMore;
    }
    Frame frame;
    frame.header = part.message.header;
    frame.offset = part.offset;
    const absl::StatusOr<bool> written = writer->Write(frame, part.message.data + part.offset,
                                                       part.message.header.bytes - part.offset);
    if (!written.ok()) {
      Leave();
      return written.status();
    }
    if (!*written) {
      if (announces && !std::exchange(is_announced, true)) {
        writer->AnnounceWait();  // and asks once more
        continue;
      }
      Leave();
      return Next::kNothing;
    }
    if (std::exchange(is_announced, false)) writer->CancelWait();
    header_bytes_sent_.fetch_add(static_cast<int64_t>(kFrameHeaderBytes),
                                 std::memory_order_relaxed);
    done += kFrameHeaderBytes + frame.part_bytes;
    if (writer->TakeReaderSleeps()) wake();
    Written(frame.part_bytes);
  }
  return Next::kNothing;
}

bool RingOutbox::can_write() const {
  const RingWriter* const writer = writer_.load(std::memory_order_acquire);
  return writer != nullptr && messages_.load(std::memory_order_relaxed) > 0 &&
         writer->has_room(bytes_left_.load(std::memory_order_relaxed));
}

void RingOutbox::Fail(const absl::Status& status) {
  std::vector<Message> ended;
  {
    MutexLock lock(mutex_);
    if (!failure_.ok()) return;
    failure_ = status;
    if (current_.observer != nullptr && !is_writing_) {
      ended.push_back(std::exchange(current_, Message()));
    }
    while (!queue_.empty()) ended.push_back(queue_.Pop());
    messages_.fetch_sub(static_cast<int64_t>(ended.size()));
  }
  for (const Message& message : ended) message.observer->Done(status);
}

}  // namespace weft
