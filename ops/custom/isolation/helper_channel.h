// HelperChannel: frames between a worker and the helper process of an op library.
#ifndef WEFT_OPS_CUSTOM_ISOLATION_HELPER_CHANNEL_H_
#define WEFT_OPS_CUSTOM_ISOLATION_HELPER_CHANNEL_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "ops/custom/isolation/helper_messages.h"
#include "platform/file_descriptor.h"

namespace weft {

// A moment of RealClock().MonotonicNanos(): setting the time of day moves no deadline.
using MonotonicDeadline = int64_t;
inline constexpr MonotonicDeadline kNoDeadline = std::numeric_limits<int64_t>::max();
// `patience` from now.
MonotonicDeadline DeadlineAfter(absl::Duration patience);

// What came over a channel.
struct ReceivedFrame {
  HelperFrame kind = HelperFrame::kDone;
  std::string payload;
};

// One end of a pair of connected sockets. Whoever is at the other end need not be trusted: no frame
// is longer than kLongestFrame, and no wait ends after its deadline. One thread at a time.
//
// Errors: DeadlineExceeded; Unavailable when the other end is closed; InvalidArgument for bytes
// that are no frame.
class HelperChannel {
 public:
  static constexpr size_t kLongestFrame = size_t{64} << 20;

  // `takes_descriptors`: whether descriptors that come with a frame are kept for TakeDescriptor, or
  // closed.
  HelperChannel(FileDescriptor socket, bool takes_descriptors);

  // `attached` goes along with the frame and stays the caller's; -1: none.
  absl::Status Send(HelperFrame kind, std::string_view payload, MonotonicDeadline deadline,
                    int attached = -1);
  absl::StatusOr<ReceivedFrame> Receive(MonotonicDeadline deadline);
  // The oldest descriptor that came; -1 when none is left.
  FileDescriptor TakeDescriptor();

  // Whether bytes or the end of the other side can be read at once. Never waits.
  bool HasNews() const;
  int descriptor() const { return socket_.get(); }

 private:
  absl::Status ReadMore(MonotonicDeadline deadline);
  absl::Status Await(short events, MonotonicDeadline deadline) const;

  const FileDescriptor socket_;
  const bool takes_descriptors_;
  std::vector<char> chunk_;
  std::string unread_;
  std::deque<FileDescriptor> descriptors_;
};

}  // namespace weft

#endif  // WEFT_OPS_CUSTOM_ISOLATION_HELPER_CHANNEL_H_
