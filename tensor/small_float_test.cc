#include "tensor/small_float.h"

#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace weft {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr CastOptions kNoSaturation{.saturate = false};

// The nearest finite code without its sign, by trying all of them; of two equally near the even
// one.
uint32_t NearestByTrial(DType dtype, double magnitude) {
  uint32_t best = 0;
  double best_distance = kInfinity;
  for (uint32_t code = 0; code < (1u << (DTypeBits(dtype) - 1)); ++code) {
    const double value = DecodeSmallFloat(dtype, code);
    if (!std::isfinite(value)) continue;
    const double distance = std::fabs(value - magnitude);
    if (distance < best_distance || (distance == best_distance && code % 2 == 0)) {
      best = code;
      best_distance = distance;
    }
  }
  return best;
}

class Float8Test : public ::testing::TestWithParam<DType> {};

TEST_P(Float8Test, EncodesEveryCodeItDecodes) {
  for (uint32_t code = 0; code < (1u << DTypeBits(GetParam())); ++code) {
    const double value = DecodeSmallFloat(GetParam(), code);
    const uint32_t encoded = EncodeSmallFloat(GetParam(), value, kNoSaturation);
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(DecodeSmallFloat(GetParam(), encoded))) << code;
    } else {
      EXPECT_EQ(encoded, code);
    }
  }
}

TEST_P(Float8Test, RoundsToTheNearestCodeAndTiesToEven) {
  const DType dtype = GetParam();
  const uint32_t sign_bit = 1u << (DTypeBits(dtype) - 1);
  std::mt19937_64 random(7);
  std::uniform_real_distribution<double> exponents(-20.0, 17.0);
  std::vector<double> samples;
  for (int i = 0; i < 20000; ++i) samples.push_back(std::exp2(exponents(random)));
  for (uint32_t code = 0; code + 1 < sign_bit; ++code) {
    const double middle = (DecodeSmallFloat(dtype, code) + DecodeSmallFloat(dtype, code + 1)) / 2;
    if (std::isfinite(middle)) samples.push_back(middle);
  }
  for (const double sample : samples) {
    const uint32_t expected = NearestByTrial(dtype, sample);
    ASSERT_EQ(EncodeSmallFloat(dtype, sample), expected) << sample;
    const bool unsigned_zero = EncodeSmallFloat(dtype, -0.0) == 0;
    const uint32_t negative = expected == 0 && unsigned_zero ? 0 : sign_bit | expected;
    ASSERT_EQ(EncodeSmallFloat(dtype, -sample), negative) << sample;
  }
}

INSTANTIATE_TEST_SUITE_P(AllTypes, Float8Test,
                         ::testing::Values(DType::kFloat8E4M3Fn, DType::kFloat8E4M3Fnuz,
                                           DType::kFloat8E5M2, DType::kFloat8E5M2Fnuz,
                                           DType::kFloat4E2M1, DType::kFloat6E2M3,
                                           DType::kFloat6E3M2),
                         [](const auto& info) { return std::string(DTypeName(info.param)); });

// Landmarks from the tables of the formats' specifications.
TEST(SmallFloatTest, DecodesTheLandmarksOfTheSpecifications) {
  EXPECT_EQ(DecodeSmallFloat(DType::kFloat8E4M3Fn, 0x7E), 448);
  EXPECT_EQ(DecodeSmallFloat(DType::kFloat8E4M3Fn, 0x08), 0x1p-6);
  EXPECT_EQ(DecodeSmallFloat(DType::kFloat8E4M3Fn, 0x01), 0x1p-9);
  EXPECT_TRUE(std::isnan(DecodeSmallFloat(DType::kFloat8E4M3Fn, 0xFF)));
  EXPECT_EQ(DecodeSmallFloat(DType::kFloat8E5M2, 0x7B), 57344);
  EXPECT_EQ(DecodeSmallFloat(DType::kFloat8E5M2, 0x04), 0x1p-14);
  EXPECT_EQ(DecodeSmallFloat(DType::kFloat8E5M2, 0x01), 0x1p-16);
  EXPECT_EQ(DecodeSmallFloat(DType::kFloat8E5M2, 0xFC), -kInfinity);
  EXPECT_EQ(DecodeSmallFloat(DType::kFloat8E4M3Fnuz, 0x7F), 240);
  EXPECT_EQ(DecodeSmallFloat(DType::kFloat8E4M3Fnuz, 0x01), 0x1p-10);
  EXPECT_TRUE(std::isnan(DecodeSmallFloat(DType::kFloat8E4M3Fnuz, 0x80)));
  EXPECT_EQ(DecodeSmallFloat(DType::kFloat8E5M2Fnuz, 0x7F), 57344);
  EXPECT_EQ(DecodeSmallFloat(DType::kFloat8E5M2Fnuz, 0x01), 0x1p-17);
  EXPECT_TRUE(std::isnan(DecodeSmallFloat(DType::kFloat8E5M2Fnuz, 0x80)));
}

