#include "ops/kernels/cuda/blocks/broadcast_plan.h"

#include <cstdint>
#include <limits>
#include <vector>

#include "gtest/gtest.h"
#include "platform/random.h"

namespace weft::cuda {
namespace {

constexpr int32_t kLargest = std::numeric_limits<int32_t>::max();

TEST(FastDivisorTest, DividesAsTheLanguageDoes) {
  std::vector<int32_t> divisors = {1, 2, 3, 5, 7, 641, 65535, 65536, 65537, kLargest - 1, kLargest};
  RandomSequence random(RandomKey(7, "divisors"));
  for (int bits = 1; bits < 32; ++bits) {
    divisors.push_back(static_cast<int32_t>(1 + random.Below((uint64_t{1} << bits) - 1)));
  }
  for (const int32_t divisor : divisors) {
    const FastDivisor<int32_t> fast(divisor);
    const FastDivisor<int64_t> wide(divisor);
    EXPECT_EQ(fast.divisor(), divisor);
    std::vector<int64_t> dividends = {0, 1, divisor - 1, divisor, kLargest, kLargest - 1};
    for (int k = 0; k < 300; ++k) {
      // Multiples of the divisor and what is beside them are where a wrong constant shows.
      const int64_t multiple =
          static_cast<int64_t>(random.Below(static_cast<uint64_t>(kLargest / divisor) + 1)) *
          divisor;
      dividends.insert(dividends.end(), {multiple - 1, multiple, multiple + 1});
      dividends.push_back(static_cast<int64_t>(random.Below(uint64_t{1} << 31)));
    }
    for (const int64_t dividend : dividends) {
      if (dividend < 0 || dividend > kLargest) continue;
      const auto narrow = fast.Divide(static_cast<int32_t>(dividend));
      ASSERT_EQ(narrow.quotient, dividend / divisor) << dividend << " / " << divisor;
      ASSERT_EQ(narrow.rest, dividend % divisor) << dividend << " / " << divisor;
      ASSERT_EQ(wide.Divide(dividend).quotient, dividend / divisor);
      ASSERT_EQ(wide.Divide(dividend).rest, dividend % divisor);
    }
  }
}

// The offset in an operand of element `i` of the output, axis by axis.
int64_t OffsetByHand(const Shape& output, const Shape& operand, int64_t i) {
  int64_t offset = 0;
  int64_t stride = 1;
  for (int d = output.rank() - 1; d >= 0; --d) {
    const int own = d - (output.rank() - operand.rank());
    const int64_t at = i % output.dim(d);
    i /= output.dim(d);
    if (own < 0) continue;
    if (operand.dim(own) > 1) offset += at * stride;
    stride *= operand.dim(own);
  }
  return offset;
}

struct PlanCase {
  Shape output;
  std::vector<Shape> operands;
  size_t axes;
};

std::vector<PlanCase> PlanCases() {
  return {
      {{}, {{}, {}}, 1},
      {{1, 1}, {{1, 1}, {}}, 1},
      {{6, 5, 4}, {{6, 5, 4}, {6, 5, 4}}, 1},
      {{6, 5, 4}, {{6, 5, 4}, {}}, 1},
      {{6, 5, 4}, {{6, 5, 4}, {4}}, 2},
      {{6, 5, 4}, {{5, 1}, {6, 5, 4}}, 3},
      {{6, 5, 4}, {{6, 1, 1}, {5, 4}}, 2},
      {{2, 3, 1, 7}, {{2, 3, 1, 7}, {3, 1, 1}}, 3},
      {{3, 2, 5, 2, 3, 2}, {{3, 1, 5, 1, 3, 1}, {3, 2, 5, 2, 3, 2}}, 6},
  };
}

TEST(BroadcastPlanTest, MapsEachElement) {
  for (const PlanCase& c : PlanCases()) {
    const BroadcastPlan plan = BroadcastPlan::Make(c.output, c.operands);
    EXPECT_EQ(plan.axes.size(), c.axes) << c.output.ToString();
    EXPECT_EQ(plan.elements, c.output.num_elements());
    const auto map = plan.Map<2>();
    const auto wide = plan.Map<2, int64_t>();
    for (int32_t i = 0; i < plan.elements; ++i) {
      const auto coordinates = map.CoordinatesOf(i);
      for (int k = 0; k < 2; ++k) {
        const int64_t expected = OffsetByHand(c.output, c.operands[k], i);
        ASSERT_EQ(map.At(i).of[k], expected) << c.output.ToString() << " element " << i;
        ASSERT_EQ(wide.At(i).of[k], expected);
        ASSERT_EQ(map.Offset(coordinates, k), expected);
      }
    }
  }
}

TEST(BroadcastPlanTest, PiecesCoverTheOutputOnce) {
  for (const PlanCase& c : PlanCases()) {
    const BroadcastPlan plan = BroadcastPlan::Make(c.output, c.operands);
    for (const int64_t limit : {1, 2, 7, 30, 1000}) {
      int64_t next = 0;
      for (const BroadcastPiece& piece : Pieces(plan, limit)) {
        ASSERT_EQ(piece.output, next);
        ASSERT_LE(piece.plan.elements, limit);
        const auto map = piece.plan.Map<2>();
        for (int32_t i = 0; i < piece.plan.elements; ++i) {
          for (int k = 0; k < 2; ++k) {
            ASSERT_LT(map.At(i).of[k], limit);
            ASSERT_EQ(piece.operands[k] + map.At(i).of[k],
                      OffsetByHand(c.output, c.operands[k], next + i))
                << c.output.ToString() << " in pieces of " << limit;
          }
        }
        next += piece.plan.elements;
      }
      EXPECT_EQ(next, plan.elements);
    }
  }
}

TEST(BroadcastPlanTest, LargeTensorsAreCutWhereAddressesAreAligned) {
  const int64_t large = (int64_t{1} << 33) + 5;
  const std::vector<BroadcastPiece> pieces =
      Pieces(BroadcastPlan::Make(Shape{large}, {Shape{large}, Shape{}}));
  ASSERT_EQ(pieces.size(), 5u);
  int64_t next = 0;
  for (const BroadcastPiece& piece : pieces) {
    EXPECT_EQ(piece.output, next);
    EXPECT_EQ(piece.output % 64, 0);
    EXPECT_LT(piece.plan.elements, kPieceLimit);
    EXPECT_EQ(piece.operands, (std::vector<int64_t>{next, 0}));
    next += piece.plan.elements;
  }
  EXPECT_EQ(next, large);
}

TEST(BroadcastPlanTest, WalksOtherStrides) {
  // A transposed matrix [3, 5]: element (i, j) of the output [5, 3] is 5 j + i.
  const BroadcastPlan plan = BroadcastPlan::OfStrides({{5, {1}}, {3, {5}}}, /*operands=*/1);
  EXPECT_EQ(plan.Reach(0), 14);
  const auto map = plan.Map<1>();
  for (int32_t i = 0; i < 15; ++i) EXPECT_EQ(map.At(i).of[0], i % 3 * 5 + i / 3);
}

TEST(BroadcastPlanTest, NothingIsNoPiece) {
  EXPECT_TRUE(Pieces(BroadcastPlan::Make(Shape{3, 0}, {Shape{3, 0}, Shape{}})).empty());
}

TEST(BroadcastPlanTest, PacketsNeedRowsThatAreMultiples) {
  const auto has = [](const Shape& output, const std::vector<Shape>& operands) {
    return BroadcastPlan::Make(output, operands).HasPackets(4);
  };
  EXPECT_TRUE(has({3, 8}, {{3, 8}, {8}}));
  EXPECT_TRUE(has({3, 8}, {{3, 8}, {3, 1}}));
  EXPECT_FALSE(has({3, 6}, {{3, 6}, {6}}));
  EXPECT_TRUE(has({2, 6}, {{2, 6}, {}}));
  EXPECT_FALSE(BroadcastPlan::OfStrides({{8, {9}}, {8, {1}}}, 1).HasPackets(4));
  EXPECT_FALSE(BroadcastPlan::OfStrides({{8, {1}}, {8, {8}}}, 1).HasPackets(4));
}

}  // namespace
}  // namespace weft::cuda
