#include "executor/lowering/shard_regions.h"

#include <numeric>
#include <vector>

#include "executor/program/memory_operations.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

using ::testing::ElementsAre;

// Columns of a 2 x 4 matrix as two blocks of two, each cut into one and one.
TEST(ShardRegionsTest, PackingLaysShardsOneAfterTheOther) {
  const Shape whole{2, 4};
  ShardedDim dim;
  dim.axis = 1;
  dim.blocks = 2;
  dim.sizes = {1, 1};
  std::vector<char> matrix(8);
  std::iota(matrix.begin(), matrix.end(), 'a');  // abcd / efgh
  std::vector<char> packed(8, '.');
  for (const CopyRegion& region : PackShards(whole, dim, 1)) {
    CopyRows(region, matrix.data(), packed.data());
  }
  EXPECT_THAT(packed, ElementsAre('a', 'c', 'e', 'g', 'b', 'd', 'f', 'h'));
  std::vector<char> back(8, '.');
  for (const CopyRegion& region : UnpackShards(whole, dim, 1)) {
    CopyRows(region, packed.data(), back.data());
  }
  EXPECT_EQ(back, matrix);
}

TEST(ShardRegionsTest, UnequalShardsHaveTheirOwnOffsets) {
  ShardedDim dim;
  dim.axis = 0;
  dim.blocks = 1;
  dim.sizes = {2, 1};
  const std::vector<CopyRegion> regions = PackShards(Shape{3, 5}, dim, 4);
  ASSERT_EQ(regions.size(), 2u);
  EXPECT_EQ(regions[0].bytes, 40);
  EXPECT_EQ(regions[1].bytes, 20);
  EXPECT_EQ(regions[1].source_offset, 40);
  EXPECT_EQ(regions[1].target_offset, 40);
}

}  // namespace
}  // namespace weft
