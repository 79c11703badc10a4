#include "ops/kernels/cuda/image/device_table.h"

#include "absl/time/time.h"
#include "platform/status_macros.h"

namespace weft::cuda {

size_t DeviceTable::AddBytes(const void* data, size_t bytes) {
  constexpr size_t kStep = 16;
  const size_t offset = host_.size();
  if (bytes > 0) host_.append(static_cast<const char*>(data), bytes);
  host_.resize((host_.size() + kStep - 1) / kStep * kStep);
  return offset;
}

absl::Status DeviceTable::Upload(Device& device) {
  size_ = host_.size();
  if (size_ == 0) return absl::OkStatus();
  WEFT_ASSIGN_OR_RETURN(buffer_, device.Allocate(size_));
  WEFT_ASSIGN_OR_RETURN(const std::unique_ptr<Stream> stream, device.NewStream("tables"));
  WEFT_RETURN_IF_ERROR(device.CopyFromHost(*stream, host_.data(), buffer_->data(), size_));
  WEFT_RETURN_IF_ERROR(stream->Synchronize(absl::InfiniteDuration()));
  host_.clear();
  return absl::OkStatus();
}

const void* DeviceTable::At(size_t offset) const {
  return buffer_ == nullptr ? nullptr : static_cast<const char*>(buffer_->data()) + offset;
}

}  // namespace weft::cuda
