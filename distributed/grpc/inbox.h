// Inbox: messages that arrive from one peer, and their receivers.
#ifndef WEFT_DISTRIBUTED_GRPC_INBOX_H_
#define WEFT_DISTRIBUTED_GRPC_INBOX_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "distributed/fifo.h"
#include "distributed/grpc/frame.h"
#include "distributed/transport.h"
#include "platform/mutex.h"

namespace weft {

// The stream that fills an inbox.
class InboxSource {
 public:
  // Offers the frame that was held once more, soon, in another call. Any thread.
  virtual void ScheduleResume() = 0;

 protected:
  ~InboxSource() = default;
};

// Copies parts straight into the slot posted for their message, or into a buffer of its own when
// none is posted yet; when such buffers hold as much as an inbox may, the stream waits. Receive and
// Fail may be called by any thread, the rest by one at a time. Any stream may fill it: gRPC's, or a
// ring in shared memory.
class Inbox {
 public:
  // What waits for its receiver (kInbox) has buffers that are kept for the next messages: of as
  // many bytes as ever waited at once, and so many more.
  static constexpr uint64_t kSpareBytes = uint64_t{1} << 20;

  explicit Inbox(RankId peer) : peer_(peer) {}

  void Receive(const MessageHeader& header, void* data, TransferObserver& observer);
  // All receives, pending and future, end with `status`.
  void Fail(const absl::Status& status);

  // FailedPrecondition when there is, or was, a source.
  absl::Status Attach(InboxSource& source);
  void Detach();
  enum class Next {
    kRead,  // taken: read on
    kHold,  // no room: offer it again on Resume
    kEnd,   // the inbox failed: end the stream
  };
  // `part_bytes` have come with the frame; `copy` writes them to where it is told, at most once.
  Next Take(const Frame& frame, uint64_t part_bytes, absl::FunctionRef<void(std::byte*)> copy);

 private:
  struct Operation {
    MessageHeader header;
    void* target = nullptr;
    TransferObserver* observer = nullptr;
  };
  // A message that came before its receiver.
  struct Unexpected {
    MessageHeader header;
    std::unique_ptr<std::byte[]> bytes;
    uint64_t capacity = 0;
    absl::Status status;
  };
  struct Stream {
    Fifo<Operation> posted;
    Fifo<std::unique_ptr<Unexpected>> unexpected;
  };
  // The message whose parts are coming in.
  struct Arrival {
    bool active = false;
    MessageHeader header;
    uint64_t received = 0;
    std::byte* target = nullptr;             // null: thrown away
    Operation operation;                     // whose slot it is, or none
    std::unique_ptr<Unexpected> unexpected;  // or the buffer it is
    absl::Status status;
  };

  absl::Status CheckFrame(const Frame& frame) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // False: no room.
  bool Begin(const Frame& frame) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Finish() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void FailLocked(const absl::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::unique_ptr<Unexpected> NewUnexpected(const MessageHeader& header)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // A kept buffer that fits, neither too small nor far too large, or null.
  std::unique_ptr<Unexpected> TakeSpare(uint64_t bytes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Copies to the receiver, tells it, and takes the buffer back.
  void Deliver(std::unique_ptr<Unexpected> unexpected, const Operation& operation)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ResumeIfHeld() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const RankId peer_;
  Mutex mutex_;
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);
  std::map<uint32_t, Stream> streams_ ABSL_GUARDED_BY(mutex_);
  Arrival arrival_ ABSL_GUARDED_BY(mutex_);
  bool copying_ ABSL_GUARDED_BY(mutex_) = false;  // the arrival's target is in use without the lock
  uint64_t unexpected_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t max_unexpected_bytes_ ABSL_GUARDED_BY(mutex_) = 0;  // so far
  uint64_t capacity_ ABSL_GUARDED_BY(mutex_) = 0;              // of all buffers, waiting and spare
  size_t unexpected_messages_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<std::unique_ptr<Unexpected>> spare_ ABSL_GUARDED_BY(mutex_);
  InboxSource* source_ ABSL_GUARDED_BY(mutex_) = nullptr;
  bool had_source_ ABSL_GUARDED_BY(mutex_) = false;
  bool held_ ABSL_GUARDED_BY(mutex_) = false;
  uint64_t incarnation_ ABSL_GUARDED_BY(mutex_) = 0;  // 0 = nothing came yet
};

}  // namespace weft

#endif  // WEFT_DISTRIBUTED_GRPC_INBOX_H_
