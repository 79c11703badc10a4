#include "tensor/device_lookup.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace weft {

std::string DeviceName(DeviceKind kind, int index) {
  const char* const name = kind == DeviceKind::kCpu    ? "cpu"
                           : kind == DeviceKind::kCuda ? "cuda"
                                                       : "fake";
  return absl::StrCat(name, ":", index);
}

absl::StatusOr<Device*> FindDevice(DeviceKind kind, int index) {
  if (kind == DeviceKind::kCpu && index == 0) return &CpuDevice();
  if (kind == DeviceKind::kCpu) {
    return absl::InvalidArgumentError(absl::StrCat("there is no device ", DeviceName(kind, index),
                                                   "; a process has cpu:0 alone"));
  }
  return absl::UnimplementedError(absl::StrCat("this build cannot run on ", DeviceName(kind, index),
                                               ": it has the CPU device alone"));
}

}  // namespace weft
