// PartSize: how many bytes of something large go out at once.
#ifndef WEFT_DISTRIBUTED_GRPC_PART_SIZE_H_
#define WEFT_DISTRIBUTED_GRPC_PART_SIZE_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "absl/time/time.h"
#include "platform/clock.h"

namespace weft {

// What is being written to a connection goes before all else on it: keepalive's answers and the
// questions of the lease. On a slow link it would hold them up until the peer is taken for lost.
// That a part has left says little: the system and HTTP/2 take seconds' worth of a slow link at
// once. So the peer answers each part, and no other goes before the answer. Parts begin small, grow
// while the answers come soon, and shrink where they do not. The largest size is reached where a
// part takes so little time that nothing waits for long; nobody answers then, until one leaves
// slowly. One writer's; not thread-safe.
class PartSize {
 public:
  static constexpr size_t kSmallest = size_t{32} << 10;
  static constexpr size_t kLargest = size_t{1} << 20;

  // Of the next part; a power of two.
  size_t bytes() const { return bytes_; }
  // Whether the next part waits until the peer has answered the one before.
  bool wants_answer() const { return bytes_ < kLargest; }

  // The answer to a part has come so long after it was begun. The soonest one so far tells what
  // the way takes, however little is sent on it. A part that was shorter than bytes() says nothing
  // of longer ones.
  void Came(size_t part_bytes, absl::Duration after) {
    soonest_ = std::min(soonest_, after);
    const absl::Duration behind = after - soonest_;
    if (behind > kLong) {
      Shrink();
    } else if (part_bytes < bytes_ || behind > kQuick) {
      return;
    } else if (++quick_ == kQuickParts) {
      bytes_ = std::min(kLargest, 2 * bytes_);
      quick_ = 0;
    }
  }
  // A part that nobody answers has left after this time.
  void Left(absl::Duration after) {
    if (after > kLong) Shrink();
  }

 private:
  static constexpr absl::Duration kQuick = absl::Milliseconds(50);
  static constexpr absl::Duration kLong = absl::Milliseconds(250);
  static constexpr int kQuickParts = 4;

  void Shrink() {
    bytes_ = std::max(kSmallest, bytes_ / 2);
    quick_ = 0;
  }

  size_t bytes_ = kSmallest;
  int quick_ = 0;  // parts in a row, of this size
  absl::Duration soonest_ = absl::InfiniteDuration();
};

// Where a writer of something large stands, which writes part after part and waits for the answer
// to each.
class PartWriter {
 public:
  explicit PartWriter(size_t bytes) : bytes_(bytes) {}
  size_t offset() const { return offset_; }
  // Of the next part.
  size_t part_bytes() const { return std::min(size_.bytes(), bytes_ - offset_); }
  bool done() const { return offset_ == bytes_; }
  // Calls `write`, which returns when the part has been answered; what it returns.
  template <typename Call>
  bool Write(const Call& write) {
    const int64_t begin = RealClock().MonotonicNanos();
    const size_t part = part_bytes();
    const bool written = write();
    offset_ += part;
    size_.Came(part, absl::Nanoseconds(RealClock().MonotonicNanos() - begin));
    return written;
  }

 private:
  const size_t bytes_;
  size_t offset_ = 0;
  PartSize size_;
};

}  // namespace weft

#endif  // WEFT_DISTRIBUTED_GRPC_PART_SIZE_H_
