// The workers of a job on the devices of a test, one thread each.
#ifndef WEFT_DISTRIBUTED_TESTING_DEVICE_CLUSTER_H_
#define WEFT_DISTRIBUTED_TESTING_DEVICE_CLUSTER_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "distributed/in_process_cluster.h"
#include "distributed/worker_client.h"
#include "gtest/gtest.h"
#include "platform/file_system.h"
#include "tensor/testing/test_device.h"

namespace weft::testing {

// An InProcessCluster whose devices are NewTestDevice(order, rank). At its end the test fails where
// the memory of a device was damaged. `files` is borrowed; null: the machine's.
class DeviceCluster {
 public:
  DeviceCluster(int order, int workers, const InputSourceFactory& open_input,
                const std::string& version, FileSystem* files = nullptr)
      : devices_(order, workers), cluster_(devices_.all(), open_input, version, {}, files) {}
  DeviceCluster(const DeviceCluster&) = delete;
  DeviceCluster& operator=(const DeviceCluster&) = delete;
  ~DeviceCluster() {
    const absl::Status status = devices_.Verify();
    EXPECT_TRUE(status.ok()) << status;
  }

  // One per rank; they live as long as this.
  std::vector<WorkerClient*> clients() const { return cluster_.clients(); }

 private:
  const TestDevices devices_;
  const InProcessCluster cluster_;
};

// What jobs are tried on: the CPU, a lazy device, and fake ones in three orders.
inline auto JobDevices() { return ::testing::Values(kOnCpu, kLazyOrder, 1); }
inline std::string JobDeviceName(const ::testing::TestParamInfo<int>& info) {
  return TestDeviceName(info.param);
}

}  // namespace weft::testing

#endif  // WEFT_DISTRIBUTED_TESTING_DEVICE_CLUSTER_H_
