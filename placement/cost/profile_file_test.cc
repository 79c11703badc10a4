#include "placement/cost/profile_file.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

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
  device.host_bytes_per_second = 2.5e10;
  device.host_copy_seconds = 1e-5;
  device.copy_bytes_per_second = 3.7e12;
  device.card = "NVIDIA \"L4\", compute capability 8.9";
  device.driver = "580.65.06";
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
  link.through_host = true;
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

TEST(ProfileFileTest, OfAProcessorNothingIsSaidOfCards) {
  const std::string text = ProfileToYaml(*ProfileOfSpec(ClusterSpec::Local(1, 1)));
  EXPECT_THAT(text,
              AllOf(Not(HasSubstr("card")), Not(HasSubstr("driver")), Not(HasSubstr("copy_rate"))));
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
