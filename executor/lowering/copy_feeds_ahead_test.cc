#include "executor/lowering/copy_feeds_ahead.h"

#include <string>
#include <utility>
#include <vector>

#include "executor/lowering/compute_lifetimes.h"
#include "executor/lowering/lowering.h"
#include "executor/lowering/testing/hand_made_partition.h"
#include "executor/lowering/testing/lowering_fixture.h"
#include "gtest/gtest.h"

namespace weft::testing {
namespace {

// Two micro-batches with rows of two inputs, 100 and 40 bytes, then 60 and 80; each is copied on.
LoweringProgram TwoMicroBatches() {
  LoweringProgram program;
  BufferTable& buffers = program.step.buffers;
  for (const auto& [x, y] : std::vector<std::pair<int64_t, int64_t>>{{100, 40}, {60, 80}}) {
    const BufferIndex to_x = buffers.AddArena(x), to_y = buffers.AddArena(y);
    program.step.compute.push_back({lowered::Fill{0, to_x, 0, 1}});
    program.step.compute.push_back({lowered::Fill{1, to_y, 0, 1}});
    program.step.compute.push_back({lowered::Copy{to_x, to_y, 1}});
  }
  return program;
}

std::vector<lowered::Fill> FillsOf(const LoweringProgram& program) {
  std::vector<lowered::Fill> fills;
  for (const LoweredInstruction& instruction : program.step.compute) {
    if (const auto* const fill = instruction.As<lowered::Fill>()) fills.push_back(*fill);
  }
  return fills;
}

TEST(CopyFeedsAheadTest, EachInputHasAPlaceForItsMostRows) {
  const LoweringProgram program = CopyFeedsAhead(TwoMicroBatches(), /*min_bytes=*/180);
  const std::vector<lowered::Fill> fills = FillsOf(program);
  ASSERT_EQ(fills.size(), 4u);
  EXPECT_EQ(fills[0].ahead, fills[2].ahead);
  EXPECT_EQ(fills[1].ahead, fills[3].ahead);
  EXPECT_NE(fills[0].ahead, fills[1].ahead);
  EXPECT_EQ(program.step.buffers.bytes(fills[0].ahead), 100);
  EXPECT_EQ(program.step.buffers.bytes(fills[1].ahead), 80);
}

// The two are measured together: no copy is left to the stream of the kernels.
TEST(CopyFeedsAheadTest, FewBytesAreCopiedInTheirTurn) {
  for (const lowered::Fill& fill : FillsOf(CopyFeedsAhead(TwoMicroBatches(), 181))) {
    EXPECT_EQ(fill.ahead, kNoBuffer);
  }
  EXPECT_EQ(CopyFeedsAhead(TwoMicroBatches(), 181).step.buffers.size(),
            TwoMicroBatches().step.buffers.size());
}

TEST(CopyFeedsAheadTest, APlaceIsTakenInTheWholeStepAndBeyond) {
  const LoweringProgram program = ComputeLifetimes(CopyFeedsAhead(TwoMicroBatches(), 0));
  for (const lowered::Fill& fill : FillsOf(program)) {
    EXPECT_EQ(program.step.buffers.first(fill.ahead), 0);
    EXPECT_EQ(program.step.buffers.last(fill.ahead), 7);  // of six instructions
  }
}

// So what shares the arena with it is laid out beside it.
TEST(CopyFeedsAheadTest, TheArenaIsLargerByThat) {
  const auto planned = [](LoweringProgram program) {
    program = ComputeLifetimes(std::move(program));
    const auto plan = program.step.buffers.PlanArena();
    EXPECT_TRUE(plan.ok()) << plan.status();
    return *plan;
  };
  const MemoryPlan in_turn = planned(TwoMicroBatches());
  const MemoryPlan ahead = planned(CopyFeedsAhead(TwoMicroBatches(), 0));
  EXPECT_EQ(ahead.lower_bound_bytes, in_turn.lower_bound_bytes + 128 + 128);  // of 64 each
  EXPECT_GE(ahead.arena_bytes, ahead.lower_bound_bytes);
}

class FeedsPassTest : public LoweringFixture {};
INSTANTIATE_TEST_SUITE_P(Devices, FeedsPassTest, ::testing::Values(-1, 0), LoweringDeviceName);

TEST_P(FeedsPassTest, ADeviceThatTheHostReachesNeedsNone) {
  Partition partition = NewPartition(2, [](GraphBuilder& b) { Scaled(b, "y", "x", 2); });
  AddSum(partition, "y", "sum", 0, 2);
  ReportSums(partition);
  const auto text_with = [&](int64_t min_bytes) {
    std::string last;
    const LoweringObserver observer = [&](std::string_view, std::string_view text) { last = text; };
    ExecutorEnvironment environment = Environment();
    environment.min_ahead_bytes = min_bytes;
    EXPECT_TRUE(LowerStep(partition, environment, &observer).ok());
    return last;
  };
  const std::string large = text_with(9);  // a micro-batch has 8
  if (GetParam() < 0) {
    EXPECT_EQ(text_with(0), large);
  } else {
    EXPECT_NE(text_with(8), large);
    EXPECT_EQ(text_with(0), text_with(8));
  }
}

}  // namespace
}  // namespace weft::testing
