// RingOutbox: messages to one peer on their way into its ring.
#ifndef WEFT_DISTRIBUTED_SHARED_MEMORY_RING_OUTBOX_H_
#define WEFT_DISTRIBUTED_SHARED_MEMORY_RING_OUTBOX_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "distributed/fifo.h"
#include "distributed/shared_memory/ring.h"
#include "distributed/transport.h"
#include "platform/mutex.h"

namespace weft {

// Writes messages in order, part after part, in whichever thread calls Pump; one at a time, and a
// second one leaves the work to the first. A message's observer is told when its last byte is in
// the ring. Thread-safe.
class RingOutbox {
 public:
  RingOutbox() = default;

  // Where it writes; before it does. Once.
  void Open(std::unique_ptr<RingWriter> writer);
  // Queues a message; tells `observer` at once where the outbox has failed. True where nothing is
  // before it.
  bool Post(const MessageHeader& header, const void* data, TransferObserver& observer);

  enum class Next {
    kNothing,  // all is written, or another thread is at work, or the ring is full
    kMore,     // `budget` bytes are written
  };
  // Writes what there is room for; `wake` is called where the reader has to be woken. Where
  // `announces`, the reader will say when a full ring has room. DataLoss where the reader's index
  // makes no sense.
  absl::StatusOr<Next> Pump(uint64_t budget, bool announces, absl::FunctionRef<void()> wake);
  // Whether Pump would write something now, as far as can be told without a lock.
  bool can_write() const;
  // All messages, now and later, end with `status`; the one that a thread is writing from, when it
  // has let go of it.
  void Fail(const absl::Status& status);
  // Of the frames of messages.
  int64_t header_bytes_sent() const { return header_bytes_sent_.load(std::memory_order_relaxed); }

 private:
  struct Message {
    MessageHeader header;
    const std::byte* data = nullptr;
    TransferObserver* observer = nullptr;
  };
  // What the writing thread does next.
  struct Part {
    Message message;
    uint64_t offset = 0;
  };
  // Makes the oldest message the current one, where there is none; false: there is nothing to
  // write, and the calling thread is not at work any more.
  bool Begin(Part& part) ABSL_LOCKS_EXCLUDED(mutex_);
  // The calling thread is at work no longer.
  void Leave() ABSL_LOCKS_EXCLUDED(mutex_);
  // So many bytes more of the current message are written.
  void Written(uint64_t bytes) ABSL_LOCKS_EXCLUDED(mutex_);

  std::unique_ptr<RingWriter> owned_writer_;
  std::atomic<RingWriter*> writer_{nullptr};
  std::atomic<int64_t> header_bytes_sent_{0};
  std::atomic<uint64_t> bytes_left_{0};  // of the oldest message
  std::atomic<int64_t> messages_{0};     // in the queue, and the current one

  mutable Mutex mutex_;
  bool is_writing_ ABSL_GUARDED_BY(mutex_) = false;  // a thread is at work
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);
  Fifo<Message> queue_ ABSL_GUARDED_BY(mutex_);
  Message current_ ABSL_GUARDED_BY(mutex_);  // without an observer: none
  uint64_t offset_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace weft

#endif  // WEFT_DISTRIBUTED_SHARED_MEMORY_RING_OUTBOX_H_
