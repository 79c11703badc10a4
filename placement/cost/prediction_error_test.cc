#include "placement/cost/prediction_error.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "placement/cost/cost_model.h"

namespace weft {
namespace {

using ::testing::HasSubstr;

TEST(PredictionErrorTest, TheTextHasTheMeasuredSpread) {
  EXPECT_THAT(UncalibratedText(),
              HasSubstr("13 uncalibrated steps took 2.1 times as long as predicted in "
                        "the median (0.83 to 40 times)"));
  EXPECT_THAT(UncalibratedText(), HasSubstr("12 calibrated ones 1.03 times (0.92 to 1.14)"));
  EXPECT_THAT(UncalibratedWords(), HasSubstr("steps took 0.83 to 40 times as long as predicted"));
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
