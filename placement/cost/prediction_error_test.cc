#include "placement/cost/prediction_error.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "placement/cost/cost_model.h"

namespace weft {
namespace {

using ::testing::HasSubstr;

TEST(PredictionErrorTest, TheTextHasTheMeasuredSpread) {
  EXPECT_THAT(UncalibratedText(), HasSubstr("took 40 times as long as predicted"));
  EXPECT_THAT(UncalibratedText(), HasSubstr("12 calibrated runs took 0.92 to 1.14 times as long"));
  EXPECT_THAT(UncalibratedWords(), HasSubstr("40 times as long"));
}

TEST(PredictionErrorTest, AModelIsCalibratedWhereAllItsDevicesWereMeasured) {
  const CostModel costs = CostModel::OfSpec(ClusterSpec::Local(2, 1)).value();
  EXPECT_FALSE(costs.is_calibrated());
  ClusterProfile profile = costs.profile();
  for (DeviceProfile& device : profile.devices) device.source = kMeasuredSource;
  EXPECT_TRUE(CostModel::Create(profile)->is_calibrated());
  profile.devices.push_back(costs.profile().devices.front());
  profile.devices.back().name = "another";
  profile.device_of.back() = static_cast<int>(profile.devices.size()) - 1;
  EXPECT_FALSE(CostModel::Create(profile)->is_calibrated());
}

}  // namespace
}  // namespace weft
