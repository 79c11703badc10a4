#include "ops/kernels/cuda/blocks/line_plan.h"

#include <cstdint>

#include "gtest/gtest.h"

namespace weft::cuda {
namespace {

TEST(LinePlanTest, RowsThatFitAreKeptInRegisters) {
  for (const int64_t size : {1, 4, 31, 32, 512, 2047, 2048, 8192}) {
    const LineLaunch line = LinePlan::Make(1000, size, 1, 4, true).wide;
    if (!line.in_registers) {
      EXPECT_GT(size / line.width, kMaxRowThreads * kRowPackets);
      continue;
    }
    const int64_t threads = int64_t{1} << line.layout.log_threads;
    EXPECT_GE(threads * kRowPackets * line.width, size);
    EXPECT_LE(line.grid.threads, kMaxRowThreads);
    EXPECT_EQ(line.grid.threads % threads, 0);
    EXPECT_GE(line.grid.blocks * (line.grid.threads / threads), 1000);
  }
  EXPECT_TRUE(LinePlan::Make(1, 8192, 1, 4, true).wide.in_registers);
  EXPECT_FALSE(LinePlan::Make(1, 8196, 1, 4, true).wide.in_registers);
  EXPECT_FALSE(LinePlan::Make(1, 8192, 1, 4, true).narrow.in_registers);
  EXPECT_FALSE(LinePlan::Make(1, 64, 1, 4, false).wide.in_registers);
}

TEST(LinePlanTest, LongRowsOfAnySizeMayBeRagged) {
  const LinePlan plan = LinePlan::Make(3, 50257, 1, 4, true, true);
  EXPECT_EQ(plan.wide.width, 4);
  EXPECT_EQ(plan.wide.layout.ragged, 1);
  EXPECT_EQ(plan.wide.layout.size, 50257);
  EXPECT_FALSE(plan.wide.in_registers);
  EXPECT_EQ(plan.narrow.layout.ragged, 0);
  EXPECT_EQ(plan.narrow.width, 1);
  // Where nobody asks for it, where packets fit, in registers, of short rows, of other strides.
  EXPECT_EQ(LinePlan::Make(3, 50257, 1, 4, true).wide.width, 1);
  EXPECT_EQ(LinePlan::Make(3, 50256, 1, 4, true, true).wide.layout.ragged, 0);
  EXPECT_EQ(LinePlan::Make(3, 2047, 1, 4, true, true).wide.layout.ragged, 0);
  EXPECT_EQ(LinePlan::Make(3, 63, 1, 4, false, true).wide.layout.ragged, 0);
  EXPECT_EQ(LinePlan::Make(3, 50257, 7, 4, true, true).wide.width, 1);
}

TEST(LinePlanTest, LinesOfOtherAxesHaveNoPackets) {
  const LinePlan plan = LinePlan::Along(Shape{3, 8, 4}, 1, 4, true);
  EXPECT_EQ(plan.wide.layout.lines, 12);
  EXPECT_EQ(plan.wide.layout.size, 8);
  EXPECT_EQ(plan.wide.layout.stride, 4);
  EXPECT_EQ(plan.wide.width, 1);
  EXPECT_FALSE(plan.wide.in_registers);
  const int64_t lanes = int64_t{1} << plan.wide.layout.log_lanes;
  EXPECT_EQ(lanes << plan.wide.layout.log_parts, kLineThreads);
  EXPECT_GE(plan.wide.grid.blocks * lanes, 12);
}

TEST(LinePlanTest, NothingToDo) {
  EXPECT_EQ(LinePlan::Make(0, 5, 1, 4, true).wide.grid.blocks, 0);
  EXPECT_EQ(LinePlan::Make(5, 0, 1, 4, true).wide.grid.blocks, 0);
  EXPECT_EQ(LinePlan::Along(Shape{}, 0, 4, true).wide.layout.lines, 1);
}

TEST(LinePlanTest, UnalignedAddressesGetElements) {
  const LinePlan plan = LinePlan::Make(3, 8, 1, 4, true);
  alignas(16) char memory[32];
  EXPECT_EQ(plan.For({memory}).width, 4);
  EXPECT_EQ(plan.For({memory, memory + 4}).width, 1);
}

}  // namespace
}  // namespace weft::cuda
