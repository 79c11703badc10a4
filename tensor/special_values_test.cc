#include "tensor/special_values.h"

#include <limits>
#include <vector>

#include "gtest/gtest.h"

namespace weft {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kLowest = std::numeric_limits<float>::lowest();
constexpr float kMax = std::numeric_limits<float>::max();

// A tensor of `size` ones with one other element, in each floating type.
std::vector<Tensor> With(float value, int64_t size, int64_t index) {
  std::vector<float> values(static_cast<size_t>(size), 1.0f);
  values[static_cast<size_t>(index)] = value;
  const Tensor tensor = Tensor::Of<float>({size}, values);
  std::vector<Tensor> tensors = {tensor};
  for (const DType dtype : {DType::kFloat64, DType::kFloat16, DType::kBfloat16}) {
    tensors.push_back(CastTensor(tensor, dtype).value());
  }
  return tensors;
}

TEST(SpecialValuesTest, FindsTheFirstInAnyPlaceOfAnyType) {
  for (const float value : {kInfinity, -kInfinity, kNan}) {
    for (const int64_t index : {0, 1, 4095, 4096, 9999}) {
      for (const Tensor& tensor : With(value, 10000, index)) {
        EXPECT_EQ(FindNonFinite(tensor), index) << tensor.ToString();
        EXPECT_EQ(FindNonFiniteOrLowest(tensor), index) << tensor.ToString();
      }
    }
  }
}

TEST(SpecialValuesTest, TheLowestValueIsThatOfTheType) {
  EXPECT_EQ(FindNonFiniteOrLowest(Tensor::Of<float>({2}, {kMax, kLowest})), 1);
  EXPECT_EQ(FindNonFinite(Tensor::Of<float>({2}, {kMax, kLowest})), -1);
  const double low = std::numeric_limits<double>::lowest();
  EXPECT_EQ(FindNonFiniteOrLowest(Tensor::Of<double>({2}, {double{kLowest}, low})), 1);
  const Tensor half = CastTensor(Tensor::Of<float>({2}, {65504, -65504}), DType::kFloat16).value();
  EXPECT_EQ(FindNonFiniteOrLowest(half), 1);
}

// In whole blocks, which are looked at otherwise than what is left.
TEST(SpecialValuesTest, OnlyTheLowestValueIsTakenForIt) {
  std::vector<float> values(10000, kMax);
  EXPECT_EQ(FindNonFiniteOrLowest(Tensor::Of<float>({10000}, values)), -1);
  for (const int64_t index : {9000, 8191, 4096, 17}) {
    values[static_cast<size_t>(index)] = kLowest;
    EXPECT_EQ(FindNonFiniteOrLowest(Tensor::Of<float>({10000}, values)), index);
    EXPECT_EQ(FindNonFinite(Tensor::Of<float>({10000}, values)), -1);
  }
}

TEST(SpecialValuesTest, OrdinaryNumbersAndOtherTypesHaveNone) {
  for (const Tensor& tensor : With(-1e4f, 5000, 77)) {
    EXPECT_EQ(FindNonFiniteOrLowest(tensor), -1) << tensor.ToString();
  }
  EXPECT_EQ(FindNonFiniteOrLowest(Tensor::Of<int64_t>({1}, {int64_t{-1}})), -1);
  EXPECT_EQ(FindNonFiniteOrLowest(Tensor::Of<float>({0}, std::vector<float>())), -1);
}

TEST(SpecialValuesTest, SaysWhatAnElementIs) {
  const Tensor tensor = Tensor::Of<float>({3}, {1, -kInfinity, kNan});
  EXPECT_EQ(ElementText(tensor, 1), "-inf");
  EXPECT_EQ(ElementText(tensor, 2), "nan");
}

}  // namespace
}  // namespace weft
