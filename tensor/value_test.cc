#include "tensor/value.h"

#include <cstdint>

#include "gtest/gtest.h"

namespace weft {
namespace {

TEST(ValueTest, ATensorIsAValue) {
  const Value value = Tensor::Scalar<int64_t>(7);
  EXPECT_EQ(value.kind(), ValueKind::kTensor);
  EXPECT_EQ(value.ToString(), "int64[]{7}");
}

TEST(ValueTest, SequencesNest) {
  const Value inner = Value::Sequence({Tensor::Scalar<int8_t>(1), Tensor::Scalar<int8_t>(2)});
  const Value outer = Value::Sequence({inner, Value::Sequence({})});
  ASSERT_EQ(outer.kind(), ValueKind::kSequence);
  EXPECT_EQ(outer.elements().size(), 2u);
  EXPECT_EQ(outer.ToString(), "sequence(sequence(int8[]{1}, int8[]{2}), sequence())");
}

TEST(ValueTest, OptionalsAreEmptyOrHoldOneValue) {
  const Value empty = Value::Optional(nullptr);
  EXPECT_EQ(empty.kind(), ValueKind::kOptional);
  EXPECT_FALSE(empty.has_value());
  EXPECT_EQ(empty.ToString(), "optional()");
  const Value full = Value::Optional(std::make_shared<const Value>(Tensor::Scalar(true)));
  ASSERT_TRUE(full.has_value());
  EXPECT_EQ(full.value().ToString(), "bool[]{true}");
}

TEST(ValueTest, CopiesShareTensors) {
  const Value value = Tensor::Scalar(1.0f);
  const Value copy = value;
  EXPECT_EQ(copy.tensor().raw_data(), value.tensor().raw_data());
}

}  // namespace
}  // namespace weft
