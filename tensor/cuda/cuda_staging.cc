#include "tensor/cuda/cuda_staging.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "platform/status_macros.h"
#include "tensor/cuda/cuda_status.h"
#include "tensor/cuda/cuda_wait.h"

namespace weft {

CudaStaging::CudaStaging(CudaRuntime& runtime, std::string owner, const CudaStagingOptions& options)
    : runtime_(runtime), owner_(std::move(owner)), options_(options) {}

CudaStaging::~CudaStaging() {
  for (Slot& slot : slots_) {
    if (slot.is_free != nullptr) runtime_.DestroyEvent(slot.is_free);
    if (slot.memory != nullptr) runtime_.FreeHost(slot.memory);
  }
}

absl::Status CudaStaging::CopyIn(CudaStreamHandle stream, const void* host, void* device,
                                 size_t bytes) {
  const char* from = static_cast<const char*>(host);
  char* to = static_cast<char*>(device);
  while (bytes > 0) {
    WEFT_ASSIGN_OR_RETURN(Slot* const slot, TakeSlot());
    const size_t part = std::min(bytes, options_.slot_bytes);
    std::memcpy(slot->memory, from, part);
    WEFT_RETURN_IF_ERROR(
        Check(runtime_.Copy(to, slot->memory, part, CudaCopyKind::kHostToDevice, stream), "copy"));
    WEFT_RETURN_IF_ERROR(Check(runtime_.RecordEvent(slot->is_free, stream), "record an event"));
    from += part;
    to += part;
    bytes -= part;
  }
  return absl::OkStatus();
}

absl::Status CudaStaging::CopyOut(CudaStreamHandle stream, const void* device, void* host,
                                  size_t bytes) {
  const char* from = static_cast<const char*>(device);
  char* to = static_cast<char*>(host);
  while (bytes > 0) {
    WEFT_ASSIGN_OR_RETURN(Slot* const slot, TakeSlot());
    const size_t part = std::min(bytes, options_.slot_bytes);
    WEFT_RETURN_IF_ERROR(Check(
        runtime_.Copy(slot->memory, from, part, CudaCopyKind::kDeviceToHost, stream), "copy"));
    slot->unload = {slot->memory, to, part};
    WEFT_RETURN_IF_ERROR(
        Check(runtime_.CallHost(stream, &RunUnload, &slot->unload), "call the host"));
    WEFT_RETURN_IF_ERROR(Check(runtime_.RecordEvent(slot->is_free, stream), "record an event"));
    from += part;
    to += part;
    bytes -= part;
  }
  return absl::OkStatus();
}

void CudaStaging::RunUnload(void* unload) {
  const Unload& copy = *static_cast<const Unload*>(unload);
  std::memcpy(copy.to, copy.from, copy.bytes);
}

absl::Status CudaStaging::MakeSlots() {
  slots_.resize(static_cast<size_t>(options_.slots));
  for (Slot& slot : slots_) {
    if (slot.memory == nullptr) {
      WEFT_RETURN_IF_ERROR(Check(runtime_.AllocateHost(options_.slot_bytes, &slot.memory),
                                 "get pinned memory of the host"));
    }
    if (slot.is_free == nullptr) {
      WEFT_RETURN_IF_ERROR(
          Check(runtime_.CreateEvent(/*with_time=*/false, &slot.is_free), "make an event"));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<CudaStaging::Slot*> CudaStaging::TakeSlot() {
  if (slots_.empty() || slots_.back().is_free == nullptr) WEFT_RETURN_IF_ERROR(MakeSlots());
  Slot& slot = slots_[next_];
  const CudaCode code = AwaitCuda([&] { return runtime_.QueryEvent(slot.is_free); },
                                  *options_.clock, options_.clock->Now() + options_.timeout);
  if (code == CudaCode::kNotReady) {
    return absl::DeadlineExceededError(
        absl::StrCat(owner_, " has not passed an earlier copy within ",
                     absl::FormatDuration(options_.timeout), ", whose staging memory is needed"));
  }
  WEFT_RETURN_IF_ERROR(Check(code, "wait for an earlier copy"));
  next_ = (next_ + 1) % slots_.size();
  return &slot;
}

absl::Status CudaStaging::Check(CudaCode code, const char* action) const {
  return CudaStatus(runtime_, code, owner_, action);
}

}  // namespace weft
