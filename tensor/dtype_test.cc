#include "tensor/dtype.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tensor/packed.h"
#include "tensor/small_float.h"

namespace weft {
namespace {

// The value of sign, exponent and mantissa bits by IEEE 754's definition, in double arithmetic.
double IeeeValue(uint32_t bits, int exponent_bits, int mantissa_bits) {
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const int exponent = static_cast<int>(bits >> mantissa_bits) & ((1 << exponent_bits) - 1);
  const double mantissa = static_cast<double>(bits & ((1u << mantissa_bits) - 1));
  const double sign = (bits >> (exponent_bits + mantissa_bits)) != 0 ? -1.0 : 1.0;
  if (exponent == (1 << exponent_bits) - 1) {
    return mantissa == 0 ? sign * std::numeric_limits<double>::infinity()
                         : std::numeric_limits<double>::quiet_NaN();
  }
  if (exponent == 0) return sign * std::ldexp(mantissa, 1 - bias - mantissa_bits);
  return sign * std::ldexp(1.0 + std::ldexp(mantissa, -mantissa_bits), exponent - bias);
}

struct HalfFormat {
  const char* name;
  DType dtype;
  int exponent_bits;
  int mantissa_bits;
  uint32_t max_code;  // the largest finite number
  float (*decode)(uint16_t);
  uint16_t (*encode)(float);
};

std::ostream& operator<<(std::ostream& out, const HalfFormat& format) { return out << format.name; }

class HalfTest : public ::testing::TestWithParam<HalfFormat> {
 protected:
  double Value(uint32_t code) const {
    return IeeeValue(code, GetParam().exponent_bits, GetParam().mantissa_bits);
  }
};

TEST_P(HalfTest, DecodesEveryCode) {
  for (uint32_t code = 0; code < 0x10000; ++code) {
    const float value = GetParam().decode(static_cast<uint16_t>(code));
    if (std::isnan(Value(code))) {
      EXPECT_TRUE(std::isnan(value)) << code;
    } else {
      EXPECT_EQ(value, Value(code)) << code;
      EXPECT_EQ(std::signbit(value), (code & 0x8000) != 0) << code;
    }
    EXPECT_TRUE(std::isnan(value) == std::isnan(DecodeSmallFloat(GetParam().dtype, code)));
  }
}

TEST_P(HalfTest, EncodesEveryCodeItDecodes) {
  for (uint32_t code = 0; code < 0x10000; ++code) {
    const float value = GetParam().decode(static_cast<uint16_t>(code));
    const uint16_t encoded = GetParam().encode(value);
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(GetParam().decode(encoded))) << code;
    } else {
      EXPECT_EQ(encoded, code);
      EXPECT_EQ(EncodeSmallFloat(GetParam().dtype, value), code);
    }
  }
}

// Between each two neighbours: the middle goes to the even code, its neighbours to the nearer one.
TEST_P(HalfTest, RoundsToNearestEvenBetweenAllNeighbours) {
  const float infinity = std::numeric_limits<float>::infinity();
  for (uint32_t code = 0; code < GetParam().max_code; ++code) {
    const double middle = (Value(code) + Value(code + 1)) / 2;
    const float exact_middle = static_cast<float>(middle);
    ASSERT_EQ(exact_middle, middle);
    const uint32_t even = code % 2 == 0 ? code : code + 1;
    for (const uint32_t sign : {0u, 0x8000u}) {
      const float factor = sign != 0 ? -1.0f : 1.0f;
      const float below = std::nextafter(exact_middle, 0.0f);
      const float above = std::nextafter(exact_middle, infinity);
      ASSERT_EQ(GetParam().encode(factor * exact_middle), sign | even) << code;
      ASSERT_EQ(GetParam().encode(factor * below), sign | code) << code;
      ASSERT_EQ(GetParam().encode(factor * above), sign | (code + 1)) << code;
      ASSERT_EQ(EncodeSmallFloat(GetParam().dtype, factor * middle), sign | even) << code;
    }
  }
}

