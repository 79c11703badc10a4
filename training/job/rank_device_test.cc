#include "training/job/rank_device.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

using ::testing::HasSubstr;

class RankDeviceTest : public ::testing::Test {
 protected:
  RankDeviceTest() {
    cluster_.workers[1].device = DeviceKind::kCuda;
    cluster_.workers[1].device_index = 1002;  // No machine has it.
    plan_.mesh.data = 2;
    plan_.workers = {1, 0};
  }

  ClusterSpec cluster_ = ClusterSpec::Local(2, 1);
  Plan plan_;
};

// Ranks need not lie on workers in order.
TEST_F(RankDeviceTest, IsThatOfTheRanksWorker) {
  EXPECT_EQ(DeviceOfRank(cluster_, plan_, RankId(1)).value(), &CpuDevice());
  const auto cuda = DeviceOfRank(cluster_, plan_, RankId(0));
  ASSERT_FALSE(cuda.ok());
  EXPECT_THAT(std::string(cuda.status().message()), HasSubstr("cuda:1002"));
}

TEST_F(RankDeviceTest, RanksAndWorkersThatAreNotThereAreErrors) {
  EXPECT_EQ(DeviceOfRank(cluster_, plan_, RankId(2)).status().code(),
            absl::StatusCode::kOutOfRange);
  plan_.workers[0] = 7;
  EXPECT_EQ(DeviceOfRank(cluster_, plan_, RankId(0)).status().code(),
            absl::StatusCode::kOutOfRange);
}

}  // namespace
}  // namespace weft
