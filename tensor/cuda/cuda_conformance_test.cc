// The CUDA device, over a fake of CUDA's runtime, under the suite that every device shares.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tensor/cuda/cuda_device.h"
#include "tensor/testing/device_conformance.h"
#include "tensor/testing/fake_cuda_runtime.h"

namespace weft::testing {
namespace {

ConformingDevice Cuda(const std::string& name, bool has_memory_pools,
                      const FakeSchedulerOptions& scheduling) {
  FakeCudaOptions options;
  options.scheduling = scheduling;
  options.cards[0].properties.has_memory_pools = has_memory_pools;
  const auto runtime = std::make_shared<FakeCudaRuntime>(options);
  ConformingDevice device;
  device.name = name;
  device.make = [runtime](size_t memory_limit) -> std::unique_ptr<Device> {
    CudaDeviceOptions of_device;
    of_device.memory_limit = memory_limit;
    // Small slots: copies of the suite go around the ring.
    of_device.staging.slots = 3;
    of_device.staging.slot_bytes = size_t{100} << 10;
    return CudaDevice::Create(*runtime, of_device).value();
  };
  device.asynchronous = true;
  device.launch = [runtime](Stream& stream, std::function<void()> code) {
    const CudaCode launched = runtime->Launch(stream.native_handle(), std::move(code));
    return launched == CudaCode::kSuccess ? absl::OkStatus()
                                          : absl::InternalError("the launch is refused");
  };
  device.records = true;
  return device;
}

std::vector<ConformingDevice> Devices() {
  std::vector<ConformingDevice> devices;
  for (uint64_t seed = 1; seed <= 6; ++seed) {
    devices.push_back(Cuda(absl::StrCat("Seed", seed), true, {.seed = seed}));
  }
  devices.push_back(Cuda("WithoutPools", false, {.seed = 7}));
  devices.push_back(Cuda("Concurrent", true, {.turn = absl::ZeroDuration()}));
  return devices;
}

INSTANTIATE_TEST_SUITE_P(Cuda, DeviceConformanceTest, ::testing::ValuesIn(Devices()),
                         ConformanceName);

}  // namespace
}  // namespace weft::testing
