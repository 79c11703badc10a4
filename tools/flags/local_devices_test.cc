#include "tools/flags/local_devices.h"

#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "gtest/gtest.h"
#include "tensor/device_id.h"

namespace weft {
namespace {

std::vector<std::string> Devices(const std::string& text, int workers) {
  ClusterSpec cluster = ClusterSpec::Local(workers, 1);
  EXPECT_TRUE(SetLocalDevices(text, cluster).ok()) << text;
  std::vector<std::string> names;
  for (const WorkerSpec& worker : cluster.workers) {
    names.push_back(DeviceName(worker.device, worker.device_index));
  }
  return names;
}

std::string ErrorOf(const std::string& text, int workers) {
  ClusterSpec cluster = ClusterSpec::Local(workers, 1);
  return std::string(SetLocalDevices(text, cluster).message());
}

using Names = std::vector<std::string>;

TEST(LocalDevicesTest, WithoutTheFlagWorkersStayOnTheCpu) {
  EXPECT_EQ(Devices("", 2), (Names{"cpu:0", "cpu:0"}));
}

TEST(LocalDevicesTest, ADeviceWithoutANumberIsTheNextOfItsKind) {
  EXPECT_EQ(Devices("cuda", 1), (Names{"cuda:0"}));
  EXPECT_EQ(Devices("cuda", 3), (Names{"cuda:0", "cuda:1", "cuda:2"}));
  EXPECT_EQ(Devices("cuda:2,cuda", 2), (Names{"cuda:2", "cuda:3"}));
}

TEST(LocalDevicesTest, ANumberIsKept) {
  EXPECT_EQ(Devices("cuda:1", 2), (Names{"cuda:1", "cuda:1"}));
}

TEST(LocalDevicesTest, WorkersMayHaveDifferentDevices) {
  EXPECT_EQ(Devices("cuda,cpu,cpu", 3), (Names{"cuda:0", "cpu:0", "cpu:0"}));
}

TEST(LocalDevicesTest, AListOfTheWrongLengthIsRefusedWithBothCounts) {
  EXPECT_EQ(ErrorOf("cuda,cpu", 3),
            "--device cuda,cpu names 2 devices for 3 workers; name one for all, or one for each");
}

TEST(LocalDevicesTest, AnUnknownNameIsRefused) {
  EXPECT_TRUE(absl::StartsWith(ErrorOf("gpu", 1), "--device gpu: 'gpu' is not a device"));
}

}  // namespace
}  // namespace weft
