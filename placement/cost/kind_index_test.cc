// KindIndex by what a CostModel says.
#include "placement/cost/kind_index.h"

#include <algorithm>
#include <cstdint>

#include "gtest/gtest.h"
#include "placement/cost/testing/round_profile.h"

namespace weft {
namespace {

// RoundDevice with ops of which each took so many times as long as the roofline says, at the best
// rate of arithmetic and the rate of main memory.
class KindTest : public ::testing::Test {
 protected:
  static double Roofline(const NodeProbe& probe) {
    const Cost cost = CostOf(probe.View());
    return 1e-6 + std::max(cost.flops / 1e9, cost.bytes / 2e8);
  }
  void Measure(const NodeProbe& probe, double factor, int threads = 1) {
    profile_.devices[0].ops[{probe.Key(), threads}] = {factor * Roofline(probe), "",
                                                       WorkOf(probe.View())};
  }
  double Seconds(const NodeProbe& probe, int worker = 0, int threads = 1) const {
    return ModelOf(profile_).NodeSeconds(probe.View(), worker, threads);
  }
  double Factor(const NodeProbe& probe) const { return Seconds(probe) / Roofline(probe); }

  ClusterProfile profile_ = RoundProfile({0});
};

TEST_F(KindTest, OtherSizesTakeTheFactorOfThoseThatWereMeasured) {
  Measure(NodeProbe("Relu", {Shape{1000}}), 3);
  EXPECT_NEAR(Seconds(NodeProbe("Relu", {Shape{4000}})), 3 * (1e-6 + 4000 * 8 / 2e8), 1e-12);
  for (const int64_t size : {1, 100, 10'000, 1'000'000}) {
    EXPECT_NEAR(Factor(NodeProbe("Relu", {Shape{size}})), 3, 1e-9) << size;
  }
  EXPECT_FALSE(ModelOf(profile_).IsMeasured(NodeProbe("Relu", {Shape{4000}}).View(), 0, 1));
}

// The rates of small probes are not those of small ops in a step.
TEST_F(KindTest, AProductOfASmallerBatchTakesLessInProportion) {
  profile_.devices[0].contraction[DType::kFloat32] = {{{1e3, 1e6}, {1e6, 1e9}}};
  Measure(NodeProbe("MatMul", {Shape{64, 256}, Shape{256, 256}}), 2);
  EXPECT_NEAR(Factor(NodeProbe("MatMul", {Shape{2, 256}, Shape{256, 256}})), 2, 1e-9);
}

TEST_F(KindTest, TheFactorIsGeometricBetweenSmallerAndLarger) {
  Measure(NodeProbe("Relu", {Shape{100}}), 2);
  Measure(NodeProbe("Relu", {Shape{10'000}}), 8);
  EXPECT_NEAR(Factor(NodeProbe("Relu", {Shape{1000}})), 4, 1e-9);
  EXPECT_NEAR(Factor(NodeProbe("Relu", {Shape{101}})), 2, 0.01);
  EXPECT_NEAR(Factor(NodeProbe("Relu", {Shape{9999}})), 8, 0.01);
  EXPECT_NEAR(Factor(NodeProbe("Relu", {Shape{10}})), 2, 1e-9);
  EXPECT_NEAR(Factor(NodeProbe("Relu", {Shape{100'000}})), 8, 1e-9);
}

TEST_F(KindTest, NearestIsByAllDimensionsNotByWork) {
  const NodeProbe same_weights("MatMul", {Shape{8, 64}, Shape{64, 256}});
  const NodeProbe same_work("MatMul", {Shape{16, 64}, Shape{64, 17}});
  const NodeProbe asked("MatMul", {Shape{1, 64}, Shape{64, 256}});
  Measure(same_weights, 2);
  Measure(same_work, 5);
  ASSERT_NEAR(CostOf(same_work.View()).flops / CostOf(asked.View()).flops, 1, 0.1);
  EXPECT_NEAR(Factor(asked), 2, 1e-9);
}

TEST_F(KindTest, NearestIsByMicroBatchesInFlightToo) {
  const NodeProbe measured("Relu", {Shape{1000}});
  const NodeProbe asked("Relu", {Shape{500}});
  Measure(measured, 2);
  profile_.devices[0].ops[{measured.Key(), 1, 16}] = {5 * Roofline(measured), "",
                                                      WorkOf(measured.View())};
  const CostModel model = ModelOf(profile_);
  EXPECT_NEAR(model.NodeSeconds(asked.View(), 0, 1, 1) / Roofline(asked), 2, 1e-9);
  EXPECT_GT(model.NodeSeconds(asked.View(), 0, 1, 16) / Roofline(asked), 3.5);
}

TEST_F(KindTest, AMeasurementOfTheVeryOpGoesBefore) {
  const NodeProbe relu("Relu", {Shape{1000}});
  Measure(relu, 3);
  Measure(NodeProbe("Relu", {Shape{999}}), 7);
  Measure(NodeProbe("Relu", {Shape{1001}}), 7);
  EXPECT_NEAR(Factor(relu), 3, 1e-12);
}

TEST_F(KindTest, OtherThreadsDevicesAndKindsSayNothing) {
  const NodeProbe asked("Relu", {Shape{4000}});
  const double formula = Seconds(asked);
  profile_.devices.push_back(RoundDevice());
  profile_.device_of = {1};
  Measure(NodeProbe("Relu", {Shape{1000}}), 3);  // another device's
  EXPECT_EQ(Seconds(asked), formula);
  profile_.device_of = {0};
  EXPECT_EQ(Seconds(asked, 0, 2), formula);
  EXPECT_NE(Seconds(asked), formula);
  profile_.devices[0].ops.clear();
  Measure(NodeProbe("Tanh", {Shape{1000}}), 3);
  Measure(NodeProbe("Relu", {Shape{1000, 1}}), 3);
  Measure(NodeProbe("Relu", {Shape{1000}}, {}, DType::kFloat64), 3);
  EXPECT_EQ(Seconds(asked), formula);
}

TEST_F(KindTest, ProfilesWithoutKindsServeExactlyOnly) {
  const NodeProbe measured("Relu", {Shape{1000}});
  const NodeProbe asked("Relu", {Shape{4000}});
  const double formula = Seconds(asked);
  Measure(measured, 3);
  profile_.devices[0].ops.begin()->second.work = {};
  EXPECT_EQ(Seconds(asked), formula);
  EXPECT_NEAR(Factor(measured), 3, 1e-9);
}

// A file may say anything.
TEST_F(KindTest, MeasurementsWithoutTimeOrWithOtherDimensionsAreLeftOut) {
  const NodeProbe asked("Relu", {Shape{4000}});
  const double formula = Seconds(asked);
  const NodeProbe measured("Relu", {Shape{1000}});
  Measure(measured, 3);
  Measure(NodeProbe("Relu", {Shape{3999}}), 0);
  EXPECT_NEAR(Factor(asked), 3, 1e-9);
  profile_.devices[0].ops.clear();
  Measure(measured, 3);
  profile_.devices[0].ops.begin()->second.work.dims = {1000};
  EXPECT_EQ(Seconds(asked), formula);
}

}  // namespace
}  // namespace weft
