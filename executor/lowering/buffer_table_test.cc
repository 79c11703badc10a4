#include "executor/lowering/buffer_table.h"

#include <cstdlib>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tensor/buffer.h"

namespace weft {
namespace {

// The offset that the plan gave a buffer.
int64_t OffsetOf(const BufferTable& table, BufferIndex buffer) {
  static char arena[1];
  return static_cast<char*>(table.AddressIn(buffer, arena)) - arena;
}

// Optional operands are left out, and most kernels have no workspace. Many tables: what lies beside
// one in memory is another, not zeros.
TEST(BufferTableTest, NoBufferHasNoBytesAndNoAddress) {
  char bytes[64];
  std::vector<BufferTable> tables(64);
  for (BufferTable& table : tables) table.AddFixed(bytes, sizeof(bytes));
  for (const BufferTable& table : tables) {
    EXPECT_EQ(table.bytes(kNoBuffer), 0);
    EXPECT_EQ(table.AddressIn(kNoBuffer, bytes), nullptr);
  }
}

TEST(BufferTableTest, BuffersAliveTogetherDoNotOverlap) {
  BufferTable table;
  const BufferIndex a = table.AddArena(100);
  const BufferIndex b = table.AddArena(100);
  table.Touch(a, 0);
  table.Touch(a, 2);
  table.Touch(b, 1);
  const auto plan = table.PlanArena();
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->arena_bytes, 256);
  EXPECT_GE(std::abs(OffsetOf(table, a) - OffsetOf(table, b)), 128);
}

TEST(BufferTableTest, BuffersOneAfterTheOtherShareMemory) {
  BufferTable table;
  const BufferIndex a = table.AddArena(100);
  const BufferIndex b = table.AddArena(60);
  table.Touch(a, 0);
  table.Touch(a, 1);
  table.Touch(b, 2);
  const auto plan = table.PlanArena();
  ASSERT_TRUE(plan.ok()) << plan.status();
  // 128 bytes and 64: they share, wherever the second one lies.
  EXPECT_EQ(plan->arena_bytes, 128);
  EXPECT_EQ(OffsetOf(table, a), 0);
  EXPECT_LE(OffsetOf(table, b), 64);
}

TEST(BufferTableTest, ABufferThatNothingTouchesTakesNoMemory) {
  BufferTable table;
  table.AddArena(1000);
  const auto plan = table.PlanArena();
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->arena_bytes, 0);
}

TEST(BufferTableTest, FixedBuffersHaveTheirAddressAndTakeNoMemory) {
  BufferTable table;
  float variable[4];
  const BufferIndex fixed = table.AddFixed(variable, 16);
  table.Touch(fixed, 0);
  const auto plan = table.PlanArena();
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->arena_bytes, 0);
  EXPECT_EQ(table.AddressIn(fixed, nullptr), variable);
  EXPECT_TRUE(table.is_fixed(fixed));
}

TEST(BufferTableTest, AnAbsentBufferIsNull) {
  char arena[64];
  EXPECT_EQ(BufferTable().AddressIn(kNoBuffer, arena), nullptr);
}

TEST(BufferTableTest, MergedBuffersShareMemoryAndTheUnionOfTheirLives) {
  BufferTable table;
  const BufferIndex base = table.AddArena(64);
  const BufferIndex view = table.AddArena(64);
  const BufferIndex other = table.AddArena(64);
  table.Touch(base, 0);
  table.Touch(base, 1);
  table.Touch(view, 1);
  table.Touch(view, 5);
  table.Touch(other, 4);
  table.Merge(view, base);
  EXPECT_EQ(table.first(view), 0);
  EXPECT_EQ(table.last(base), 5);
  EXPECT_EQ(table.Root(view), base);
  const auto plan = table.PlanArena();
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(OffsetOf(table, base), OffsetOf(table, view));
  EXPECT_NE(OffsetOf(table, other), OffsetOf(table, base));
}

TEST(BufferTableTest, ChainsOfMergesHaveOneRoot) {
  BufferTable table;
  float variable[16];
  const BufferIndex fixed = table.AddFixed(variable, 64);
  const BufferIndex a = table.AddArena(64);
  const BufferIndex b = table.AddArena(64);
  table.Merge(b, a);
  table.Merge(a, fixed);
  table.Merge(b, fixed);  // already
  EXPECT_EQ(table.Root(b), fixed);
  EXPECT_TRUE(table.is_fixed(b));
  EXPECT_EQ(table.AddressIn(b, nullptr), variable);
}

TEST(BufferTableTest, TouchingAViewKeepsItsBaseAlive) {
  BufferTable table;
  const BufferIndex base = table.AddArena(64);
  const BufferIndex view = table.AddArena(64);
  table.Touch(base, 3);
  table.Merge(view, base);
  table.Touch(view, 1);
  table.Touch(view, 9);
  EXPECT_EQ(table.first(base), 1);
  EXPECT_EQ(table.last(base), 9);
}

TEST(BufferTableTest, AGroupLiesSideBySideInOrder) {
  BufferTable table;
  std::vector<BufferIndex> group;
  for (int i = 0; i < 4; ++i) {
    group.push_back(table.AddArena(64 * (i + 1), /*group=*/7));
    table.Touch(table.AddArena(32), i);
    table.Touch(group.back(), i);
  }
  const auto plan = table.PlanArena();
  ASSERT_TRUE(plan.ok()) << plan.status();
  for (int i = 1; i < 4; ++i) {
    EXPECT_EQ(OffsetOf(table, group[i]) - OffsetOf(table, group[i - 1]), 64 * i);
  }
  EXPECT_TRUE(table.in_group(group[0]));
}

TEST(BufferTableTest, OffsetsAreAligned) {
  BufferTable table;
  std::vector<BufferIndex> buffers;
  for (int64_t bytes : {1, 63, 64, 65, 3}) {
    buffers.push_back(table.AddArena(bytes));
    table.Touch(buffers.back(), 0);
  }
  ASSERT_TRUE(table.PlanArena().ok());
  for (BufferIndex buffer : buffers) {
    EXPECT_EQ(OffsetOf(table, buffer) % static_cast<int64_t>(kAlignment), 0);
  }
}

}  // namespace
}  // namespace weft
