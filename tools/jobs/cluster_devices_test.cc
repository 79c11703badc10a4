#include "tools/jobs/cluster_devices.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tools/console/exit_code.h"

namespace weft {
namespace {

using ::testing::HasSubstr;

ClusterSpec WithGpu() {
  ClusterSpec cluster = ClusterSpec::Local(2, 1);
  cluster.workers[1].name = "gpu-worker";
  cluster.workers[1].host = "big-box";
  cluster.workers[1].device = DeviceKind::kCuda;
  cluster.workers[1].device_index = 1000;  // No machine has it.
  return cluster;
}

TEST(ClusterDevicesTest, ProcessorsCanRun) {
  EXPECT_TRUE(CheckClusterDevices(ClusterSpec::Local(2, 1)).ok());
  EXPECT_EQ(NoteOnClusterDevices(ClusterSpec::Local(2, 1)), "");
}

// Such a job was priced as one of a GPU and then ran on the CPU.
TEST(ClusterDevicesTest, AMissingDeviceIsNamedWithHostAndWorker) {
  const absl::Status status = CheckClusterDevices(WithGpu());
  EXPECT_EQ(ExitCodeOf(status), ExitCode::kPlan);
  EXPECT_THAT(std::string(status.message()), HasSubstr("worker 'gpu-worker' on host 'big-box'"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("cuda:1000"));
  EXPECT_THAT(NoteOnClusterDevices(WithGpu()), HasSubstr("not run 1 of 2 workers"));
}

// Its machine is not this one: the worker says when it joins what it computes on.
TEST(ClusterDevicesTest, AWorkerThatSomebodyStartedIsNotAskedForHere) {
  ClusterSpec cluster = WithGpu();
  cluster.workers[1].address = "10.0.0.7:4000";
  EXPECT_TRUE(CheckClusterDevices(cluster).ok());
  EXPECT_EQ(NoteOnClusterDevices(cluster), "");
}

}  // namespace
}  // namespace weft
