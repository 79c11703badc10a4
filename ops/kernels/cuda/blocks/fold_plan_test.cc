#include "ops/kernels/cuda/blocks/fold_plan.h"

#include <algorithm>
#include <cstdint>
#include <set>
#include <vector>

#include "gtest/gtest.h"

namespace weft::cuda {
namespace {

// The output of an element, by the definition: its place among the kept axes.
int64_t OutputOf(const Shape& shape, const std::vector<bool>& reduced, int64_t element) {
  int64_t output = 0;
  int64_t stride = 1;
  for (int d = shape.rank() - 1; d >= 0; --d) {
    if (!reduced[d]) {
      output += element % shape.dim(d) * stride;
      stride *= shape.dim(d);
    }
    element /= shape.dim(d);
  }
  return output;
}

// Every element is in one unit of one group, and goes to the output that the definition says.
void ExpectEachElementOnce(const FoldLaunch& launch, const Shape& shape,
                           const std::vector<bool>& reduced) {
  const FoldLayout& layout = launch.layout;
  std::set<int64_t> seen;
  for (int64_t group = 0; group < layout.groups; ++group) {
    for (int64_t unit = 0; unit < layout.units; ++unit) {
      const int64_t first = layout.kept.Offset(group) + layout.reduced.Offset(unit);
      EXPECT_EQ(first % launch.width, 0);
      for (int64_t v = 0; v < launch.width; ++v) {
        EXPECT_TRUE(seen.insert(first + v).second);
        const int64_t output = layout.columns != 0 ? group * launch.width + v : group;
        EXPECT_EQ(output, OutputOf(shape, reduced, first + v));
      }
    }
  }
  EXPECT_EQ(static_cast<int64_t>(seen.size()), shape.num_elements());
  if (layout.groups == 0) {
    EXPECT_EQ(launch.grid.blocks, 0);
    return;
  }
  EXPECT_EQ(layout.lanes() * layout.parts(), kFoldThreads);
  EXPECT_GE(launch.grid.blocks * layout.lanes(), layout.groups);
  EXPECT_GE(launch.chunks * layout.chunk, layout.units);
  EXPECT_LT((launch.chunks - 1) * layout.chunk, std::max<int64_t>(layout.units, 1));
}

TEST(FoldPlanTest, EveryElementGoesToItsOutput) {
  for (const Shape& shape : {Shape{}, Shape{12}, Shape{3, 8}, Shape{8, 3}, Shape{2, 3, 4, 8},
                             Shape{2, 1, 5, 1, 4}, Shape{2, 3, 2, 3, 2, 4}, Shape{0, 3}}) {
    for (int mask = 0; mask < 1 << shape.rank(); ++mask) {
      std::vector<bool> reduced(shape.rank());
      for (int d = 0; d < shape.rank(); ++d) reduced[d] = (mask >> d & 1) != 0;
      for (const int width : {1, 4}) {
        const FoldPlan plan = FoldPlan::Make(shape, reduced, width);
        ExpectEachElementOnce(plan.narrow, shape, reduced);
        ExpectEachElementOnce(plan.wide, shape, reduced);
        EXPECT_EQ(plan.narrow.width, 1);
      }
    }
  }
}

TEST(FoldPlanTest, PacketsLieAlongTheLastAxis) {
  EXPECT_EQ(FoldPlan::OfRows(3, 8, 4).wide.width, 4);
  EXPECT_EQ(FoldPlan::OfRows(3, 7, 4).wide.width, 1);
  EXPECT_EQ(FoldPlan::OfRows(3, 8, 4).wide.layout.columns, 0);
  EXPECT_EQ(FoldPlan::OfColumns(3, 8, 4).wide.width, 4);
  EXPECT_EQ(FoldPlan::OfColumns(3, 8, 4).wide.layout.columns, 1);
  EXPECT_EQ(FoldPlan::OfColumns(8, 1, 4).wide.width, 1);
}

TEST(FoldPlanTest, LongRowsOfAnySizeMayBeRagged) {
  const auto plan_of = [](const Shape& shape, bool ragged) {
    return FoldPlan::Make(shape, {false, true}, 4, ragged);
  };
  for (const int64_t rows : {1, 5, 4096}) {
    for (const int64_t size : {65, 50257, 50259, 1000003}) {
      const FoldLaunch launch = plan_of({rows, size}, true).wide;
      EXPECT_EQ(launch.width, 4);
      EXPECT_EQ(launch.layout.ragged, 1);
      EXPECT_EQ(launch.layout.groups, rows);
      EXPECT_EQ(launch.layout.units, size);
      EXPECT_EQ(launch.layout.kept.Offset(rows - 1), (rows - 1) * size);
      EXPECT_GE(launch.chunks * launch.layout.chunk, size);
      EXPECT_LT((launch.chunks - 1) * launch.layout.chunk, size);
    }
  }
  EXPECT_EQ(plan_of({5, 50257}, false).wide.width, 1);
  EXPECT_EQ(plan_of({5, 50256}, true).wide.layout.ragged, 0);
  EXPECT_EQ(plan_of({5, 63}, true).wide.layout.ragged, 0);
  EXPECT_EQ(FoldPlan::Make(Shape{5, 67, 3}, {false, true, false}, 4, true).wide.layout.ragged, 0);
}

TEST(FoldPlanTest, LongFoldsWithFewOutputsAreCut) {
  const FoldPlan whole = FoldPlan::OfRows(1, 1 << 24, 4);
  EXPECT_GT(whole.wide.chunks, 500);
  EXPECT_EQ(whole.workspace_bytes(8),
            static_cast<size_t>(std::max(whole.wide.chunks, whole.narrow.chunks)) * 8);
  const FoldPlan many = FoldPlan::OfRows(100'000, 4096, 4);
  EXPECT_EQ(many.wide.chunks, 1);
  EXPECT_EQ(many.workspace_bytes(8), 0U);
  EXPECT_EQ(FoldPlan::OfRows(1, 64, 4).wide.chunks, 1);
}

// Other cuts are other bits: whoever changes these numbers changes the sums of all models.
TEST(FoldPlanTest, TheCutIsThatOfTheShape) {
  // 32 lanes of 4 columns by 8 parts: 32 blocks side by side, and 1056 / 32 chunks of the rows.
  const FoldLaunch columns = FoldPlan::OfColumns(32768, 4096, 4).wide;
  EXPECT_EQ(columns.grid.blocks, 32);
  EXPECT_EQ(columns.grid.blocks_y, 33);
  EXPECT_EQ(columns.layout.chunk, 993);
  // A row has a block of its own, whole.
  const FoldLaunch rows = FoldPlan::OfRows(32768, 4096, 4).wide;
  EXPECT_EQ(rows.grid.blocks, 32768);
  EXPECT_EQ(rows.grid.blocks_y, 1);
  EXPECT_EQ(rows.layout.chunk, 1024);
}

TEST(FoldPlanTest, UnalignedAddressesGetElements) {
  const FoldPlan plan = FoldPlan::OfRows(3, 8, 4);
  alignas(16) char memory[32];
  EXPECT_EQ(plan.For({memory, nullptr}).width, 4);
  EXPECT_EQ(plan.For({memory, memory + 4}).width, 1);
}

TEST(AxisIndexTest, CountsBeyond31Bits) {
  constexpr int64_t kRows = int64_t{1} << 20;
  constexpr int64_t kColumns = 5000;
  const AxisIndex index = IndexOf({{kRows, 7 * kColumns}, {kColumns, 3}});
  EXPECT_EQ(index.wide, 1);
  EXPECT_EQ(index.Offset(kRows * kColumns - 1), (kRows - 1) * 7 * kColumns + (kColumns - 1) * 3);
}

}  // namespace
}  // namespace weft::cuda
