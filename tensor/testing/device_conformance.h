// The behaviour that every Device shares, as one parameterised test suite. A device is put under it
// by
//
//   INSTANTIATE_TEST_SUITE_P(Cuda, DeviceConformanceTest, ::testing::Values(CudaConformance()),
//                            ConformanceName);
//
// in a test that links //tensor/testing:device_conformance.
#ifndef WEFT_TENSOR_TESTING_DEVICE_CONFORMANCE_H_
#define WEFT_TENSOR_TESTING_DEVICE_CONFORMANCE_H_

#include <cstddef>
#include <functional>
#include <memory>
#include <ostream>
#include <string>

#include "gtest/gtest.h"
#include "tensor/device.h"

namespace weft::testing {

struct ConformingDevice {
  std::string name;  // of the test instance
  // A new device that may allocate `memory_limit` bytes (0 = no limit).
  std::function<std::unique_ptr<Device>(size_t memory_limit)> make;
  // Enqueue returns before the work has run. Tests of work that waits need it: a stream that runs
  // its work in the calling thread cannot return from them.
  bool asynchronous = false;
  // For devices whose work launches (DeviceInfo::runs_host_work is false): stands for a kernel,
  // code that may touch the device's memory in its turn on the stream. Unset: the work itself does.
  std::function<absl::Status(Stream& stream, std::function<void()> code)> launch = nullptr;
  // `launch` calls the host: such code touches no memory of the device, and may keep the code of
  // other streams waiting. What needs more is skipped.
  bool launch_is_host_call = false;
  // Its streams can record.
  bool records = false;
};

void PrintTo(const ConformingDevice& device, std::ostream* out);
std::string ConformanceName(const ::testing::TestParamInfo<ConformingDevice>& info);

class DeviceConformanceTest : public ::testing::TestWithParam<ConformingDevice> {
 protected:
  DeviceConformanceTest() : device_(GetParam().make(0)) {}

  std::unique_ptr<Stream> NewStream(const std::string& name = "test");
  std::unique_ptr<Event> NewEvent();
  std::shared_ptr<Buffer> NewBuffer(size_t bytes);

  const std::unique_ptr<Device> device_;
};

}  // namespace weft::testing

#endif  // WEFT_TENSOR_TESTING_DEVICE_CONFORMANCE_H_
