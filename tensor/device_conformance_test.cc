// The CPU and the fake devices under the suite that every device shares.
#include "tensor/testing/device_conformance.h"

#include <functional>
#include <list>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tensor/cpu_device.h"
#include "tensor/testing/fake_device.h"
#include "tensor/testing/lazy_device.h"

namespace weft::testing {
namespace {

ConformingDevice Cpu() {
  return {.name = "Cpu", .make = [](size_t memory_limit) {
            DeviceInfo info;
            info.memory_limit = memory_limit;
            return NewCpuDevice(info);
          }};
}

ConformingDevice Fake(const std::string& name, const FakeSchedulerOptions& scheduling) {
  return {.name = name,
          .make =
              [scheduling](size_t memory_limit) {
                return std::make_unique<FakeDevice>(
                    FakeDeviceOptions{.memory_limit = memory_limit, .scheduling = scheduling});
              },
          .asynchronous = true,
          .records = true};
}

// As CUDA does, it calls work at once; what stands for kernels runs later.
ConformingDevice LaunchingFake() {
  ConformingDevice device;
  device.name = "Launching";
  device.make = [](size_t memory_limit) -> std::unique_ptr<Device> {
    FakeDeviceOptions options;
    options.memory_limit = memory_limit;
    options.runs_host_work = false;
    return std::make_unique<FakeDevice>(options);
  };
  device.asynchronous = true;
  device.launch = [](Stream& stream, std::function<void()> code) {
    // Recordings run it again and again, so it stays.
    static auto* const codes = new std::list<std::function<void()>>;
    codes->push_back(std::move(code));
    return dynamic_cast<FakeStream&>(stream).EnqueueLater(
        Work{[](void* argument, Stream&) {
               (*static_cast<std::function<void()>*>(argument))();
               return absl::OkStatus();
             },
             &codes->back()});
  };
  device.records = true;
  return device;
}

// Does nothing before it must. `eager_stream`: "", or the name of streams that do all at once.
ConformingDevice Lazy(const std::string& name, const std::string& eager_stream) {
  return {.name = name,
          .make =
              [eager_stream](size_t memory_limit) {
                return std::make_unique<LazyDevice>(FakeDeviceOptions{.memory_limit = memory_limit},
                                                    eager_stream);
              },
          .asynchronous = true};
}

std::vector<ConformingDevice> Fakes() {
  std::vector<ConformingDevice> devices;
  for (uint64_t seed = 1; seed <= 6; ++seed) {
    devices.push_back(Fake(absl::StrCat("Seed", seed), {.seed = seed}));
  }
  devices.push_back(Fake("Concurrent", {.turn = absl::ZeroDuration()}));
  devices.push_back(LaunchingFake());
  devices.push_back(Lazy("Lazy", ""));
  devices.push_back(Lazy("SecondIsEager", "second"));
  return devices;
}

INSTANTIATE_TEST_SUITE_P(Cpu, DeviceConformanceTest, ::testing::Values(Cpu()), ConformanceName);
INSTANTIATE_TEST_SUITE_P(Fake, DeviceConformanceTest, ::testing::ValuesIn(Fakes()),
                         ConformanceName);

}  // namespace
}  // namespace weft::testing
