// DeferredSends: sends whose data a device has not made yet. Internal to executor/.
#ifndef WEFT_EXECUTOR_PROGRAM_DEFERRED_SENDS_H_
#define WEFT_EXECUTOR_PROGRAM_DEFERRED_SENDS_H_

#include <memory>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "executor/program/instruction.h"
#include "tensor/device.h"

namespace weft {

// So that the host goes on launching instead of waiting for each value that it sends. A send's copy
// to the host is put into the stream; when it is there, at the next instruction or before the host
// waits for a peer, it is sent. Sends keep their order. Where the stream has failed, what is there
// is sent all the same: the stream's error ends the step for all ranks. Used by the compute thread
// only.
class DeferredSends {
 public:
  // For so many sends a step.
  absl::Status Prepare(Device& device, size_t count);
  // A step begins.
  void Clear() { waiting_ = sent_ = 0; }
  bool empty() const { return sent_ == waiting_; }

  // Copies to the host what the instruction sends. REQUIRES: called `count` times a step at most;
  // the instruction has staging memory and stays.
  absl::Status Add(Instruction& instruction, Device& device, Stream& stream);
  // Calls `send` for those that have come to the host; for all, and waits for them, if `wait`.
  // The first error ends it.
  absl::Status Flush(bool wait, absl::FunctionRef<absl::Status(Instruction&)> send);

 private:
  struct Entry {
    Instruction* instruction = nullptr;
    std::unique_ptr<Event> copied;
  };
  std::vector<Entry> entries_;
  size_t waiting_ = 0;  // entries [sent_, waiting_) are not sent yet
  size_t sent_ = 0;
};

}  // namespace weft

#endif  // WEFT_EXECUTOR_PROGRAM_DEFERRED_SENDS_H_
