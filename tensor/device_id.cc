#include "tensor/device_id.h"

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

}  // namespace weft
