#include "placement/cost/cluster_profile.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "placement/cost/profile_file.h"
#include "placement/cost/published_figures.h"

namespace weft {
namespace {

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

TEST(ProfileOfSpecTest, LooksPublishedFiguresUp) {
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

TEST(ProfileOfSpecTest, FiguresOfTheSpecGoBefore) {
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
  EXPECT_THAT(std::string(ProfileOfSpec(cluster).status().message()),
              HasSubstr("worker 'a0': no figures of device model 'A1000' are built in; there are "
                        "P100-16GB, V100-16GB"));
  cluster = TwoGpuHosts();
  cluster.links[0].kind = "string";
  EXPECT_THAT(std::string(ProfileOfSpec(cluster).status().message()),
              HasSubstr("no figures of link kind 'string' are built in; there are nvlink2"));
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

TEST(CheckProfileFitsTest, AnotherClusterIsRefused) {
  const auto profile = ProfileOfSpec(ClusterSpec::Local(2, 1));
  ASSERT_TRUE(profile.ok());
  EXPECT_TRUE(CheckProfileFits(*profile, ClusterSpec::Local(2, 1)).ok());
  const absl::Status status = CheckProfileFits(*profile, ClusterSpec::Local(1, 2));
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("the profile was made for another cluster, of 2 workers"));
}

ClusterProfile MeasuredProfile() {
  ClusterProfile profile = *ProfileOfSpec(ClusterSpec::Local(2, 1));
  DeviceProfile& device = profile.devices[0];
  device.name = "worker:0 \"of\" a host";
  device.source = "measured";
  device.node_seconds = 2.5e-7;
  device.wake_seconds = 4e-5;
  device.step_seconds = 3e-5;
  device.input_bytes_per_second = 4e9;
  device.elementwise_flops = 1.5e10;
  device.product_exposed = 0.5;
  device.memory_bytes = 1'000'000;
  device.contraction = {{DType::kFloat32, {{{1024, 1e9}, {1e8, 9.25e10}}}}};
  device.elementwise = {{{12, 4e7}, {1.2e6, 2e10}}};
  device.movement = {{{64, 1e8}}};
  device.ops[{0x0123456789abcdef, 1}] = {1.25e-5, "Relu float32[64,512]"};
  device.ops[{0x0123456789abcdef, 1, 4}] = {1.5e-5, "Relu float32[64,512]"};
  device.ops[{0x0123456789abcdef, 2}] = {
      7.5e-6, "Relu float32[64,512]", {0xfedcba98, DType::kFloat32, 32768, 262144, {64, 512, 64}}};
  // Six digits are enough for these.
  profile.within_host.bytes_per_second = 2.5e9;
  profile.within_host.exchange_bytes_per_second = 1e9;
  profile.within_host.contention = 0.75;
  profile.between_hosts.bytes_per_second = 1.175e9;
  LinkProfile link = profile.between_hosts;
  link.rails = 2;
  profile.links[{0, 0}] = link;
  profile.links[{0, 1}] = link;
  return profile;
}

TEST(ProfileFileTest, ReadsWhatItWrites) {
  const ClusterProfile profile = MeasuredProfile();
  const auto read = ParseProfileFile(ProfileToYaml(profile), "profile.yaml");
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(*read, profile);
}

TEST(ProfileFileTest, ErrorsSayWhere) {
  const std::string text = ProfileToYaml(MeasuredProfile());
  const auto error = [&](const std::string& from, const std::string& to) {
    std::string changed = text;
    changed.replace(changed.find(from), from.size(), to);
    return std::string(ParseProfileFile(changed, "profile.yaml").status().message());
  };
  EXPECT_THAT(error("version: 1", "version: 9"), HasSubstr("profile.yaml:1:10: "));
  EXPECT_THAT(error("threads: 1\n", "thread: 1\n"), HasSubstr("thread"));
  EXPECT_THAT(error("[1024, ", "[-1, "), HasSubstr("work and rates are positive"));
  EXPECT_THAT(error("key: \"0123456789abcdef\"", "key: \"xyz\""),
              HasSubstr("'xyz' is not a number of 16 hexadecimal digits"));
  EXPECT_THAT(error("type: float32", "type: float31"), HasSubstr("no element type is 'float31'"));
  EXPECT_THAT(error("dims: [64, ", "dims: [-64, "), HasSubstr("'dims'"));
  EXPECT_THAT(error(", dims: [64, 512, 64]", ""), HasSubstr("dims"));
  EXPECT_THAT(error("kind: ", "kinds: "), HasSubstr("kinds"));
  EXPECT_THAT(error("workers: [0, 0]", "workers: [0, 7]"), HasSubstr("'workers'"));
  EXPECT_THAT(error("hosts: [0, 0]", "hosts: [0]"), HasSubstr("2 workers and 1 hosts of workers"));
  EXPECT_THAT(error("within: \"*\"", "within: 3"), HasSubstr("one within '*'"));
  EXPECT_THAT(error("rate: ", "rates: "), HasSubstr("rates"));
  EXPECT_THAT(error("contention: 0.75", "contention: 1.5"), HasSubstr("at most 1"));
  EXPECT_THAT(error("memory: ", "memory: 1e30 # "), HasSubstr("no device has as many bytes"));
}

}  // namespace
}  // namespace weft
