#include "executor/program/memory_operations.h"

#include <cstdint>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

template <typename T>
void ExpectAdds() {
  const std::vector<T> from = {T{1}, T{2}, T{3}};
  std::vector<T> into = {T{10}, T{20}, T{30}};
  ASSERT_TRUE(AddInto(DTypeOf<T>::value, 2, from.data(), into.data()).ok());
  EXPECT_THAT(into, ElementsAre(T{11}, T{22}, T{30}));
}

TEST(AddIntoTest, AddsNumbersOfEveryWidth) {
  ExpectAdds<float>();
  ExpectAdds<double>();
  ExpectAdds<int8_t>();
  ExpectAdds<int16_t>();
  ExpectAdds<int32_t>();
  ExpectAdds<int64_t>();
  ExpectAdds<uint8_t>();
  ExpectAdds<uint16_t>();
  ExpectAdds<uint32_t>();
  ExpectAdds<uint64_t>();
}

TEST(AddIntoTest, SmallFloatsAreRoundedOnce) {
  const Float16 half = ToFloat16(0.25f);
  Float16 sum = ToFloat16(1024.0f);  // its neighbour is 1025
  ASSERT_TRUE(AddInto(DType::kFloat16, 1, &half, &sum).ok());
  EXPECT_EQ(ToFloat(sum), 1024.0f);
  const Bfloat16 three = ToBfloat16(3.0f);
  Bfloat16 total = ToBfloat16(4.0f);
  ASSERT_TRUE(AddInto(DType::kBfloat16, 1, &three, &total).ok());
  EXPECT_EQ(ToFloat(total), 7.0f);
}

TEST(AddIntoTest, TypesWithoutASumAreNamed) {
  bool a = true, b = true;
  const absl::Status status = AddInto(DType::kBool, 1, &a, &b);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_THAT(std::string(status.message()), HasSubstr("bool"));
  EXPECT_EQ(AddInto(DType::kString, 0, &a, &b).code(), absl::StatusCode::kUnimplemented);
}

TEST(CopyRowsTest, CopiesAStridedBlock) {
  std::vector<char> matrix(12);  // 3 x 4
  std::iota(matrix.begin(), matrix.end(), 'a');
  std::vector<char> block(7, '.');
  // Columns 1 and 2 of all rows, packed, one byte into the target.
  CopyRows({.rows = 3,
            .bytes = 2,
            .source_stride = 4,
            .target_stride = 2,
            .source_offset = 1,
            .target_offset = 1},
           matrix.data(), block.data());
  EXPECT_EQ(std::string(block.begin(), block.end()), ".bcfgjk");
}

TEST(CopyRowsTest, NoBytesOrNoRowsTouchNothing) {
  CopyRows({.rows = 3, .bytes = 0, .source_stride = 4, .target_stride = 4}, nullptr, nullptr);
  char source = 'x', target = 'y';
  CopyRows({.rows = 0, .bytes = 1, .source_stride = 1, .target_stride = 1}, &source, &target);
  EXPECT_EQ(target, 'y');
}

TEST(FindNonFiniteTest, GivesTheFirstElementThatIsNoNumber) {
  const float infinity = std::numeric_limits<float>::infinity();
  const std::vector<float> values = {1, -infinity, std::numeric_limits<float>::quiet_NaN()};
  EXPECT_EQ(FindNonFinite(DType::kFloat32, 3, values.data()), 1);
  EXPECT_EQ(FindNonFinite(DType::kFloat32, 1, values.data()), -1);
  EXPECT_EQ(FindNonFinite(DType::kFloat32, 0, nullptr), -1);
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(FindNonFinite(DType::kFloat64, 1, &nan), 0);
  const Float16 half = ToFloat16(infinity);
  EXPECT_EQ(FindNonFinite(DType::kFloat16, 1, &half), 0);
  const Bfloat16 brain[] = {ToBfloat16(1), ToBfloat16(infinity)};
  EXPECT_EQ(FindNonFinite(DType::kBfloat16, 2, brain), 1);
}

TEST(FindNonFiniteTest, IntegersAreAlwaysFinite) {
  const int32_t value = -1;  // the bits of a NaN
  EXPECT_EQ(FindNonFinite(DType::kInt32, 1, &value), -1);
}

}  // namespace
}  // namespace weft
