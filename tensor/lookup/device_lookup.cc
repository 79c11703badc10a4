#include "tensor/device_lookup.h"

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace weft {
namespace {

constexpr int64_t kMaxDeviceIndex = 1023;

}  // namespace

absl::StatusOr<DeviceId> ParseDevice(absl::string_view text) {
  const absl::string_view kind = text.substr(0, text.find(':'));
  int64_t index = 0;
  if (kind.size() < text.size() && (!absl::SimpleAtoi(text.substr(kind.size() + 1), &index) ||
                                    index < 0 || index > kMaxDeviceIndex)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "'", text, "' is not a device; after the colon goes its number, as in cuda:1"));
  }
  if (kind != "cpu" && kind != "cuda") {
    return absl::InvalidArgumentError(
        absl::StrCat("'", text, "' is not a device; expected cpu, cuda or cuda:NUMBER"));
  }
  return DeviceId{kind == "cpu" ? DeviceKind::kCpu : DeviceKind::kCuda, static_cast<int>(index)};
}

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
