#include "executor/program/feed_staging.h"

#include <algorithm>
#include <utility>

#include "executor/program/await_event.h"
#include "executor/program/device_timeout.h"
#include "platform/status_macros.h"

namespace weft {

void FeedStaging::Add(int64_t bytes) {
  max_bytes_ = std::max(max_bytes_, bytes);
  blocks_wanted_ = std::min(blocks_wanted_ + 1, 2);
}

absl::Status FeedStaging::Allocate(Device& device) {
  for (int i = 0; i < blocks_wanted_; ++i) {
    Block block;
    WEFT_ASSIGN_OR_RETURN(block.memory, device.AllocateHostMemory(
                                            static_cast<size_t>(std::max<int64_t>(max_bytes_, 1))));
    WEFT_ASSIGN_OR_RETURN(block.copied, device.NewEvent());
    blocks_.push_back(std::move(block));
  }
  return absl::OkStatus();
}

absl::StatusOr<void*> FeedStaging::Next() {
  const Block& block = blocks_[next_];
  WEFT_RETURN_IF_ERROR(AwaitEvent(*block.copied, kDeviceTimeout));
  return block.memory->data();
}

absl::Status FeedStaging::Copy(Device& device, Stream& stream, void* target, int64_t bytes) {
  Block& block = blocks_[next_];
  next_ = (next_ + 1) % blocks_.size();
  WEFT_RETURN_IF_ERROR(
      device.CopyFromHost(stream, block.memory->data(), target, static_cast<size_t>(bytes)));
  return stream.Record(*block.copied);
}

}  // namespace weft
