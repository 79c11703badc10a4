// PartSize: how many bytes of something large go out at once.
#ifndef WEFT_DISTRIBUTED_GRPC_PART_SIZE_H_
#define WEFT_DISTRIBUTED_GRPC_PART_SIZE_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "absl/time/time.h"
#include "platform/clock.h"

namespace weft {

// What is being written to a connection goes before all else on it, keepalive's answers included.
// On a slow link a long part would hold them up until the peer is taken for lost. So parts begin
// small, grow while the connection takes them at once, and shrink where it does not. One writer's;
// not thread-safe.
class PartSize {
 public:
  static constexpr size_t kSmallest = size_t{32} << 10;
  static constexpr size_t kLargest = size_t{1} << 20;

  // Of the next part; a power of two.
  size_t bytes() const { return bytes_; }

  // A part has left after this time. One that was shorter than bytes() says nothing of longer ones.
  void Left(size_t part_bytes, absl::Duration after) {
    if (after > kLong) {
      bytes_ = std::max(kSmallest, bytes_ / 2);
      quick_ = 0;
    } else if (part_bytes < bytes_ || after > kQuick) {
      return;
    } else if (++quick_ == kQuickParts) {
      bytes_ = std::min(kLargest, 2 * bytes_);
      quick_ = 0;
    }
  }

 private:
  static constexpr absl::Duration kQuick = absl::Milliseconds(50);
  static constexpr absl::Duration kLong = absl::Milliseconds(250);
  // The system takes some parts at once even where the link is slow, and sends them later.
  static constexpr int kQuickParts = 4;

  size_t bytes_ = kSmallest;
  int quick_ = 0;  // parts in a row, of this size
};

// Where a writer of something large stands, which writes part after part and waits for each.
class PartWriter {
 public:
  explicit PartWriter(size_t bytes) : bytes_(bytes) {}
  size_t offset() const { return offset_; }
  // Of the next part.
  size_t part_bytes() const { return std::min(size_.bytes(), bytes_ - offset_); }
  bool done() const { return offset_ == bytes_; }
  // Calls `write`, which returns when the part has left; what it returns.
  template <typename Call>
  bool Write(const Call& write) {
    const int64_t begin = RealClock().MonotonicNanos();
    const size_t part = part_bytes();
    const bool written = write();
    offset_ += part;
    size_.Left(part, absl::Nanoseconds(RealClock().MonotonicNanos() - begin));
    return written;
  }

 private:
  const size_t bytes_;
  size_t offset_ = 0;
  PartSize size_;
};

}  // namespace weft

#endif  // WEFT_DISTRIBUTED_GRPC_PART_SIZE_H_
