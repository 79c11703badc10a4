#include "placement/cost/cluster_profile.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "placement/cost/published_specs.h"

namespace weft {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

WorkerSpec Gpu(const std::string& name, const std::string& host, const std::string& model) {
  WorkerSpec worker;
  worker.name = name;
  worker.host = host;
  worker.device = DeviceKind::kCuda;
  worker.model = model;
  return worker;
}

ClusterSpec TwoGpuHosts() {
  ClusterSpec cluster;
  cluster.workers = {Gpu("a0", "a", "A100-80GB"), Gpu("a1", "a", "A100-80GB"),
                     Gpu("b0", "b", "V100-16GB")};
  LinkSpec within{"*", "", 0, 0, "nvlink3", 0};
  LinkSpec between{"*", "*", 0, 0, "infiniband-hdr", 8};
  cluster.links = {within, between};
  return cluster;
}

TEST(RateCurveTest, IsGeometricBetweenPointsAndFlatBeyond) {
  const RateCurve curve{{{1e2, 1e6}, {1e4, 1e8}}};
  EXPECT_DOUBLE_EQ(curve.At(1), 1e6);
  EXPECT_NEAR(curve.At(1e3), 1e7, 1);
  EXPECT_DOUBLE_EQ(curve.At(1e9), 1e8);
  EXPECT_EQ(RateCurve().At(1), 0);
}

TEST(ProfileOfSpecTest, LooksPublishedSpecsUp) {
  const auto profile = ProfileOfSpec(TwoGpuHosts());
  ASSERT_TRUE(profile.ok()) << profile.status();
  EXPECT_EQ(profile->devices.size(), 2u);
  EXPECT_EQ(profile->device_of, (std::vector<int>{0, 0, 1}));
  EXPECT_EQ(profile->host_of, (std::vector<int>{0, 0, 1}));
  EXPECT_EQ(profile->device(1).memory_bytes, int64_t{80} << 30);
  // 82 % of 312 TFLOP/s.
  EXPECT_NEAR(profile->device(0).contraction.at(DType::kFloat16).At(1e13), 0.82 * 312e12, 1e9);
  EXPECT_DOUBLE_EQ(profile->link(0, 1).bytes_per_second, 0.8 * 300e9);
  EXPECT_DOUBLE_EQ(profile->link(0, 2).bytes_per_second, 0.92 * 25e9);
  EXPECT_EQ(profile->link(2, 1).rails, 8);
}

TEST(ProfileOfSpecTest, GpusOfOneHostHaveTheNvlinkOfTheirCards) {
  ClusterSpec cluster;
  cluster.workers = {Gpu("a0", "a", "H100"), Gpu("a1", "a", "H200")};
  EXPECT_DOUBLE_EQ(ProfileOfSpec(cluster)->within_host.bytes_per_second, 0.8 * 450e9);
  cluster.workers.push_back(Gpu("a2", "a", "L4"));
  EXPECT_DOUBLE_EQ(ProfileOfSpec(cluster)->within_host.bytes_per_second, 0.85 * 31.5e9);
  cluster.workers = {Gpu("a0", "a", "V100-16GB"), Gpu("a1", "a", "T4")};
  EXPECT_DOUBLE_EQ(ProfileOfSpec(cluster)->within_host.bytes_per_second, 0.85 * 15.75e9);
  cluster.workers[1].model = "";  // an unknown card
  EXPECT_DOUBLE_EQ(ProfileOfSpec(cluster)->within_host.bytes_per_second, 0.85 * 15.75e9);
}

TEST(ProfileOfSpecTest, ValuesOfTheClusterFileGoBefore) {
  ClusterSpec cluster = TwoGpuHosts();
  cluster.workers[2].memory_bytes = 1000;
  cluster.links.push_back({"b", "a", 5e6, 1e-3, "", 0});
  const auto profile = ProfileOfSpec(cluster);
  ASSERT_TRUE(profile.ok()) << profile.status();
  EXPECT_EQ(profile->device(2).memory_bytes, 1000);
  EXPECT_DOUBLE_EQ(profile->link(0, 2).bytes_per_second, 5e6);
  EXPECT_DOUBLE_EQ(profile->link(2, 0).latency_seconds, 1e-3);
  EXPECT_EQ(profile->link(0, 2).rails, 8);
}

TEST(ProfileOfSpecTest, UnknownModelsAndKindsAreListed) {
  ClusterSpec cluster = TwoGpuHosts();
  cluster.workers[0].model = "A1000";
  EXPECT_THAT(
      std::string(ProfileOfSpec(cluster).status().message()),
      HasSubstr("worker 'a0': no published specs of device model 'A1000' are built in; there are "
                "P100-16GB, V100-16GB"));
  cluster = TwoGpuHosts();
  cluster.links[0].kind = "string";
  EXPECT_THAT(
      std::string(ProfileOfSpec(cluster).status().message()),
      HasSubstr("no published specs of link kind 'string' are built in; there are nvlink1"));
}

TEST(ProfileOfSpecTest, LargeClustersShareDevices) {
  ClusterSpec cluster;
  for (int i = 0; i < 1000; ++i) {
    cluster.workers.push_back(
        Gpu("w" + std::to_string(i), "h" + std::to_string(i / 8), "H100-80GB"));
  }
  const auto profile = ProfileOfSpec(cluster);
  ASSERT_TRUE(profile.ok()) << profile.status();
  EXPECT_EQ(profile->devices.size(), 1u);
  EXPECT_TRUE(profile->links.empty());
}

// Hosts are numbered anew, as the part names them first.
TEST(PartOfProfileTest, SaysTheSameOfItsWorkers) {
  ClusterSpec cluster = TwoGpuHosts();
  cluster.workers.push_back(Gpu("c0", "c", "P100-16GB"));
  cluster.links.push_back({"b", "c", 5e6, 1e-3, "", 0});
  cluster.links.push_back({"a", "c", 7e6, 2e-3, "", 0});
  const auto whole = ProfileOfSpec(cluster);
  ASSERT_TRUE(whole.ok()) << whole.status();
  const std::vector<int> workers = {1, 2, 3};
  const ClusterProfile part = PartOfProfile(*whole, workers);
  EXPECT_EQ(part.host_of, (std::vector<int>{0, 1, 2}));
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(part.device(i), whole->device(workers[i]));
    for (int j = 0; j < 3; ++j) EXPECT_EQ(part.link(i, j), whole->link(workers[i], workers[j]));
  }
  const ClusterProfile last = PartOfProfile(*whole, {3, 2});
  EXPECT_EQ(last.host_of, (std::vector<int>{0, 1}));
  EXPECT_DOUBLE_EQ(last.link(0, 1).bytes_per_second, 5e6);
  EXPECT_EQ(last.links.size(), 2u);
  EXPECT_TRUE(CheckProfileFits(last, ClusterSpec::Local(2, 1)).ok());
  EXPECT_FALSE(CheckProfileFits(last, ClusterSpec::Local(3, 1)).ok());
}

