#include "tensor/device.h"

#include "absl/strings/str_cat.h"

namespace weft {

absl::Status Stream::BeginRecording() {
  return absl::UnimplementedError(
      "streams of this device cannot record their work; run it instead");
}

absl::StatusOr<std::unique_ptr<RecordedWork>> Stream::EndRecording(
    std::unique_ptr<RecordedWork> /*former*/) {
  return absl::FailedPreconditionError("EndRecording without BeginRecording");
}

absl::StatusOr<std::shared_ptr<Buffer>> Device::AllocateHostMemory(size_t bytes) {
  return CpuDevice().Allocate(bytes);
}

absl::Status Device::CopyToPeer(Stream& /*stream*/, const void* /*from*/, Device& peer,
                                void* /*to*/, size_t /*bytes*/) {
  return absl::UnimplementedError(
      absl::StrCat(info().name, " cannot copy to ", peer.info().name, "; copy through the host"));
}

}  // namespace weft