TEST_P(HalfTest, OverflowsToInfinityFromTheMiddleBeyondTheLargest) {
  const uint32_t max_code = GetParam().max_code;
  const double step = Value(max_code) - Value(max_code - 1);
  const float middle = static_cast<float>(Value(max_code) + step / 2);
  EXPECT_EQ(GetParam().encode(std::nextafter(middle, 0.0f)), max_code);
  EXPECT_EQ(GetParam().encode(middle), max_code + 1);
  EXPECT_EQ(GetParam().encode(-std::numeric_limits<float>::infinity()), 0x8000 | (max_code + 1));
  EXPECT_EQ(GetParam().encode(std::numeric_limits<float>::max()), max_code + 1);
}

TEST_P(HalfTest, KeepsNanWhateverItsPayload) {
  for (const uint32_t bits : {0x7F800001u, 0x7FFFFFFFu, 0xFF800001u, 0x7FC00000u, 0x7F80FFFFu}) {
    float nan;
    std::memcpy(&nan, &bits, sizeof(nan));
    const uint16_t code = GetParam().encode(nan);
    EXPECT_TRUE(std::isnan(GetParam().decode(code))) << bits;
    EXPECT_EQ((code & 0x8000) != 0, (bits & 0x80000000) != 0) << bits;
  }
}

