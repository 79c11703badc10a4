// RingPeer: another rank of this machine, with the ring to it and the one from it.
#ifndef WEFT_DISTRIBUTED_SHARED_MEMORY_RING_PEER_H_
#define WEFT_DISTRIBUTED_SHARED_MEMORY_RING_PEER_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "distributed/grpc/inbox.h"
#include "distributed/shared_memory/handover.h"
#include "distributed/shared_memory/ring.h"
#include "distributed/shared_memory/ring_outbox.h"
#include "distributed/transport.h"
#include "graph/ids.h"
#include "platform/file_descriptor.h"
#include "platform/mutex.h"

namespace weft {

// What a transport has of one peer. Methods may be called by any thread, unless they say otherwise.
// Both connections stay open until the end, and are only marked as ended before.
class RingPeer final : private InboxSource {
 public:
  // How messages to it go, and those from it come.
  enum class Way { kUnknown, kRing, kSockets };
  // Of a ring, and the connection that it was handed over on.
  enum class Direction { kOutgoing, kIncoming };

  // `wake` ends a sleep of the transport's thread. Any thread calls it.
  RingPeer(RankId rank, std::string address, Way way, std::function<void()> wake)
      : rank_(rank),
        address_(std::move(address)),
        wake_(std::move(wake)),
        inbox_(rank),
        way_(way) {}

  RankId rank() const { return rank_; }
  std::string name() const;  // "rank 1 (unix:/...)"
  Inbox& inbox() { return inbox_; }
  RingOutbox& outbox() { return outbox_; }

  Mutex& opening() { return opening_; }  // held by who settles the way
  Way way() const { return way_.load(std::memory_order_acquire); }
  void set_way(Way way) { way_.store(way, std::memory_order_release); }
  // Once; REQUIRES: the way is settled after it.
  void OpenOutgoing(FileDescriptor connection, std::unique_ptr<RingWriter> writer);
  // Once.
  void OpenIncoming(FileDescriptor connection, std::unique_ptr<RingReader> reader);
  // For who has opened a ring to this rank: one process at a time. FailedPrecondition else.
  absl::Status AttachInbox() { return inbox_.Attach(*this); }
  // Of the connection, as far as it is open; null: not yet, or no longer.
  const FileDescriptor* Open(Direction direction) const;
  // No more is said or heard on it. By the transport's thread.
  void MarkEnded(Direction direction) { of(direction).has_ended.store(true); }

  // Writes messages, `budget` bytes at most. True: there are more, and there is room.
  bool Pump(uint64_t budget, bool announces);
  // Takes messages out of the ring, `budget` bytes at most. True: there was something.
  bool Drain(uint64_t budget);
  // Whether Drain would find something.
  bool can_read() const;
  // Threads that wait for this peer work on its rings meanwhile, so the peer need not wake the
  // transport's. `Leave` makes it so again.
  void BeginAssisting();
  void EndAssisting();
  bool is_assisted() const { return assistants_.load() > 0; }
  // The peer wakes this process when something has come. can_read must be asked once more.
  void AnnounceSleep();

  // The peer takes no part any more: messages to it fail with `status` now, and those from it when
  // all that it has written before is read. What has to wait for its receiver counts only where the
  // peer `has_left` in order. By the transport's thread.
  void Lose(const absl::Status& status, bool has_left = false);
  // Sees to the latter; true: there is something to read before.
  bool FinishLoss();
  // Notes that something was heard, or that a second has passed; whether four have passed in
  // silence. By the transport's thread.
  void Hear(Direction direction) { of(direction).silent_ticks = 0; }
  bool TickSilence(Direction direction);
  // Says this on every open connection.
  void Tell(RingNotice::Kind kind, const absl::Status& status = absl::OkStatus()) const;

 private:
  struct Connection {
    FileDescriptor socket;
    std::atomic<bool> is_open{false};
    std::atomic<bool> has_ended{false};
    int silent_ticks = 0;  // the transport's thread's
  };
  Connection& of(Direction direction) {
    return direction == Direction::kOutgoing ? outgoing_ : incoming_;
  }
  const Connection& of(Direction direction) const {
    return direction == Direction::kOutgoing ? outgoing_ : incoming_;
  }
  void ScheduleResume() override {
    resumes_.fetch_add(1);
    wake_();
  }
  bool DrainLocked(RingReader& reader, uint64_t budget) ABSL_EXCLUSIVE_LOCKS_REQUIRED(reading_);
  // What it has written makes no sense.
  void BreakOff(const absl::Status& status);

  const RankId rank_;
  const std::string address_;
  const std::function<void()> wake_;
  Inbox inbox_;
  RingOutbox outbox_;
  Mutex opening_;
  std::atomic<Way> way_;
  Connection outgoing_;
  Connection incoming_;
  std::unique_ptr<RingReader> owned_reader_;
  std::atomic<RingReader*> reader_{nullptr};
  std::atomic<int> assistants_{0};
  // A frame for which the inbox had no room waits until resumes_ changes from this; -1: none does.
  std::atomic<int64_t> held_at_{-1};
  std::atomic<int64_t> resumes_{0};
  std::atomic<bool> reading_ended_{false};
  Mutex reading_;
  // The transport's thread's.
  absl::Status loss_;
  bool has_left_ = false;
};

}  // namespace weft

#endif  // WEFT_DISTRIBUTED_SHARED_MEMORY_RING_PEER_H_
