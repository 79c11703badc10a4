#include "placement/sharding/tensor_shard.h"

#include <numeric>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

using ::testing::ElementsAre;

Tensor Counting(Shape shape) {
  std::vector<int32_t> values(shape.num_elements());
  std::iota(values.begin(), values.end(), 0);
  return Tensor::Of<int32_t>(shape, values);
}

TEST(ShardOfTensorTest, SplitsRowsUnevenly) {
  const Tensor whole = Counting({3, 2});
  EXPECT_THAT(ShardOfTensor(whole, AxisSharding::Split(0), 2, 0)->data<int32_t>(),
              ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(ShardOfTensor(whole, AxisSharding::Split(0), 2, 1)->data<int32_t>(),
              ElementsAre(4, 5));
}

TEST(ShardOfTensorTest, SplitsInsideBlocks) {
  const Tensor whole = Counting({2, 6});  // three blocks of two columns
  const Tensor shard = *ShardOfTensor(whole, AxisSharding::Split(1, 3), 2, 1);
  EXPECT_EQ(shard.shape(), (Shape{2, 3}));
  EXPECT_THAT(shard.data<int32_t>(), ElementsAre(1, 3, 5, 7, 9, 11));
}

TEST(ShardOfTensorTest, ReplicatedIsTheTensorItself) {
  const Tensor whole = Counting({2});
  EXPECT_EQ(ShardOfTensor(whole, AxisSharding::Replicated(), 2, 1)->raw_data(), whole.raw_data());
}

TEST(ShardOfTensorTest, PackedElementsAreNotSplit) {
  const Tensor packed = *Tensor::Zeros(DType::kInt4, Shape{4});
  EXPECT_EQ(ShardOfTensor(packed, AxisSharding::Split(0), 2, 0).status().message(),
            "a tensor of int4 cannot be split over ranks");
}

}  // namespace
}  // namespace weft
