// The devices that a test runs on: one number says which, so that a suite can have it as parameter.
#ifndef WEFT_TENSOR_TESTING_TEST_DEVICE_H_
#define WEFT_TENSOR_TESTING_TEST_DEVICE_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "tensor/device.h"

namespace weft::testing {

// A device for tests. `order` < 0: a CPU device. 0: a LazyDevice. Else a FakeDevice with this seed.
// No test can tell the results of one from those of another.
inline constexpr int kOnCpu = -1;
inline constexpr int kLazyOrder = 0;

std::unique_ptr<Device> NewTestDevice(int order, int index = 0);
// "Cpu", "Lazy", "Seed7": the name of a test's instance.
std::string TestDeviceName(int order);
// Internal with the first damage done to the device's memory; OK for one without such a check.
absl::Status VerifyTestDevice(Device& device);

// The devices of several ranks. A seed gives each rank one of its own. Thread-safe as they are.
class TestDevices {
 public:
  TestDevices(int order, int ranks);
  // Borrowed, by rank.
  std::vector<Device*> all() const;
  // The first damage of any.
  absl::Status Verify() const;

 private:
  std::vector<std::unique_ptr<Device>> devices_;
};

}  // namespace weft::testing

#endif  // WEFT_TENSOR_TESTING_TEST_DEVICE_H_
