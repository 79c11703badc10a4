#include <cmath>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ops/testing/value_runner.h"

namespace weft {
namespace {

using ::testing::HasSubstr;
using weft::testing::ResultText;

Tensor Floats(std::vector<float> values) {
  return Tensor::Of<float>(Shape{static_cast<int64_t>(values.size())}, values);
}

TEST(NonZeroTest, GivesOneColumnPerElement) {
  EXPECT_EQ(ResultText("NonZero", {Tensor::Of<float>(Shape{2, 3}, {0, 1, 0, 2, 0, 3})}),
            "int64[2,3]{0, 1, 1, 1, 0, 2}");
  EXPECT_EQ(ResultText("NonZero", {Tensor::Scalar<int32_t>(4)}), "int64[0,1]{}");
  EXPECT_EQ(ResultText("NonZero", {Tensor::Of<bool>(Shape{0, 2}, std::span<const bool>())}),
            "int64[2,0]{}");
}

TEST(CompressTest, TakesPartsOfAnAxis) {
  const Tensor x = Tensor::Of<float>(Shape{3, 2}, {1, 2, 3, 4, 5, 6});
  const bool wanted[] = {false, true};
  const Tensor condition = Tensor::Of<bool>(Shape{2}, wanted);
  EXPECT_EQ(ResultText("Compress", {x, condition}, {{"axis", int64_t{0}}}), "float32[1,2]{3, 4}");
  EXPECT_EQ(ResultText("Compress", {x, condition}, {{"axis", int64_t{-1}}}),
            "float32[3,1]{2, 4, 6}");
  EXPECT_EQ(ResultText("Compress", {x, condition}), "float32[1]{2}");
}

TEST(CompressTest, RefusesAConditionBeyondTheAxis) {
  const bool wanted[] = {false, false, true};
  EXPECT_THAT(ResultText("Compress", {Floats({1, 2}), Tensor::Of<bool>(Shape{3}, wanted)}),
              HasSubstr("the condition is true at 2, but there are 2 parts"));
}

TEST(UniqueTest, SortsOrKeepsTheOrder) {
  const Tensor x = Floats({2, 1, 1, 3, 4, 3});
  EXPECT_EQ(ResultText("Unique", {x}), "float32[4]{1, 2, 3, 4}");
  const Attributes unsorted{{"sorted", int64_t{0}}};
  EXPECT_EQ(ResultText("Unique", {x}, unsorted, 0), "float32[4]{2, 1, 3, 4}");
  EXPECT_EQ(ResultText("Unique", {x}, unsorted, 1), "int64[4]{0, 1, 3, 4}");
  EXPECT_EQ(ResultText("Unique", {x}, unsorted, 2), "int64[6]{0, 1, 1, 2, 3, 2}");
  EXPECT_EQ(ResultText("Unique", {x}, unsorted, 3), "int64[4]{1, 2, 2, 1}");
}

TEST(UniqueTest, ComparesPartsOfAnAxis) {
  const Tensor x = Tensor::Of<int32_t>(Shape{2, 4}, {1, 0, 2, 0, 1, 0, 2, 0});
  const Attributes attributes{{"axis", int64_t{-1}}};
  EXPECT_EQ(ResultText("Unique", {x}, attributes, 0), "int32[2,3]{0, 1, 2, 0, 1, 2}");
  EXPECT_EQ(ResultText("Unique", {x}, attributes, 1), "int64[3]{1, 0, 2}");
  EXPECT_EQ(ResultText("Unique", {x}, attributes, 2), "int64[4]{1, 0, 2, 0}");
}

TEST(UniqueTest, KnowsNanAndStrings) {
  EXPECT_EQ(ResultText("Unique", {Floats({NAN, 1, NAN})}, {}, 3), "int64[2]{1, 2}");
  EXPECT_EQ(ResultText("Unique", {Tensor::OfStrings(Shape{3}, {"b", "a", "b"})}, {}, 2),
            "int64[3]{1, 0, 1}");
}

TEST(NonMaxSuppressionTest, DropsWhatOverlapsABetterBox) {
  const Tensor boxes =
      Tensor::Of<float>(Shape{1, 3, 4}, {0, 0, 1, 1, 0, 0.1F, 1, 1.1F, 0, 10, 1, 11});
  const Tensor scores = Tensor::Of<float>(Shape{1, 1, 3}, {0.9F, 0.75F, 0.6F});
  const auto run = [&](int64_t max_boxes, float score) {
    return ResultText("NonMaxSuppression",
                      {boxes, scores, Tensor::Of<int64_t>(Shape{1}, {max_boxes}), Floats({0.5F}),
                       Floats({score})});
  };
  EXPECT_EQ(run(3, 0), "int64[2,3]{0, 0, 0, 0, 0, 2}");
  EXPECT_EQ(run(1, 0), "int64[1,3]{0, 0, 0}");
  EXPECT_EQ(run(3, 0.8F), "int64[1,3]{0, 0, 0}");
  EXPECT_EQ(ResultText("NonMaxSuppression", {boxes, scores}), "int64[0,3]{}");
}

}  // namespace
}  // namespace weft
