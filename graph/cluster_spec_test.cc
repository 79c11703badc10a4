#include "graph/cluster_spec.h"

#include <functional>

#include "gtest/gtest.h"

namespace weft {
namespace {

TEST(ClusterSpecTest, LocalWorkersAreNamedByRank) {
  const ClusterSpec spec = ClusterSpec::Local(2, 3);
  ASSERT_EQ(spec.workers.size(), 2u);
  EXPECT_EQ(spec.workers[1].name, "worker:1");
  EXPECT_EQ(spec.workers[1].threads, 3);
  EXPECT_EQ(spec.workers[1].address, "");
}

TEST(ClusterSpecTest, EqualSpecsHaveEqualDigests) {
  EXPECT_EQ(ClusterSpec::Local(3, 1).Digest(), ClusterSpec::Local(3, 1).Digest());
}

TEST(ClusterSpecTest, EveryFieldChangesTheDigest) {
  ClusterSpec original = ClusterSpec::Local(2, 1);
  original.links.push_back({"a", "b", 1e9, 1e-6, "", 0});
  const std::vector<std::function<void(ClusterSpec&)>> changes = {
      [](ClusterSpec& c) { c.workers.pop_back(); },
      [](ClusterSpec& c) { c.workers[1].name = "w"; },
      [](ClusterSpec& c) { c.workers[1].host = "other"; },
      [](ClusterSpec& c) { c.workers[1].address = "127.0.0.1:4000"; },
      [](ClusterSpec& c) { c.workers[1].device = DeviceKind::kCuda; },
      [](ClusterSpec& c) { c.workers[1].device_index = 1; },
      [](ClusterSpec& c) { c.workers[1].memory_bytes = 1; },
      [](ClusterSpec& c) { c.workers[1].threads = 2; },
      [](ClusterSpec& c) { c.workers[1].model = "L4"; },
      [](ClusterSpec& c) { c.links.clear(); },
      [](ClusterSpec& c) { c.links[0].from = "c"; },
      [](ClusterSpec& c) { c.links[0].to = "c"; },
      [](ClusterSpec& c) { c.links[0].bandwidth_bytes_per_second += 1; },
      [](ClusterSpec& c) { c.links[0].latency_seconds *= 2; },
      [](ClusterSpec& c) { c.links[0].kind = "nvlink3"; },
      [](ClusterSpec& c) { c.links[0].rails = 2; },
  };
  for (size_t i = 0; i < changes.size(); ++i) {
    ClusterSpec changed = original;
    changes[i](changed);
    EXPECT_NE(changed.Digest(), original.Digest()) << "change " << i;
  }
}

}  // namespace
}  // namespace weft
