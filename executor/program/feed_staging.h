// FeedStaging: host memory from which the rows of an input are copied to a device that the host
// cannot reach. Internal to executor/.
#ifndef WEFT_EXECUTOR_PROGRAM_FEED_STAGING_H_
#define WEFT_EXECUTOR_PROGRAM_FEED_STAGING_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tensor/device.h"

namespace weft {

// Of one feed of a program. Two blocks in turn: while the device copies from one, the host fills
// the other. Used by the program's compute thread only.
class FeedStaging {
 public:
  // The feed is filled once more in a step, with so many bytes.
  void Add(int64_t bytes);
  // Of host memory, once it is allocated.
  int64_t bytes() const { return max_bytes_ * blocks_wanted_; }
  // After all Adds, once.
  absl::Status Allocate(Device& device);

  // Memory to be filled, when the copy that last read it is over.
  absl::StatusOr<void*> Next();
  // What it was filled with, to the device. Does not wait.
  absl::Status Copy(Device& device, Stream& stream, void* target, int64_t bytes);
  // Of the last Copy: the bytes are there. REQUIRES: there was one.
  Event& copied() const { return *blocks_[(next_ + blocks_.size() - 1) % blocks_.size()].copied; }

 private:
  struct Block {
    std::shared_ptr<Buffer> memory;
    std::unique_ptr<Event> copied;
  };
  int64_t max_bytes_ = 0;
  int blocks_wanted_ = 0;
  std::vector<Block> blocks_;
  size_t next_ = 0;
};

}  // namespace weft

#endif  // WEFT_EXECUTOR_PROGRAM_FEED_STAGING_H_
