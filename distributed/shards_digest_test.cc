#include "distributed/shards_digest.h"

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace weft {
namespace {

VariableShard Shard() {
  VariableShard shard;
  shard.name = "w";
  shard.dtype = DType::kFloat32;
  shard.global_shape = Shape{8, 6};
  shard.local_shape = Shape{4, 6};
  shard.tensor_sharding = AxisSharding::Split(0);
  shard.tensor_shards = 2;
  shard.tensor_index = 1;
  return shard;
}
uint64_t Digest(const VariableShard& shard) { return ShardsDigest({{shard.name, shard}}); }

TEST(ShardsDigestTest, EachPartOfAPlaceCounts) {
  const std::vector<std::function<void(VariableShard&)>> changes = {
      [](VariableShard&) {},
      [](VariableShard& shard) { shard.name = "v"; },
      [](VariableShard& shard) { shard.dtype = DType::kFloat16; },
      [](VariableShard& shard) {
        shard.global_shape = Shape{9, 6};
      },
      [](VariableShard& shard) {
        shard.local_shape = Shape{6, 4};
      },
      [](VariableShard& shard) { shard.tensor_sharding = AxisSharding::Split(1); },
      [](VariableShard& shard) { shard.tensor_sharding = AxisSharding::Split(0, 2); },
      [](VariableShard& shard) { shard.tensor_shards = 3; },
      [](VariableShard& shard) { shard.tensor_index = 0; },
      [](VariableShard& shard) { shard.data_shards = 2; },
      [](VariableShard& shard) { shard.data_index = 1; }};
  std::set<uint64_t> digests;
  for (const auto& change : changes) {
    VariableShard shard = Shard();
    change(shard);
    EXPECT_TRUE(digests.insert(Digest(shard)).second) << digests.size();
  }
}

TEST(ShardsDigestTest, WhoHasThePrimaryCopyDoesNotCount) {
  VariableShard primary = Shard();
  primary.is_primary = true;
  EXPECT_EQ(Digest(primary), Digest(Shard()));
  EXPECT_EQ(ShardsDigest({}), 0u);
}

}  // namespace
}  // namespace weft