TEST(CheckProfileFitsTest, AnotherClusterIsRefused) {
  const auto profile = ProfileOfSpec(ClusterSpec::Local(2, 1));
  ASSERT_TRUE(profile.ok());
  EXPECT_TRUE(CheckProfileFits(*profile, ClusterSpec::Local(2, 1)).ok());
  const absl::Status status = CheckProfileFits(*profile, ClusterSpec::Local(1, 2));
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("the profile was made for another cluster, of 2 workers"));
}

TEST(CheckProfiledCardTest, AnotherCardIsRefusedWithBothNames) {
  ClusterProfile profile = *ProfileOfSpec(ClusterSpec::Local(2, 1));
  profile.devices.push_back(profile.devices[0]);
  profile.device_of = {0, 1};
  profile.devices[1].card = "NVIDIA L4, compute capability 8.9";
  const std::string other = "NVIDIA A10, compute capability 8.6";
  EXPECT_TRUE(CheckProfiledCard(profile, 0, "a", other).ok());  // nobody said what was measured
  EXPECT_TRUE(CheckProfiledCard(profile, 1, "b", profile.devices[1].card).ok());
  EXPECT_TRUE(CheckProfiledCard(profile, 1, "b", "").ok());
  const absl::Status refused = CheckProfiledCard(profile, 1, "b", other);
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(refused.message()),
              AllOf(HasSubstr("'b' had NVIDIA L4, compute capability 8.9, and has NVIDIA A10"),
                    HasSubstr("leave out --calibration")));
  // Of the same two workers the other way round it is the first.
  EXPECT_FALSE(CheckProfiledCard(PartOfProfile(profile, {1, 0}), 0, "b", other).ok());
}

TEST(NoteOnProfiledDriverTest, AnotherDriverIsNoted) {
  ClusterProfile profile = *ProfileOfSpec(ClusterSpec::Local(1, 1));
  EXPECT_EQ(NoteOnProfiledDriver(profile, 0, "a", "580.65.06"), "");
  profile.devices[0].driver = "570.1";
  EXPECT_EQ(NoteOnProfiledDriver(profile, 0, "a", "570.1"), "");
  EXPECT_EQ(NoteOnProfiledDriver(profile, 0, "a", ""), "");
  EXPECT_THAT(NoteOnProfiledDriver(profile, 0, "a", "580.65.06"),
              AllOf(HasSubstr("driver 570.1"), HasSubstr("driver 580.65.06")));
}

}  // namespace
}  // namespace weft
