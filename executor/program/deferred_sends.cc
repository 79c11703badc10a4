#include "executor/program/deferred_sends.h"

#include "executor/program/await_event.h"
#include "executor/program/device_timeout.h"
#include "platform/status_macros.h"

namespace weft {

absl::Status DeferredSends::Prepare(Device& device, size_t count) {
  entries_.resize(count);
  for (Entry& entry : entries_) {
    WEFT_ASSIGN_OR_RETURN(entry.copied, device.NewEvent());
  }
  return absl::OkStatus();
}

absl::Status DeferredSends::Add(Instruction& instruction, Device& device, Stream& stream) {
  Entry& entry = entries_[waiting_];
  WEFT_RETURN_IF_ERROR(
      instruction.staging->CopyToHost(HostOperandsOf(instruction), device, stream));
  WEFT_RETURN_IF_ERROR(stream.Record(*entry.copied));
  entry.instruction = &instruction;
  ++waiting_;
  return absl::OkStatus();
}

absl::Status DeferredSends::Flush(bool wait, absl::FunctionRef<absl::Status(Instruction&)> send) {
  for (; sent_ < waiting_; ++sent_) {
    const Entry& entry = entries_[sent_];
    if (wait) {
      WEFT_RETURN_IF_ERROR(AwaitEvent(*entry.copied, kDeviceTimeout));
    } else if (!entry.copied->Done()) {
      return absl::OkStatus();
    }
    WEFT_RETURN_IF_ERROR(send(*entry.instruction));
  }
  return absl::OkStatus();
}

}  // namespace weft
