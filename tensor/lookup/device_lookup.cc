#include "tensor/lookup/device_lookup.h"

#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "platform/status.h"
#include "platform/status_macros.h"
#include "tensor/cuda/cuda_device.h"
#include "tensor/device_id.h"

namespace weft {
namespace {

absl::Status Refused(DeviceKind kind, int index, const absl::Status& reason) {
  return Annotate(reason, absl::StrCat("this process cannot run on ", DeviceName(kind, index)));
}

}  // namespace

absl::StatusOr<Device*> FindDevice(DeviceKind kind, int index) {
  if (kind != DeviceKind::kCuda) {
    WEFT_RETURN_IF_ERROR(CheckDevice(kind, index));
    return &CpuDevice();
  }
  absl::StatusOr<Device*> device = FindCudaDevice(index);
  if (!device.ok()) return Refused(kind, index, device.status());
  return device;
}

absl::Status CheckDevice(DeviceKind kind, int index) {
  switch (kind) {
    case DeviceKind::kCpu:
      return index == 0
                 ? absl::OkStatus()
                 : Refused(kind, index, absl::InvalidArgumentError("a process has cpu:0 alone"));
    case DeviceKind::kCuda:
      return Refused(kind, index, CheckCudaDevice(index));
    case DeviceKind::kFake:
      break;
  }
  return Refused(kind, index,
                 absl::UnimplementedError("it is a device of tests, which make it themselves"));
}

std::string DescribeDevice(DeviceKind kind, int index) {
  return kind == DeviceKind::kCuda ? DescribeCudaDevice(index) : "";
}

}  // namespace weft
