// ToDoubles, ToInt64s and CastTensor of tensor.h.
#include <cmath>
#include <cstring>
#include <limits>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tensor/tensor.h"

namespace weft {
namespace {

using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

Tensor FromBytes(DType dtype, int64_t elements, const std::vector<uint8_t>& bytes) {
  Tensor tensor = Tensor::Allocate(dtype, Shape{elements}).value();
  std::memcpy(tensor.raw_data(), bytes.data(), tensor.bytes());
  return tensor;
}

template <typename T>
Tensor Vector(const std::vector<T>& values) {
  return Tensor::Of<T>(Shape{static_cast<int64_t>(values.size())}, values);
}

std::vector<uint8_t> BytesOf(const Tensor& tensor) {
  const auto* const begin = static_cast<const uint8_t*>(tensor.raw_data());
  return {begin, begin + tensor.bytes()};
}

template <typename T>
std::vector<T> CastTo(const Tensor& tensor) {
  const Tensor cast = CastTensor(tensor, DTypeOf<T>::value).value();
  return {cast.data<T>().begin(), cast.data<T>().end()};
}

TEST(ToDoublesTest, ReadsPackedElementsLowBitsFirst) {
  EXPECT_THAT(*ToDoubles(FromBytes(DType::kUint4, 3, {0x21, 0x0F})), ElementsAre(1, 2, 15));
  EXPECT_THAT(*ToDoubles(FromBytes(DType::kInt4, 3, {0x7F, 0x08})), ElementsAre(-1, 7, -8));
  EXPECT_THAT(*ToDoubles(FromBytes(DType::kUint2, 5, {0b11100100, 0b01})),
              ElementsAre(0, 1, 2, 3, 1));
  EXPECT_THAT(*ToDoubles(FromBytes(DType::kInt2, 4, {0b11100100})), ElementsAre(0, 1, -2, -1));
  EXPECT_THAT(*ToDoubles(FromBytes(DType::kFloat4E2M1, 3, {0x71, 0x0C})), ElementsAre(0.5, 6, -2));
  // The codes 0x08, 0x1F and 0x28, as 101000 011111 001000.
  EXPECT_THAT(*ToDoubles(FromBytes(DType::kFloat6E2M3, 3, {0xC8, 0x87, 0x02})),
              ElementsAre(1, 7.5, -1));
}

TEST(ToDoublesTest, ReadsEveryRealType) {
  EXPECT_THAT(*ToDoubles(Vector<uint64_t>({1, uint64_t{1} << 63})), ElementsAre(1, 0x1p63));
  EXPECT_THAT(*ToDoubles(Vector<Float16>({{0x3C00}, {0xC000}})), ElementsAre(1, -2));
  EXPECT_THAT(*ToDoubles(Vector<Bfloat16>({{0x3F80}, {0xC000}})), ElementsAre(1, -2));
  EXPECT_THAT(*ToDoubles(FromBytes(DType::kFloat8E4M3Fn, 2, {0x7E, 0xB8})), ElementsAre(448, -1));
  EXPECT_THAT(*ToDoubles(FromBytes(DType::kFloat8E8M0, 2, {0, 128})), ElementsAre(0x1p-127, 2));
  EXPECT_THAT(*ToDoubles(FromBytes(DType::kBool, 3, {0, 1, 2})), ElementsAre(0, 1, 1));
}

TEST(ToDoublesTest, RefusesWhatIsNotReal) {
  const absl::Status strings = ToDoubles(Tensor::OfStrings(Shape{1}, {"x"})).status();
  EXPECT_EQ(strings.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(strings.message(), HasSubstr("string[1]{\"x\"} are not real numbers"));
  EXPECT_FALSE(ToInt64s(Tensor::Zeros(DType::kComplex64, Shape{1}).value()).ok());
  EXPECT_FALSE(ToDoubles(Tensor()).ok());
}

TEST(ToInt64sTest, TruncatesAndSaturates) {
  EXPECT_THAT(*ToInt64s(Vector<float>({1.9f, -1.9f, kNan, 1e30f, -kInfinity})),
              ElementsAre(1, -1, 0, std::numeric_limits<int64_t>::max(),
                          std::numeric_limits<int64_t>::min()));
}

TEST(CastTensorTest, IntegersKeepTheirLowBits) {
  EXPECT_THAT(CastTo<int8_t>(Vector<int16_t>({200, -200, 5})), ElementsAre(-56, 56, 5));
  EXPECT_THAT(CastTo<uint32_t>(Vector<int64_t>({-1, (int64_t{1} << 32) + 3})),
              ElementsAre(0xFFFFFFFFu, 3u));
}

TEST(CastTensorTest, FloatingToIntegerIsDefinedForEveryValue) {
  const Tensor values = Vector<float>({2.7f, -2.7f, kNan, 1e20f, -1e20f, kInfinity});
  EXPECT_THAT(CastTo<int32_t>(values), ElementsAre(2, -2, 0, 2147483647, -2147483648, 2147483647));
  EXPECT_THAT(CastTo<uint32_t>(values), ElementsAre(2, 0, 0, 4294967295u, 0, 4294967295u));
  EXPECT_THAT(CastTo<uint64_t>(values)[3], std::numeric_limits<uint64_t>::max());
  EXPECT_THAT(CastTo<int8_t>(Vector<double>({300, -129})), ElementsAre(44, 127));
  EXPECT_THAT(CastTo<int32_t>(Vector<double>({2147483647.5, -2147483648.9})),
              ElementsAre(2147483647, std::numeric_limits<int32_t>::min()));
}

TEST(CastTensorTest, ToBoolIsNotZero) {
  EXPECT_THAT(CastTo<bool>(Vector<float>({0.0f, -0.0f, 0.5f, kNan})),
              ElementsAre(false, false, true, true));
  EXPECT_THAT(CastTo<bool>(Vector<int32_t>({0, 256})), ElementsAre(false, true));
  EXPECT_THAT(CastTo<float>(FromBytes(DType::kBool, 2, {0, 7})), ElementsAre(0, 1));
}

TEST(CastTensorTest, DoublesRoundToHalvesOnce) {
  // Above the middle of 1 and its successor by less than a float can say: through float it would be
  // exactly the middle, and round down to even.
  const double float16_middle = 1 + 0x1p-11 + 0x1p-40;
  const double bfloat16_middle = 1 + 0x1p-8 + 0x1p-40;
  EXPECT_EQ(CastTo<Float16>(Vector<double>({float16_middle}))[0].bits, 0x3C01);
  EXPECT_EQ(CastTo<Bfloat16>(Vector<double>({bfloat16_middle}))[0].bits, 0x3F81);
  // The same for an integer that double cannot hold.
  const int64_t integer = (int64_t{1} << 62) + (int64_t{1} << 54) + 1;
  EXPECT_EQ(CastTo<Bfloat16>(Vector<int64_t>({integer}))[0].bits, 0x5E81);
  EXPECT_EQ(CastTo<Bfloat16>(Vector<int64_t>({-integer}))[0].bits, 0xDE81);
}

TEST(CastTensorTest, FloatsTooLargeForHalvesBecomeInfinity) {
  EXPECT_EQ(CastTo<Float16>(Vector<float>({70000.0f}))[0].bits, 0x7C00);
  EXPECT_EQ(CastTo<Float16>(Vector<int32_t>({-70000}))[0].bits, 0xFC00);
  EXPECT_THAT(CastTo<float>(Vector<double>({1e300})), ElementsAre(kInfinity));
}

// Inputs and outputs of ONNX's own cases test_cast_FLOAT_to_INT4, _UINT4, _INT2 and _UINT2.
TEST(CastTensorTest, PacksIntegersAsOnnxDoes) {
  std::vector<float> values;
  std::vector<double> int4;
  std::vector<double> uint4;
  for (int value = -9; value < 16; ++value) {
    values.push_back(static_cast<float>(value));
    uint4.push_back(value & 0xF);
    int4.push_back((value & 0xF) >= 8 ? (value & 0xF) - 16 : (value & 0xF));
  }
  const Tensor source = Vector(values);
  EXPECT_THAT(*ToDoubles(CastTensor(source, DType::kInt4).value()), ElementsAreArray(int4));
  EXPECT_THAT(*ToDoubles(CastTensor(source, DType::kUint4).value()), ElementsAreArray(uint4));
  const Tensor small = Vector<float>({-3, -2, -1, 0, 1, 2, 3});
  EXPECT_THAT(*ToDoubles(CastTensor(small, DType::kInt2).value()),
              ElementsAre(1, -2, -1, 0, 1, -2, -1));
  EXPECT_THAT(*ToDoubles(CastTensor(small, DType::kUint2).value()),
              ElementsAre(1, 2, 3, 0, 1, 2, 3));
  EXPECT_THAT(BytesOf(CastTensor(small, DType::kUint2).value()),
              ElementsAre(0b00111001, 0b00111001 & 0b00111111));
}

// Input and output of ONNX's own case test_cast_FLOAT16_to_FLOAT4E2M1.
TEST(CastTensorTest, CastsToFloat4AsOnnxDoes) {
  const Tensor source = Vector<float>({0.48f, 0.25f, 1.05f, -3.5f, -8.0f, 9.0f, kInfinity, 1e-7f,
                                       kNan, 1000001.0f, -kInfinity, -4.0f, 0.01f, -0.0f});
  const std::vector<double> cast = *ToDoubles(CastTensor(source, DType::kFloat4E2M1).value());
  EXPECT_THAT(cast, ElementsAre(0.5, 0, 1, -4, -6, 6, 6, 0, 0, 6, -6, -4, 0, 0));
  EXPECT_TRUE(std::signbit(cast[8]));   // NaN has become -0
  EXPECT_TRUE(std::signbit(cast[13]));  // and -0 has stayed
}

TEST(CastTensorTest, SaturatesFloat8ByDefault) {
  const Tensor source = Vector<float>({1000.0f, -kInfinity, 1.0f});
  EXPECT_THAT(BytesOf(CastTensor(source, DType::kFloat8E4M3Fn).value()),
              ElementsAre(0x7E, 0xFE, 0x38));
  EXPECT_THAT(BytesOf(CastTensor(source, DType::kFloat8E4M3Fn, {.saturate = false}).value()),
              ElementsAre(0x7F, 0xFF, 0x38));
}

// More elements than are staged at a time, and a last byte that is not full.
TEST(CastTensorTest, ManyPackedElementsComeBack) {
  std::vector<int32_t> values;
  for (int i = 0; i < 10001; ++i) values.push_back((i * 7 + i / 3) % 16 - 8);
  const Tensor packed = CastTensor(Vector(values), DType::kInt4).value();
  EXPECT_EQ(packed.bytes(), 5001u);
  EXPECT_EQ(CastTo<int32_t>(packed), values);
}

TEST(CastTensorTest, ManyElementsThatCrossBytesComeBack) {
  std::vector<float> values;
  for (int i = 0; i < 10001; ++i) {
    values.push_back(static_cast<float>((i * 7 + i / 3) % 64 - 32) / 8);
  }
  std::vector<float> rounded;  // eighths below 2, quarters below 4
  for (const float value : values) {
    const float unit = std::abs(value) < 2 ? 0.125f : 0.25f;
    rounded.push_back(std::nearbyint(value / unit) * unit);
  }
  const Tensor packed = CastTensor(Vector(values), DType::kFloat6E2M3).value();
  EXPECT_EQ(packed.bytes(), 7501u);
  EXPECT_EQ(CastTo<float>(packed), rounded);
}

TEST(CastTensorTest, EveryPairOfRealTypesKeepsSmallNumbers) {
  const Tensor source = Vector<float>({0, 1, 1, 0, 1});
  for (int from = 1; from < kDTypeCount; ++from) {
    for (int to = 1; to < kDTypeCount; ++to) {
      const DType from_dtype = static_cast<DType>(from);
      const DType to_dtype = static_cast<DType>(to);
      const absl::StatusOr<Tensor> first = CastTensor(source, from_dtype);
      if (!first.ok()) continue;  // strings and complex numbers
      const absl::StatusOr<Tensor> second = CastTensor(*first, to_dtype);
      if (!second.ok()) {
        EXPECT_THAT(second.status().message(), HasSubstr("not a type of real numbers"));
        continue;
      }
      const std::vector<double> back = *ToDoubles(*second);
      // float8e8m0 has no zero: its smallest number stands for it, and is not false.
      const bool has_zero = from_dtype != DType::kFloat8E8M0 && to_dtype != DType::kFloat8E8M0;
      if (has_zero) {
        EXPECT_THAT(back, ElementsAre(0, 1, 1, 0, 1))
            << DTypeName(from_dtype) << " to " << DTypeName(to_dtype);
      } else {
        EXPECT_EQ(back[1], 1) << DTypeName(from_dtype) << " to " << DTypeName(to_dtype);
      }
    }
  }
}

TEST(CastTensorTest, TheSameTypeGivesATensorOfItsOwn) {
  const Tensor source = Vector<float>({1, 2});
  const Tensor cast = CastTensor(source, DType::kFloat32).value();
  EXPECT_TRUE(BitwiseEqual(source, cast));
  EXPECT_NE(source.raw_data(), cast.raw_data());
}

TEST(CastTensorTest, RefusesStringsAndComplexNumbers) {
  EXPECT_THAT(CastTensor(Vector<float>({1}), DType::kString).status().message(),
              HasSubstr("cannot cast float32[1]{1} to string"));
  EXPECT_FALSE(CastTensor(Tensor::OfStrings(Shape{1}, {"1"}), DType::kFloat32).ok());
  EXPECT_FALSE(CastTensor(Vector<float>({1}), DType::kComplex128).ok());
}

}  // namespace
}  // namespace weft