TEST(SmallFloatTest, DecodesAllOfFloat4) {
  const double expected[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6};
  for (uint32_t code = 0; code < 16; ++code) {
    EXPECT_EQ(DecodeSmallFloat(DType::kFloat4E2M1, code), expected[code]);
  }
  EXPECT_TRUE(std::signbit(DecodeSmallFloat(DType::kFloat4E2M1, 8)));
}

// The table of OCP Microscaling Formats 1.0 for both: largest, least normal, largest and least
// subnormal number.
TEST(SmallFloatTest, DecodesTheLandmarksOfFloat6) {
  EXPECT_EQ(DecodeSmallFloat(DType::kFloat6E2M3, 0x1F), 7.5);
  EXPECT_EQ(DecodeSmallFloat(DType::kFloat6E2M3, 0x08), 1);
  EXPECT_EQ(DecodeSmallFloat(DType::kFloat6E2M3, 0x07), 0.875);
  EXPECT_EQ(DecodeSmallFloat(DType::kFloat6E2M3, 0x01), 0.125);
  EXPECT_EQ(DecodeSmallFloat(DType::kFloat6E3M2, 0x1F), 28);
  EXPECT_EQ(DecodeSmallFloat(DType::kFloat6E3M2, 0x04), 0.25);
  EXPECT_EQ(DecodeSmallFloat(DType::kFloat6E3M2, 0x03), 0.1875);
  EXPECT_EQ(DecodeSmallFloat(DType::kFloat6E3M2, 0x21), -0.0625);
  EXPECT_TRUE(std::signbit(DecodeSmallFloat(DType::kFloat6E3M2, 0x20)));
}

// The two tables of ONNX's Cast for the four float8 types: columns E4M3FN, E4M3FNUZ, E5M2,
// E5M2FNUZ.
TEST(SmallFloatTest, FollowsTheTablesOfCast) {
  const DType types[] = {DType::kFloat8E4M3Fn, DType::kFloat8E4M3Fnuz, DType::kFloat8E5M2,
                         DType::kFloat8E5M2Fnuz};
  struct Row {
    double value;
    bool saturate;
    uint32_t codes[4];
  };
  const Row rows[] = {
      {0.0, true, {0x00, 0x00, 0x00, 0x00}},         {-0.0, true, {0x80, 0x00, 0x80, 0x00}},
      {kInfinity, true, {0x7E, 0x7F, 0x7B, 0x7F}},   {-kInfinity, true, {0xFE, 0xFF, 0xFB, 0xFF}},
      {1e6, true, {0x7E, 0x7F, 0x7B, 0x7F}},         {-1e6, true, {0xFE, 0xFF, 0xFB, 0xFF}},
      {-0.0, false, {0x80, 0x00, 0x80, 0x00}},       {kInfinity, false, {0x7F, 0x80, 0x7C, 0x80}},
      {-kInfinity, false, {0xFF, 0x80, 0xFC, 0x80}}, {1e6, false, {0x7F, 0x80, 0x7C, 0x80}},
      {-1e6, false, {0xFF, 0x80, 0xFC, 0x80}},
  };
  for (const Row& row : rows) {
    for (int column = 0; column < 4; ++column) {
      EXPECT_EQ(EncodeSmallFloat(types[column], row.value, CastOptions{.saturate = row.saturate}),
                row.codes[column])
          << row.value << " to " << DTypeName(types[column]) << " saturate " << row.saturate;
    }
  }
  for (const DType type : types) {
    EXPECT_TRUE(std::isnan(DecodeSmallFloat(type, EncodeSmallFloat(type, kNan))));
  }
}

