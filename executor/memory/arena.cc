#include "executor/memory/arena.h"

#include <algorithm>
#include <cstring>

#include "platform/status_macros.h"

namespace weft {

void Arena::Reserve(int64_t bytes) { reserved_bytes_ = std::max(reserved_bytes_, bytes); }

int64_t Arena::allocated_bytes() const {
  return memory_ == nullptr ? 0 : static_cast<int64_t>(memory_->size());
}

absl::StatusOr<void*> Arena::Memory() {
  if (allocated_bytes() < reserved_bytes_) {
    Release();  // never two at a time
    WEFT_ASSIGN_OR_RETURN(memory_, device_.Allocate(static_cast<size_t>(reserved_bytes_)));
    // First touch now, not in the first step.
    if (device_.info().host_accessible) std::memset(memory_->data(), 0, memory_->size());
  }
  return memory_ == nullptr ? nullptr : memory_->data();
}

}  // namespace weft
