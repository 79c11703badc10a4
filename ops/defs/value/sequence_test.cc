#include <memory>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "ops/testing/value_runner.h"

namespace weft {
namespace {

using ::testing::HasSubstr;
using weft::testing::ResultText;

Tensor Ints(std::vector<int64_t> values) {
  return Tensor::Of<int64_t>(Shape{static_cast<int64_t>(values.size())}, values);
}
Tensor Int(int64_t value) { return Tensor::Scalar<int64_t>(value); }
Value Three() { return Value::Sequence({Ints({1}), Ints({2, 3}), Ints({4})}); }

TEST(SequenceTest, CountsPositionsFromEitherEnd) {
  EXPECT_EQ(ResultText("SequenceAt", {Three(), Int(1)}), "int64[2]{2, 3}");
  EXPECT_EQ(ResultText("SequenceAt", {Three(), Int(-1)}), "int64[1]{4}");
  EXPECT_THAT(ResultText("SequenceAt", {Three(), Int(3)}),
              HasSubstr("position 3 is outside of a sequence of 3 elements"));
  EXPECT_THAT(ResultText("SequenceAt", {Three(), Int(-4)}), HasSubstr("position -4 is outside"));
}

TEST(SequenceTest, InsertsAndErases) {
  EXPECT_EQ(ResultText("SequenceInsert", {Three(), Ints({0}), Int(0)}),
            "sequence(int64[1]{0}, int64[1]{1}, int64[2]{2, 3}, int64[1]{4})");
  EXPECT_EQ(ResultText("SequenceInsert", {Value::Sequence({}), Ints({5})}),
            "sequence(int64[1]{5})");
  EXPECT_EQ(ResultText("SequenceErase", {Three(), Int(-3)}),
            "sequence(int64[2]{2, 3}, int64[1]{4})");
  EXPECT_EQ(ResultText("SequenceErase", {Three()}), "sequence(int64[1]{1}, int64[2]{2, 3})");
  EXPECT_THAT(ResultText("SequenceErase", {Value::Sequence({})}), HasSubstr("sequence is empty"));
  EXPECT_EQ(ResultText("SequenceLength", {Three()}), "int64[]{3}");
}

TEST(SequenceTest, RefusesATensorInItsPlace) {
  EXPECT_THAT(ResultText("SequenceLength", {Ints({1})}), HasSubstr("must be a sequence"));
  EXPECT_THAT(ResultText("NonZero", {Three()}), HasSubstr("is a sequence, expected a tensor"));
}

TEST(SplitToSequenceTest, SplitsEvenlyOrAsAsked) {
  const Tensor x = Tensor::Of<float>(Shape{2, 3}, {1, 2, 3, 4, 5, 6});
  const Attributes last{{"axis", int64_t{-1}}};
  EXPECT_EQ(ResultText("SplitToSequence", {x, Int(2)}, last),
            "sequence(float32[2,2]{1, 2, 4, 5}, float32[2,1]{3, 6})");
  EXPECT_EQ(ResultText("SplitToSequence", {x, Ints({1, 2})}, last),
            "sequence(float32[2,1]{1, 4}, float32[2,2]{2, 3, 5, 6})");
  EXPECT_EQ(ResultText("SplitToSequence", {x}, {{"keepdims", int64_t{0}}}),
            "sequence(float32[3]{1, 2, 3}, float32[3]{4, 5, 6})");
  EXPECT_THAT(ResultText("SplitToSequence", {x, Ints({1, 1})}, last),
              HasSubstr("add up to 2, but the axis has 3"));
  EXPECT_THAT(ResultText("SplitToSequence", {x, Int(0)}, last), HasSubstr("split is 0"));
}

TEST(ConcatFromSequenceTest, JoinsOrStacks) {
  EXPECT_EQ(ResultText("ConcatFromSequence", {Three()}, {{"axis", int64_t{0}}}),
            "int64[4]{1, 2, 3, 4}");
  EXPECT_EQ(ResultText("ConcatFromSequence", {Value::Sequence({Ints({1, 2}), Ints({3, 4})})},
                       {{"axis", int64_t{1}}, {"new_axis", int64_t{1}}}),
            "int64[2,2]{1, 3, 2, 4}");
  EXPECT_THAT(
      ResultText("ConcatFromSequence", {Three()}, {{"axis", int64_t{0}}, {"new_axis", int64_t{1}}}),
      HasSubstr("different shapes"));
}

TEST(OptionalTest, HoldsAnythingOrNothing) {
  const Value some = Value::Optional(std::make_shared<const Value>(Three()));
  const Value none = Value::Optional(nullptr);
  EXPECT_EQ(ResultText("Optional", {Ints({1})}), "optional(int64[1]{1})");
  EXPECT_EQ(ResultText("OptionalHasElement", {some}), "bool[]{true}");
  EXPECT_EQ(ResultText("OptionalHasElement", {none}), "bool[]{false}");
  EXPECT_EQ(ResultText("OptionalHasElement", {}), "bool[]{false}");
  EXPECT_EQ(ResultText("OptionalGetElement", {some}), Three().ToString());
  EXPECT_EQ(ResultText("OptionalGetElement", {Ints({1})}), "int64[1]{1}");
  EXPECT_THAT(ResultText("OptionalGetElement", {none}), HasSubstr("the optional is empty"));
  EXPECT_EQ(ResultText("Identity", {none}), "optional()");
}

}  // namespace
}  // namespace weft