TEST_P(HalfTest, AgreesWithTheGenericEncoderOnSampledFloats) {
  for (uint64_t bits = 0; bits < (uint64_t{1} << 32); bits += 9973) {
    const uint32_t pattern = static_cast<uint32_t>(bits);
    float value;
    std::memcpy(&value, &pattern, sizeof(value));
    if (std::isnan(value)) continue;
    ASSERT_EQ(GetParam().encode(value), EncodeSmallFloat(GetParam().dtype, value)) << pattern;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Halves, HalfTest,
    ::testing::Values(HalfFormat{"float16", DType::kFloat16, 5, 10, 0x7BFF,
                                 [](uint16_t bits) { return ToFloat(Float16{bits}); },
                                 [](float value) { return ToFloat16(value).bits; }},
                      HalfFormat{"bfloat16", DType::kBfloat16, 8, 7, 0x7F7F,
                                 [](uint16_t bits) { return ToFloat(Bfloat16{bits}); },
                                 [](float value) { return ToBfloat16(value).bits; }}),
    [](const auto& info) { return std::string(info.param.name); });

TEST(DTypeTest, NumbersAreThoseOfOnnx) {
  // TensorProto.DataType of onnx.proto3.
  EXPECT_EQ(static_cast<int>(DType::kFloat32), 1);
  EXPECT_EQ(static_cast<int>(DType::kInt64), 7);
  EXPECT_EQ(static_cast<int>(DType::kString), 8);
  EXPECT_EQ(static_cast<int>(DType::kFloat64), 11);
  EXPECT_EQ(static_cast<int>(DType::kBfloat16), 16);
  EXPECT_EQ(static_cast<int>(DType::kFloat4E2M1), 23);
  EXPECT_EQ(static_cast<int>(DType::kInt2), 26);
  EXPECT_EQ(static_cast<int>(DType::kFloat6E3M2), 28);
  EXPECT_FALSE(IsValidDType(0));
  EXPECT_TRUE(IsValidDType(1));
  EXPECT_TRUE(IsValidDType(28));
  EXPECT_FALSE(IsValidDType(29));
  EXPECT_FALSE(IsValidDType(-1));
}

TEST(DTypeTest, NamesAreDistinctAndParse) {
  std::set<std::string> names;
  for (int number = 1; number < kDTypeCount; ++number) {
    const DType dtype = static_cast<DType>(number);
    EXPECT_TRUE(names.emplace(DTypeName(dtype)).second) << DTypeName(dtype);
    EXPECT_EQ(ParseDType(DTypeName(dtype)), dtype);
  }
  EXPECT_EQ(ParseDType("float31"), std::nullopt);
  EXPECT_EQ(ParseDType("invalid"), std::nullopt);
  EXPECT_EQ(DTypeName(static_cast<DType>(200)), "invalid");
}

TEST(DTypeTest, SubByteElementsRoundUpToWholeBytes) {
  EXPECT_EQ(DTypeBytes(DType::kInt4, 0), 0);
  EXPECT_EQ(DTypeBytes(DType::kInt4, 1), 1);
  EXPECT_EQ(DTypeBytes(DType::kUint4, 2), 1);
  EXPECT_EQ(DTypeBytes(DType::kFloat4E2M1, 3), 2);
  EXPECT_EQ(DTypeBytes(DType::kUint2, 4), 1);
  EXPECT_EQ(DTypeBytes(DType::kInt2, 5), 2);
  EXPECT_EQ(DTypeBytes(DType::kFloat6E2M3, 1), 1);
  EXPECT_EQ(DTypeBytes(DType::kFloat6E2M3, 2), 2);
  EXPECT_EQ(DTypeBytes(DType::kFloat6E3M2, 4), 3);
  EXPECT_EQ(DTypeBytes(DType::kFloat6E3M2, 1001), 751);
  EXPECT_EQ(DTypeBytes(DType::kComplex128, 3), 48);
  EXPECT_EQ(DTypeBytes(DType::kString, 3), 0);
}

// A stream of bits, low bits first: 0x3F, 0x00, 0x15, 0x2A of 6 bits are the 24 bits
// 101010 010101 000000 111111.
TEST(PackedTest, ElementsCrossBytes) {
  uint8_t bytes[4] = {0xFF, 0xFF, 0xFF, 0xFF};
  const uint32_t codes[4] = {0x3F, 0x00, 0x15, 0x2A};
  for (int i = 0; i < 4; ++i) SetPackedElement(bytes, 6, i, codes[i]);
  EXPECT_EQ(bytes[0], 0x3F);
  EXPECT_EQ(bytes[1], 0x50);
  EXPECT_EQ(bytes[2], 0xA9);
  EXPECT_EQ(bytes[3], 0xFF);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(PackedElement(bytes, 6, i), codes[i]);
}

TEST(PackedTest, SettingAnElementLeavesTheOthers) {
  for (const int bits : {2, 4, 6}) {
    std::vector<uint8_t> bytes(9, 0);
    const int64_t elements = 72 / bits;
    const uint32_t all = (1u << bits) - 1;
    for (int64_t i = 0; i < elements; ++i) {
      SetPackedElement(bytes.data(), bits, i, static_cast<uint32_t>(i * 5) & all);
    }
    for (int64_t changed = 0; changed < elements; ++changed) {
      SetPackedElement(bytes.data(), bits, changed, all);
      SetPackedElement(bytes.data(), bits, changed, static_cast<uint32_t>(changed * 5) & all);
      for (int64_t i = 0; i < elements; ++i) {
        ASSERT_EQ(PackedElement(bytes.data(), bits, i), static_cast<uint32_t>(i * 5) & all);
      }
    }
  }
}

TEST(DTypeTest, BytesSaturateInsteadOfOverflowing) {
  const int64_t max_count = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(DTypeBytes(DType::kFloat64, max_count), max_count);
  EXPECT_EQ(DTypeBytes(DType::kFloat16, max_count / 2 + 1), max_count);
  EXPECT_EQ(DTypeBytes(DType::kInt4, max_count), max_count / 2 + 1);
}

TEST(DTypeTest, EachTypeIsFloatingIntegerOrNeither) {
  int floating = 0;
  int integer = 0;
  for (int number = 0; number < kDTypeCount; ++number) {
    const DType dtype = static_cast<DType>(number);
    EXPECT_FALSE(IsFloatingPoint(dtype) && IsInteger(dtype)) << DTypeName(dtype);
    floating += IsFloatingPoint(dtype) ? 1 : 0;
    integer += IsInteger(dtype) ? 1 : 0;
  }
  EXPECT_EQ(floating, 12);  // 32, 64, two of 16, five of 8, two of 6 and one of 4 bits
  EXPECT_EQ(integer, 12);   // signed and unsigned of 2, 4, 8, 16, 32 and 64 bits
}

TEST(DTypeTest, DispatchGivesTheTypeThatStoresOneElement) {
  int dispatched = 0;
  for (int number = 0; number < kDTypeCount; ++number) {
    const DType dtype = static_cast<DType>(number);
    const bool called = DispatchDType(dtype, [&](auto zero) {
      EXPECT_EQ(DTypeOf<decltype(zero)>::value, dtype);
      EXPECT_EQ(sizeof(zero) * 8, static_cast<size_t>(DTypeBits(dtype)));
    });
    dispatched += called ? 1 : 0;
  }
  EXPECT_EQ(dispatched, 13);
}

}  // namespace
}  // namespace weft
