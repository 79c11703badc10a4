#include "training/calibration/probe_sizes.h"

#include <cmath>

#include "gtest/gtest.h"

namespace weft {
namespace {

double Flops(const ProbeSizes& sizes, DType dtype) {
  double flops = 0;
  for (const ProbedProducts& products : sizes.products) {
    for (const int64_t side : products.sides) {
      if (products.dtype == dtype) flops += 2 * std::pow(static_cast<double>(side), 3);
    }
  }
  return flops;
}

// Rates are curves: each size once, from small to large, over all programs.
TEST(ProbeSizesTest, RiseFromProgramToProgramByWhatIsSaid) {
  const auto programs = ProbeSizesOfCard();
  ASSERT_GE(programs.size(), 4u);
  for (size_t i = 1; i < programs.size(); ++i) {
    for (const DType dtype :
         {DType::kFloat32, DType::kFloat16, DType::kBfloat16, DType::kFloat64}) {
      EXPECT_DOUBLE_EQ(Flops(programs[i], dtype), kProbeGrowth * Flops(programs[i - 1], dtype));
    }
    EXPECT_GT(programs[i].elements.front(), programs[i - 1].elements.back());
    EXPECT_LE(ProbeBytes(programs[i]), kProbeGrowth * ProbeBytes(programs[i - 1]));
  }
}

// At 100 TFLOP/s a product of 8192 x 8192 takes 11 ms: a thousand times a launch.
TEST(ProbeSizesTest, LargeOnesOfACardTakeLongBesideALaunch) {
  const ProbeSizes largest = ProbeSizesOfCard().back();
  EXPECT_GE(Flops(largest, DType::kBfloat16) / 1e14, 1e-2);
  EXPECT_GE(largest.elements.back() * 4, int64_t{256} << 20);
  EXPECT_TRUE(largest.has_random_operands);
}

TEST(ProbeSizesTest, BytesAreOperandsAndResults) {
  ProbeSizes sizes;
  sizes.products = {{DType::kFloat16, {8}}};  // 64 x 2 bytes, and the result
  EXPECT_EQ(ProbeBytes(sizes), 256);
  sizes.elements = {16};  // a vector and its sum, rows and their transpose
  EXPECT_EQ(ProbeBytes(sizes), 256 + 4 * 64);
  sizes.activated = {32};
  EXPECT_EQ(ProbeBytes(sizes), 256 + 4 * 64 + 2 * 128);
}

}  // namespace
}  // namespace weft
