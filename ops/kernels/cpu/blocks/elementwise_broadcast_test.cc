#include "ops/kernels/cpu/blocks/elementwise_broadcast.h"

#include "gtest/gtest.h"

namespace weft::cpu {
namespace {

TEST(BroadcastPlan, EqualShapesAreOneRun) {
  const BroadcastPlan plan = BroadcastPlan::Make({2, 3, 4}, {{2, 3, 4}, {2, 3, 4}});
  EXPECT_EQ(plan.rows, 1);
  EXPECT_EQ(plan.inner, 24);
}

TEST(BroadcastPlan, ScalarsAreOneRun) {
  const BroadcastPlan plan = BroadcastPlan::Make({2, 3, 4}, {{2, 3, 4}, {}});
  EXPECT_EQ(plan.rows, 1);
  EXPECT_EQ(plan.inner_strides[0], 1);
  EXPECT_EQ(plan.inner_strides[1], 0);
}

TEST(BroadcastPlan, ABiasIsARunPerRow) {
  const BroadcastPlan plan = BroadcastPlan::Make({8, 5, 10}, {{8, 5, 10}, {10}});
  EXPECT_EQ(plan.rows, 40);
  EXPECT_EQ(plan.inner, 10);
}

TEST(BroadcastPlan, AChannelIsARunPerImagePlane) {
  const BroadcastPlan plan = BroadcastPlan::Make({2, 3, 5, 7}, {{2, 3, 5, 7}, {3, 1, 1}});
  EXPECT_EQ(plan.rows, 6);
  EXPECT_EQ(plan.inner, 35);
  EXPECT_EQ(plan.inner_strides[1], 0);
}

TEST(BroadcastPlan, RowsMayStartAnywhere) {
  const BroadcastPlan plan = BroadcastPlan::Make({2, 3, 5}, {{2, 1, 5}, {3, 1}});
  std::vector<std::array<int64_t, 3>> all;
  ForEachRow(plan, 0, plan.rows, [&](const BroadcastPlan::Strides& offsets, int64_t output) {
    all.push_back({offsets[0], offsets[1], output});
  });
  ASSERT_EQ(all.size(), 6u);
  EXPECT_EQ(all[4], (std::array<int64_t, 3>{5, 1, 20}));
  for (int64_t begin = 0; begin < 6; ++begin) {
    int64_t row = begin;
    ForEachRow(plan, begin, 6, [&](const BroadcastPlan::Strides& offsets, int64_t output) {
      EXPECT_EQ((std::array<int64_t, 3>{offsets[0], offsets[1], output}), all[row++]);
    });
  }
}

TEST(BroadcastPlan, EmptyTensorsHaveNoRows) {
  EXPECT_EQ(BroadcastPlan::Make({0, 3}, {{0, 3}, {3}}).rows, 0);
}

}  // namespace
}  // namespace weft::cpu
