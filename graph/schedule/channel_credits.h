// How far a sender may run ahead of its receiver. Transports keep to it, plans are checked with it.
#ifndef WEFT_GRAPH_SCHEDULE_CHANNEL_CREDITS_H_
#define WEFT_GRAPH_SCHEDULE_CHANNEL_CREDITS_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace weft {

// Every transport holds so much from one rank for another that does not receive it yet; what does
// not fit stays with its sender.
struct InboxLimits {
  uint64_t bytes = uint64_t{64} << 20;
  size_t messages = 1024;
};
inline constexpr InboxLimits kInbox;

// Messages that each channel from one rank to another may have sent and not taken, so that those of
// all channels fit at once, whoever comes first: as many rounds of one message each as the inbox
// holds. At least 1, which waits in the sender's own memory.
inline int ChannelCredits(const InboxLimits& inbox, uint64_t bytes_of_round, size_t channels) {
  if (channels == 0) return 1;
  const uint64_t by_bytes = inbox.bytes / std::max<uint64_t>(bytes_of_round, 1);
  return static_cast<int>(std::max<uint64_t>(1, std::min(by_bytes, inbox.messages / channels)));
}

}  // namespace weft

#endif  // WEFT_GRAPH_SCHEDULE_CHANNEL_CREDITS_H_
