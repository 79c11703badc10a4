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

TEST_F(RankDeviceTest, WorkersThatOthersStartedAreTakenForWhatTheClusterSays) {
  EXPECT_EQ(ExpectedDevice(cluster_.workers[1]), "");
  cluster_.workers[1].address = "10.0.0.2:4000";
  EXPECT_EQ(ExpectedDevice(cluster_.workers[1]), "cuda:1002");
}

constexpr char kMeasuredCard[] = "NVIDIA L4, compute capability 8.9";
constexpr char kOtherCard[] = "NVIDIA A10, compute capability 8.6";

class ProfiledCardTest : public RankDeviceTest {
 protected:
  ProfiledCardTest() { profile_.devices[profile_.device_of[1]].card = kMeasuredCard; }
  ClusterProfile profile_ = *ProfileOfSpec(cluster_);
};

TEST_F(ProfiledCardTest, OfThisMachineAnotherIsRefusedBeforeAnythingStarts) {
  std::string card = kMeasuredCard;
  const auto describe = [&](DeviceKind kind, int index) {
    return kind == DeviceKind::kCuda && index == 1002 ? card : std::string();
  };
  EXPECT_TRUE(CheckLocalCards(profile_, cluster_, describe).ok());
  card = kOtherCard;
  const absl::Status refused = CheckLocalCards(profile_, cluster_, describe);
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("'worker:1' had NVIDIA L4"));
  // That one is elsewhere, and says itself what it has.
  cluster_.workers[1].address = "10.0.0.2:4000";
  EXPECT_TRUE(CheckLocalCards(profile_, cluster_, describe).ok());
}

TEST_F(ProfiledCardTest, OfWorkersThatHaveJoinedAnotherIsRefused) {
  std::vector<WorkerInfo> workers(2);  // rank 0 is worker:1
  workers[0].device.text = kMeasuredCard;
  workers[1].device.text = kOtherCard;  // nobody has measured that one
  EXPECT_TRUE(CheckJoinedCards(profile_, cluster_, plan_, workers).ok());
  workers[0].device.text = kOtherCard;
  EXPECT_THAT(std::string(CheckJoinedCards(profile_, cluster_, plan_, workers).message()),
              HasSubstr("'worker:1' had NVIDIA L4"));
}

}  // namespace
}  // namespace weft
