// Lookups of ai.onnx.ml, on strings and numbers.
#include <limits>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "ops/testing/test_tensors.h"
#include "ops/testing/value_runner.h"

namespace weft::testing {
namespace {

using Strings = std::vector<std::string>;
using Ints = std::vector<int64_t>;

Tensor Texts(const Strings& values) {
  return Tensor::OfStrings(Shape{static_cast<int64_t>(values.size())}, values);
}

void ExpectGives(const std::string& op, const Tensor& x, const Attributes& attributes,
                 const Tensor& expected) {
  const auto outputs = RunOp("ai.onnx.ml::" + op, {x}, attributes);
  ASSERT_TRUE(outputs.ok()) << outputs.status();
  EXPECT_TRUE(BitwiseEqual((*outputs)[0].tensor(), expected))
      << (*outputs)[0].ToString() << " instead of " << expected.ToString();
}

TEST(LabelEncoder, StringsToNumbersAndBack) {
  const Attributes encode = {{"keys_strings", Strings{"a", "b"}},
                             {"values_int64s", Ints{7, 8}},
                             {"default_int64", int64_t{42}}};
  ExpectGives("LabelEncoder", Texts({"b", "?", "a"}), encode, Int64s({8, 42, 7}));
  const Attributes decode = {{"keys_int64s", Ints{7, 8}}, {"values_strings", Strings{"a", "b"}}};
  ExpectGives("LabelEncoder", Int64s({8, 1}), decode, Texts({"b", "_Unused"}));
}

TEST(LabelEncoder, TensorsOfAnyType) {
  const Tensor values = Tensor::Of<int16_t>({2}, std::vector<int16_t>{5, 6});
  const Attributes attributes = {
      {"keys_tensor", Texts({"a", "b"})},
      {"values_tensor", values},
      {"default_tensor", Tensor::Of<int16_t>({1}, std::vector<int16_t>{-3})}};
  ExpectGives("LabelEncoder", Texts({"c", "a"}), attributes,
              Tensor::Of<int16_t>({2}, std::vector<int16_t>{-3, 5}));
}

TEST(LabelEncoder, NotANumberIsAKey) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const Attributes attributes = {{"keys_floats", std::vector<float>{1, nan}},
                                 {"values_floats", std::vector<float>{10, 20}},
                                 {"default_float", 30.0f}};
  ExpectGives("LabelEncoder", Tensor::Of<float>({3}, std::vector<float>{nan, 1, 2}), attributes,
              Tensor::Of<float>({3}, std::vector<float>{20, 10, 30}));
}

TEST(LabelEncoder, PlacesOfStringsInTheFirstForm) {
  const Attributes attributes = {{"classes_strings", Strings{"a", "b"}}};
  ExpectGives("LabelEncoder", Texts({"b", "c"}), attributes, Int64s({1, -1}));
  ExpectGives("LabelEncoder", Int64s({1, 5}), attributes, Texts({"b", "_Unused"}));
}

TEST(CategoryMapper, MapsBothWays) {
  const Attributes attributes = {{"cats_strings", Strings{"x", "y"}}, {"cats_int64s", Ints{3, 4}}};
  ExpectGives("CategoryMapper", Texts({"y", "z"}), attributes, Int64s({4, -1}));
  ExpectGives("CategoryMapper", Int64s({3, 9}), attributes, Texts({"x", "_Unused"}));
}

TEST(OneHotEncoder, OneColumnPerCategory) {
  const Attributes strings = {{"cats_strings", Strings{"x", "y"}}};
  ExpectGives("OneHotEncoder", Texts({"y", "z"}), strings,
              Tensor::Of<float>({2, 2}, std::vector<float>{0, 1, 0, 0}));
  const Attributes strict = {{"cats_int64s", Ints{3}}, {"zeros", int64_t{0}}};
  EXPECT_NE(ResultText("ai.onnx.ml::OneHotEncoder", {Int64s({3, 4})}, strict)
                .find("element 1 is none of the categories"),
            std::string::npos);
}

}  // namespace
}  // namespace weft::testing
