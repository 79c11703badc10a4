#include "executor/lowering/resident_buffers.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "executor/lowering/node_context.h"
#include "platform/status_macros.h"

namespace weft {

absl::Status ResidentBuffers::AddScalar(const FeedInput& feed) {
  const int64_t bytes = DTypeBytes(feed.dtype, feed.sample_shape.num_elements());
  WEFT_ASSIGN_OR_RETURN(std::shared_ptr<Buffer> memory,
                        environment_.device->Allocate(std::max<int64_t>(bytes, 1)));
  scalars_[feed.name] = step_.buffers.AddFixed(memory->data(), bytes);
  step_.scalars.push_back(
      {feed.name, feed.dtype, Tensor(feed.dtype, feed.sample_shape, std::move(memory))});
  return absl::OkStatus();
}

absl::StatusOr<Tensor> ResidentBuffers::OnDevice(const Tensor& tensor) {
  Device& device = *environment_.device;
  const bool is_aligned = reinterpret_cast<uintptr_t>(tensor.raw_data()) % kAlignment == 0;
  if (device.info().host_accessible && is_aligned) return tensor;
  const auto bytes = static_cast<int64_t>(tensor.bytes());
  WEFT_ASSIGN_OR_RETURN(std::shared_ptr<Buffer> memory,
                        device.Allocate(std::max<int64_t>(bytes, 1)));
  if (stream_ == nullptr) {
    WEFT_ASSIGN_OR_RETURN(stream_, device.NewStream("constants"));
  }
  absl::Status status = device.CopyFromHost(*stream_, tensor.raw_data(), memory->data(), bytes);
  if (status.ok()) status = stream_->Synchronize(absl::Minutes(1));
  if (!status.ok()) {
    stream_.reset();  // waits for the copy, before its memory goes back
    return status;
  }
  return Tensor(tensor.dtype(), tensor.shape(), std::move(memory));
}

absl::StatusOr<BufferIndex> ResidentBuffers::OfConstant(const Tensor& tensor) {
  const auto known = constants_.find(tensor.raw_data());
  const auto bytes = static_cast<int64_t>(tensor.bytes());
  if (known != constants_.end() && step_.buffers.bytes(known->second) == bytes) {
    return known->second;
  }
  WEFT_ASSIGN_OR_RETURN(Tensor resident, OnDevice(tensor));
  const BufferIndex buffer = step_.buffers.AddFixed(resident.raw_data(), bytes);
  if (tensor.raw_data() != nullptr) constants_[tensor.raw_data()] = buffer;
  step_.constants.push_back(tensor);
  step_.constants.push_back(std::move(resident));
  return buffer;
}

absl::StatusOr<BufferIndex> ResidentBuffers::OfVariable(const Graph& graph, const ValueDef& value) {
  if (const auto known = variables_.find(value.name); known != variables_.end()) {
    return known->second;
  }
  if (environment_.variables->Find(value.name) == nullptr) {
    return absl::NotFoundError(absl::StrCat("no variable '", value.name, "' on this rank"));
  }
  WEFT_ASSIGN_OR_RETURN(const int64_t bytes, ValueBytes(graph, value.id));
  const BufferIndex buffer = step_.buffers.AddFixed(nullptr, bytes);
  variables_[value.name] = buffer;
  step_.variables.emplace_back(value.name, buffer);
  return buffer;
}

}  // namespace weft
