#include "tensor/testing/test_device.h"

#include <cstdint>

#include "absl/strings/str_cat.h"
#include "tensor/cpu_device.h"
#include "tensor/testing/fake_device.h"
#include "tensor/testing/lazy_device.h"

namespace weft::testing {

std::unique_ptr<Device> NewTestDevice(int order, int index) {
  if (order < 0) {
    DeviceInfo info;
    info.index = index;
    return NewCpuDevice(info);
  }
  FakeDeviceOptions options;
  options.index = index;
  if (order == kLazyOrder) return std::make_unique<LazyDevice>(options);
  options.scheduling.seed = static_cast<uint64_t>(order);
  return std::make_unique<FakeDevice>(options);
}

std::string TestDeviceName(int order) {
  if (order < 0) return "Cpu";
  return order == kLazyOrder ? "Lazy" : absl::StrCat("Seed", order);
}

absl::Status VerifyTestDevice(Device& device) {
  if (auto* const fake = dynamic_cast<FakeDevice*>(&device)) return fake->Verify();
  if (auto* const lazy = dynamic_cast<LazyDevice*>(&device)) return lazy->Verify();
  return absl::OkStatus();
}

TestDevices::TestDevices(int order, int ranks) {
  for (int rank = 0; rank < ranks; ++rank) {
    devices_.push_back(NewTestDevice(order > 0 ? order + 100 * rank : order, rank));
  }
}

std::vector<Device*> TestDevices::all() const {
  std::vector<Device*> devices;
  for (const std::unique_ptr<Device>& device : devices_) devices.push_back(device.get());
  return devices;
}

absl::Status TestDevices::Verify() const {
  absl::Status status;
  for (const std::unique_ptr<Device>& device : devices_) status.Update(VerifyTestDevice(*device));
  return status;
}

}  // namespace weft::testing