TEST(SmallFloatTest, RoundsBeforeItCompliesWithTheLargest) {
  // 464 is the middle between 448 and what 480 would be; ties go to the even 480, which is too
  // large.
  EXPECT_EQ(EncodeSmallFloat(DType::kFloat8E4M3Fn, 463.9, kNoSaturation), 0x7Eu);
  EXPECT_EQ(EncodeSmallFloat(DType::kFloat8E4M3Fn, 464.1, kNoSaturation), 0x7Fu);
}

TEST(SmallFloatTest, Float4AlwaysSaturatesAndHasNoNan) {
  EXPECT_EQ(EncodeSmallFloat(DType::kFloat4E2M1, 1e9, kNoSaturation), 0x7u);
  EXPECT_EQ(EncodeSmallFloat(DType::kFloat4E2M1, -kInfinity), 0xFu);
  EXPECT_EQ(EncodeSmallFloat(DType::kFloat4E2M1, kNan), 0x8u);
}

// The examples of ONNX's page on 6-bit floats.
TEST(SmallFloatTest, Float6AlwaysSaturatesAndHasNoNan) {
  EXPECT_EQ(EncodeSmallFloat(DType::kFloat6E2M3, 25.0), 0x1Fu);
  EXPECT_EQ(DecodeSmallFloat(DType::kFloat6E3M2, EncodeSmallFloat(DType::kFloat6E3M2, 25.0)), 24);
  EXPECT_EQ(EncodeSmallFloat(DType::kFloat6E2M3, -0.0), 0x20u);
  EXPECT_EQ(EncodeSmallFloat(DType::kFloat6E3M2, kInfinity, kNoSaturation), 0x1Fu);
  EXPECT_EQ(EncodeSmallFloat(DType::kFloat6E3M2, -kInfinity), 0x3Fu);
  EXPECT_EQ(EncodeSmallFloat(DType::kFloat6E2M3, kNan), 0x20u);
}

TEST(SmallFloatTest, PowersOfTwoRoundAsAsked) {
  const auto encode = [](double value, PowerRounding rounding) {
    return EncodeSmallFloat(DType::kFloat8E8M0, value, CastOptions{.power_rounding = rounding});
  };
  EXPECT_EQ(encode(1.0, PowerRounding::kUp), 127u);
  EXPECT_EQ(encode(1.01, PowerRounding::kUp), 128u);
  EXPECT_EQ(encode(1.99, PowerRounding::kDown), 127u);
  EXPECT_EQ(encode(1.49, PowerRounding::kNearest), 127u);
  EXPECT_EQ(encode(1.5, PowerRounding::kNearest), 128u);
  EXPECT_EQ(DecodeSmallFloat(DType::kFloat8E8M0, 0), 0x1p-127);
  EXPECT_EQ(DecodeSmallFloat(DType::kFloat8E8M0, 0xFE), 0x1p127);
  EXPECT_TRUE(std::isnan(DecodeSmallFloat(DType::kFloat8E8M0, 0xFF)));
}

TEST(SmallFloatTest, PowersOfTwoFollowTheTableOfCast) {
  constexpr CastOptions kOther{.saturate = false, .power_rounding = PowerRounding::kNearest};
  struct Row {
    double value;
    uint32_t saturated;
    uint32_t other;
  };
  const Row rows[] = {{0.0, 0x00, 0xFF},
                      {kNan, 0xFF, 0xFF},
                      {kInfinity, 0xFE, 0xFF},
                      {0x1p130, 0xFE, 0xFF},
                      {0x1p-130, 0x00, 0xFF}};
  for (const Row& row : rows) {
    EXPECT_EQ(EncodeSmallFloat(DType::kFloat8E8M0, row.value), row.saturated) << row.value;
    EXPECT_EQ(EncodeSmallFloat(DType::kFloat8E8M0, row.value, kOther), row.other) << row.value;
  }
}

}  // namespace
}  // namespace weft
