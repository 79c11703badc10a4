#include "tools/reports/value_comparison.h"

#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

using ::testing::HasSubstr;

Tensor Of(DType dtype, const std::vector<float>& values) {
  return CastTensor(Tensor::Of<float>(Shape{static_cast<int64_t>(values.size())}, values), dtype)
      .value();
}

std::string Difference(DType dtype, float actual, float expected, const Tolerance& tolerance = {}) {
  return DescribeDifference(Of(dtype, {1, actual}), Of(dtype, {1, expected}), tolerance);
}

TEST(ValueComparison, FloatsMayDifferByTheTolerance) {
  EXPECT_EQ(Difference(DType::kFloat32, 2.0019f, 2), "");
  EXPECT_THAT(Difference(DType::kFloat32, 2.0021f, 2),
              HasSubstr("1 of 2 elements differ, most at 1"));
  EXPECT_THAT(Difference(DType::kFloat16, 2.01f, 2), HasSubstr("1 of 2 elements differ"));
}

// The last place of numbers from 1 to 2 is worth 2^-7.
TEST(ValueComparison, Bfloat16MayDifferByTwoUnitsInTheLastPlace) {
  EXPECT_EQ(Difference(DType::kBfloat16, 1 + 2 * 0x1p-7f, 1), "");
  EXPECT_THAT(Difference(DType::kBfloat16, 1 + 3 * 0x1p-7f, 1),
              HasSubstr("1 of 2 elements differ"));
  EXPECT_EQ(Difference(DType::kBfloat16, 1 + 3 * 0x1p-7f, 1, {.relative = 0.1}), "");
}

TEST(ValueComparison, WholeNumbersMustBeEqual) {
  EXPECT_EQ(Difference(DType::kInt32, 7, 7), "");
  EXPECT_THAT(Difference(DType::kInt32, 8, 7, {.relative = 1}), HasSubstr("expected int32[2]"));
}

}  // namespace
}  // namespace weft
