// Every code of the 16-bit floats, and float32 numbers around every border, against tensor/dtype.h.
#include "ops/kernels/cpu/blocks/half_simd.h"

#include <cstdint>
#include <cstring>
#include <vector>

#include "gtest/gtest.h"
#include "ops/kernels/cpu/blocks/operand.h"

namespace weft::cpu {
namespace {

uint32_t BitsOf(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}

template <typename Half>
class HalfSimdTest : public ::testing::Test {};
using Halves = ::testing::Types<Float16, Bfloat16>;
TYPED_TEST_SUITE(HalfSimdTest, Halves);

TYPED_TEST(HalfSimdTest, WidensEveryCode) {
  std::vector<TypeParam> codes;
  for (uint32_t code = 0; code < 0x10000; ++code) {
    codes.push_back(TypeParam{static_cast<uint16_t>(code)});
  }
  std::vector<float> widened(codes.size());
  WidenHalf(codes.data(), widened.data(), codes.size());
  for (size_t i = 0; i < codes.size(); ++i) {
    ASSERT_EQ(BitsOf(widened[i]), BitsOf(ToFloat(codes[i]))) << "code " << i;
  }
}

// All upper halves, with lower halves around what decides the rounding of either type.
TYPED_TEST(HalfSimdTest, NarrowsAsTheScalarFunctionDoes) {
  std::vector<float> numbers;
  for (uint32_t upper = 0; upper < 0x10000; ++upper) {
    for (const uint32_t lower : {0x0000u, 0x0001u, 0x0FFFu, 0x1000u, 0x1001u, 0x2FFFu, 0x3000u,
                                 0x7FFFu, 0x8000u, 0x8001u, 0xEFFFu, 0xF000u, 0xF001u, 0xFFFFu}) {
      const uint32_t bits = (upper << 16) | lower;
      float number;
      std::memcpy(&number, &bits, sizeof(number));
      numbers.push_back(number);
    }
  }
  std::vector<TypeParam> narrowed(numbers.size());
  NarrowToHalf(numbers.data(), narrowed.data(), numbers.size());
  for (size_t i = 0; i < numbers.size(); ++i) {
    ASSERT_EQ(narrowed[i].bits, Store<TypeParam>(numbers[i]).bits)
        << std::hex << BitsOf(numbers[i]);
  }
}

TYPED_TEST(HalfSimdTest, TouchesNothingBehindTheEnd) {
  for (size_t n = 0; n < 40; ++n) {
    std::vector<float> numbers(n, 1.5f);
    std::vector<TypeParam> narrowed(n + 1, TypeParam{0x1234});
    NarrowToHalf(numbers.data(), narrowed.data(), n);
    EXPECT_EQ(narrowed[n].bits, 0x1234);
    std::vector<float> widened(n + 1, -7.0f);
    WidenHalf(narrowed.data(), widened.data(), n);
    EXPECT_EQ(widened[n], -7.0f);
    for (size_t i = 0; i < n; ++i) EXPECT_EQ(widened[i], 1.5f);
  }
}

}  // namespace
}  // namespace weft::cpu
