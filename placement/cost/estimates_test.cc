#include "placement/cost/estimates.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

ClusterSpec TwoHosts() {
  ClusterSpec cluster;
  for (int i = 0; i < 4; ++i) {
    WorkerSpec worker;
    worker.name = "w" + std::to_string(i);
    worker.host = i < 2 ? "a" : "b";
    worker.device = DeviceKind::kCuda;
    worker.model = "H100-80GB";
    cluster.workers.push_back(worker);
  }
  cluster.links = {{"*", "*", 20e9, 0, "infiniband-ndr", 0}};
  return cluster;
}

TEST(EstimatesOfTest, NameDataSheetsLinksAndAssumptions) {
  const auto estimates = EstimatesOf(*ProfileOfSpec(TwoHosts()), {0, 1, 2, 3});
  EXPECT_THAT(estimates, Contains(AllOf(Field(&Estimate::what, HasSubstr("989.5 TFLOP/s")),
                                        Field(&Estimate::basis, EstimateBasis::kPublished),
                                        Field(&Estimate::source, HasSubstr("H100 data sheet")))));
  EXPECT_THAT(estimates, Contains(AllOf(Field(&Estimate::what, HasSubstr("attain 74 %")),
                                        Field(&Estimate::basis, EstimateBasis::kAssumed))));
  EXPECT_THAT(estimates, Contains(AllOf(Field(&Estimate::what,
                                              "messages within a host: 360 GB/s "
                                              "and 6 us"),
                                        Field(&Estimate::basis, EstimateBasis::kPublished))));
  EXPECT_THAT(estimates, Contains(AllOf(Field(&Estimate::what, HasSubstr("between hosts: 20 GB/s")),
                                        Field(&Estimate::basis, EstimateBasis::kGiven))));
  // Each once, however many workers and hosts there are.
  for (size_t i = 0; i < estimates.size(); ++i) {
    for (size_t j = 0; j < i; ++j) EXPECT_FALSE(estimates[i] == estimates[j]);
  }
}

TEST(HostPathEstimatesTest, NameWhatTheirPricesRestOn) {
  const ClusterProfile profile = *ProfileOfSpec(TwoHosts());
  const auto across = [] { return Field(&Estimate::what, HasSubstr("at most 6.25 GB/s")); };
  const auto both = HostPathEstimates(profile, {0, 1, 2, 3});
  EXPECT_THAT(both, Each(Field(&Estimate::basis, EstimateBasis::kAssumed)));
  EXPECT_THAT(both, Contains(Field(&Estimate::what, HasSubstr("2.5 GB/s and 70 us"))));
  EXPECT_THAT(both, Contains(Field(&Estimate::what, HasSubstr("H100-80GB: copies to the host"))));
  EXPECT_THAT(both, Contains(across()));
  EXPECT_THAT(HostPathEstimates(profile, {0, 1}), Not(Contains(across())));
  const ClusterProfile processors = *ProfileOfSpec(ClusterSpec::Local(2, 1));
  EXPECT_THAT(HostPathEstimates(processors, {0, 1}), IsEmpty());
}

// A link that was measured through hosts has all of it.
TEST(HostPathEstimatesTest, WhatWasMeasuredIsNotEstimated) {
  ClusterProfile profile = *ProfileOfSpec(TwoHosts());
  for (DeviceProfile& device : profile.devices) device.source = kMeasuredSource;
  EXPECT_THAT(HostPathEstimates(profile, {0, 1}), Not(IsEmpty()));
  profile.within_host.through_host = true;
  EXPECT_THAT(HostPathEstimates(profile, {0, 1}), IsEmpty());
}

TEST(EstimatesOfTest, AreOfTheWorkersThatAPlanHas) {
  ClusterSpec cluster = TwoHosts();
  cluster.workers[3].model = "T4";
  const ClusterProfile profile = *ProfileOfSpec(cluster);
  EXPECT_THAT(EstimatesOf(profile, {0, 1, 2}), Each(Field(&Estimate::what, Not(HasSubstr("T4")))));
  EXPECT_THAT(EstimatesOf(profile, {0}), Each(Field(&Estimate::what, Not(HasSubstr("messages")))));
  EXPECT_THAT(EstimatesOf(profile, {0, 3}), Contains(Field(&Estimate::what, HasSubstr("T4"))));
}

// Nobody has said what card it is: no data sheet is its source.
TEST(EstimatesOfTest, OfAnUnknownGpuAllIsAssumed) {
  ClusterSpec cluster = TwoHosts();
  cluster.workers[0].model.clear();
  EXPECT_THAT(EstimatesOf(*ProfileOfSpec(cluster), {0}),
              ElementsAre(AllOf(Field(&Estimate::what, HasSubstr("gpu: rates of products")),
                                Field(&Estimate::basis, EstimateBasis::kAssumed),
                                Field(&Estimate::source, HasSubstr("P100")))));
}

TEST(EstimatesOfTest, AreNoneWhereEverythingWasMeasured) {
  ClusterProfile profile = *ProfileOfSpec(TwoHosts());
  for (DeviceProfile& device : profile.devices) device.source = kMeasuredSource;
  profile.within_host.source = kMeasuredSource;
  EXPECT_THAT(EstimatesOf(profile, {0, 1}), IsEmpty());
  EXPECT_EQ(EstimatesOf(profile, {0, 2}).size(), 1u);  // the link between the hosts
}

}  // namespace
}  // namespace weft
