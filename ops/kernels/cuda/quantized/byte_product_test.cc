// Products and convolutions of bytes on the emulated GPU: the bits of the CPU's kernels, which
// widen to 16 bits and multiply rows.
#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "ops/testing/emulator/gpu_op_tester.h"
#include "ops/testing/op_tester.h"
#include "ops/testing/test_tensors.h"

namespace weft::testing {
namespace {

// The output has the bits of the CPU's kernel, in two orders of threads.
::testing::AssertionResult HasCpuCodes(const OpCase& op_case) {
  const auto expected = RunOp(op_case);
  if (!expected.ok()) return ::testing::AssertionFailure() << expected.status();
  for (const uint64_t seed : {1, 2}) {
    const auto actual = RunOnEmulatedGpu(op_case, {.seed = seed});
    if (!actual.ok()) return ::testing::AssertionFailure() << actual.status();
    auto near = TensorsNear(actual->at(0), expected->at(0), {.of_magnitude = 0, .absolute = 0});
    if (!near) return near << " of " << op_case.ToString();
  }
  return ::testing::AssertionSuccess();
}

// Codes over the whole range of a type.
Tensor Bytes(const Shape& shape, DType dtype, uint64_t seed) {
  const bool is_signed = dtype == DType::kInt8;
  return RandomTensor(shape, seed, is_signed ? -128 : 0, is_signed ? 127 : 255, dtype);
}

Tensor Filled(const Shape& shape, int8_t value) {
  return Tensor::Of<int8_t>(shape, std::vector<int8_t>(shape.num_elements(), value));
}

Tensor Code(double value, DType dtype) {
  return Cast(Tensor::Scalar<float>(static_cast<float>(value)), dtype);
}

const std::vector<std::pair<DType, DType>>& Pairs() {
  static const auto* const pairs =
      new std::vector<std::pair<DType, DType>>{{DType::kUint8, DType::kUint8},
                                               {DType::kUint8, DType::kInt8},
                                               {DType::kInt8, DType::kUint8},
                                               {DType::kInt8, DType::kInt8}};
  return *pairs;
}

// ---- MatMulInteger.

TEST(MatMulIntegerOnGpu, EveryPairOfTypes) {
  for (const auto& [a_type, b_type] : Pairs()) {
    for (const auto& [m, k, n] : std::vector<std::array<int64_t, 3>>{{1, 1, 1},
                                                                     {3, 4, 5},
                                                                     {17, 67, 31},
                                                                     {2, 0, 3},
                                                                     {0, 3, 2},
                                                                     {65, 130, 67},
                                                                     {64, 128, 72}}) {
      const Tensor a = Bytes({m, k}, a_type, 1);
      const Tensor b = Bytes({k, n}, b_type, 2);
      EXPECT_TRUE(HasCpuCodes({.op = "MatMulInteger", .inputs = {a, b}}));
      EXPECT_TRUE(HasCpuCodes(
          {.op = "MatMulInteger", .inputs = {a, b, Code(12, a_type), Code(7, b_type)}}));
      EXPECT_TRUE(HasCpuCodes({.op = "MatMulInteger",
                               .inputs = {a, b, Bytes({m, 1}, a_type, 3), Bytes({n}, b_type, 4)}}));
    }
  }
}

TEST(MatMulIntegerOnGpu, BatchesAndVectors) {
  const auto check = [](const Shape& a_shape, const Shape& b_shape, Tensor a_zeros = Tensor(),
                        Tensor b_zeros = Tensor()) {
    return HasCpuCodes(
        {.op = "MatMulInteger",
         .inputs = {Bytes(a_shape, DType::kUint8, 1), Bytes(b_shape, DType::kInt8, 2),
                    std::move(a_zeros), std::move(b_zeros)}});
  };
  EXPECT_TRUE(check({2, 1, 3, 4}, {5, 4, 2}));
  EXPECT_TRUE(check({7}, {7, 3}));
  EXPECT_TRUE(check({3, 7}, {7}));
  EXPECT_TRUE(check({7}, {7}));
  EXPECT_TRUE(check({2, 3, 5, 8}, {2, 3, 8, 4}));
  EXPECT_TRUE(check({2, 1, 3, 1, 5, 8}, {1, 2, 3, 2, 8, 4}));
  EXPECT_TRUE(check({0, 3, 4}, {4, 2}));
  // Zero points of the lines of each matrix.
  EXPECT_TRUE(check({2, 3, 5, 8}, {2, 3, 8, 4}, Bytes({2, 3, 5, 1}, DType::kUint8, 3),
                    Bytes({2, 3, 1, 4}, DType::kInt8, 4)));
}

TEST(MatMulIntegerOnGpu, SumsWrapAround) {
  // 33100 * 255 * 255 is beyond 2^31.
  const Tensor a = Filled({1, 33100}, -128);
  const Tensor b = Filled({33100, 1}, -128);
  EXPECT_TRUE(HasCpuCodes(
      {.op = "MatMulInteger", .inputs = {a, b, Code(127, DType::kInt8), Code(127, DType::kInt8)}}));
}

TEST(MatMulIntegerOnGpu, ZeroPointsThatDoNotFitAreNamed) {
  EXPECT_TRUE(ExpectErrorOnEmulatedGpu(
      {.op = "MatMulInteger",
       .inputs = {Bytes({3, 4}, DType::kUint8, 1), Bytes({4, 5}, DType::kUint8, 2),
                  Bytes({2}, DType::kUint8, 3)}},
      absl::StatusCode::kInvalidArgument, {"MatMulInteger", "input 2 has 2 elements", "1 or 3"}));
}

// ---- QLinearMatMul.

TEST(QLinearMatMulOnGpu, TypesOfCodesAndScales) {
  for (const auto& [a_type, b_type] : Pairs()) {
    for (const DType y_type : {DType::kUint8, DType::kInt8}) {
      for (const DType scales : {DType::kFloat32, DType::kFloat16, DType::kBfloat16}) {
        // Types of scales are independent of those of operands.
        if (scales != DType::kFloat32 && a_type != b_type) continue;
        for (const int64_t n : {31, 68}) {
          if (n == 68 && scales != DType::kFloat32) continue;
          const auto scale = [scales = scales](float value) {
            return Cast(Tensor::Scalar<float>(value), scales);
          };
          EXPECT_TRUE(
              HasCpuCodes({.op = "QLinearMatMul",
                           .inputs = {Bytes({17, 37}, a_type, 1), scale(0.013f), Code(9, a_type),
                                      Bytes({37, n}, b_type, 2), scale(0.37f), Code(3, b_type),
                                      scale(5.3f), Code(31, y_type)}}));
        }
      }
    }
  }
}

// Halves go to even once the zero point is added, and what is beyond the ends is cut.
TEST(QLinearMatMulOnGpu, HalvesAndEnds) {
  const Tensor one = Tensor::Scalar<float>(1);
  for (const float scale : {0.5f, 0.25f, 100.0f, 1e30f}) {
    for (const DType y_type : {DType::kUint8, DType::kInt8}) {
      EXPECT_TRUE(HasCpuCodes(
          {.op = "QLinearMatMul",
           .inputs = {RandomTensor({23, 1}, 1, -20, 20, DType::kInt8), Tensor::Scalar(scale),
                      Code(0, DType::kInt8), RandomTensor({1, 12}, 2, -9, 9, DType::kInt8), one,
                      Code(0, DType::kInt8), one, Code(5, y_type)}}));
    }
  }
}

TEST(QLinearMatMulOnGpu, ScalesOfLinesAndMatrices) {
  const Shape of_rows = {2, 3, 5, 1};
  const Shape of_columns = {2, 3, 1, 4};
  EXPECT_TRUE(HasCpuCodes(
      {.op = "QLinearMatMul",
       .inputs = {Bytes({2, 3, 5, 8}, DType::kUint8, 1), RandomTensor(of_rows, 5, 0.1, 1),
                  Bytes(of_rows, DType::kUint8, 6), Bytes({2, 3, 8, 4}, DType::kInt8, 2),
                  RandomTensor(of_columns, 7, 0.1, 1), Bytes(of_columns, DType::kInt8, 8),
                  RandomTensor(of_rows, 9, 50, 200), Bytes(of_rows, DType::kUint8, 3)}}));
  EXPECT_TRUE(
      HasCpuCodes({.op = "QLinearMatMul",
                   .inputs = {Bytes({3, 5, 8}, DType::kUint8, 1), RandomTensor({5}, 5, 0.1, 1),
                              Bytes({5}, DType::kUint8, 6), Bytes({8, 4}, DType::kInt8, 2),
                              RandomTensor({4}, 7, 0.1, 1), Bytes({4}, DType::kInt8, 8),
                              RandomTensor({5}, 9, 50, 200), Bytes({5}, DType::kUint8, 3)}}));
}

TEST(QLinearMatMulOnGpu, FloatsOfEightBits) {
  const std::vector<DType> types = {DType::kFloat8E4M3Fn, DType::kFloat8E4M3Fnuz,
                                    DType::kFloat8E5M2,   DType::kFloat8E5M2Fnuz,
                                    DType::kInt8,         DType::kUint8};
  for (const DType a_type : types) {
    for (const DType b_type : {a_type, DType::kFloat8E4M3Fnuz, DType::kInt8}) {
      const DType y_type = a_type == DType::kInt8 ? DType::kFloat8E5M2 : a_type;
      const Tensor a = Cast(RandomTensor({7, 13}, 1, -30, 30), a_type);
      const Tensor b = Cast(RandomTensor({13, 9}, 2, -3, 3), b_type);
      EXPECT_TRUE(HasCpuCodes({.op = "QLinearMatMul",
                               .inputs = {a, Tensor::Scalar<float>(0.37f), Code(2, a_type), b,
                                          Tensor::Scalar<float>(0.5f), Code(1, b_type),
                                          Tensor::Scalar<float>(0.9f), Code(1, y_type)}}));
    }
  }
}

// Every code of a format, as a factor of 1.
TEST(QLinearMatMulOnGpu, EveryCodeOfFloats) {
  for (const DType dtype :
       {DType::kFloat8E4M3Fn, DType::kFloat8E4M3Fnuz, DType::kFloat8E5M2, DType::kFloat8E5M2Fnuz}) {
    Tensor codes = *Tensor::Zeros(dtype, {256, 1});
    for (int i = 0; i < 256; ++i) {
      static_cast<uint8_t*>(codes.raw_data())[i] = static_cast<uint8_t>(i);
    }
    const Tensor one = Tensor::Scalar<float>(1);
    EXPECT_TRUE(HasCpuCodes({.op = "QLinearMatMul",
                             .inputs = {codes, one, Code(0, dtype), Code(1, dtype).Reshaped({1, 1}),
                                        one, Code(0, dtype), one, Code(0, dtype)}}));
  }
}

// ---- Convolutions.

struct Image {
  Shape x;
  Shape w;
  Attributes attributes;
};

using Sizes = std::vector<int64_t>;

const std::vector<Image>& Images() {
  static const auto* const images = new std::vector<Image>{
      {{2, 3, 11}, {5, 3, 3}, {{"strides", Sizes{2}}, {"pads", Sizes{1, 2}}}},
      {{2, 4, 7, 9}, {6, 4, 3, 2}, {{"pads", Sizes{1, 0, 2, 1}}, {"dilations", Sizes{1, 2}}}},
      {{1, 4, 8, 8}, {6, 2, 3, 3}, {{"group", int64_t{2}}, {"auto_pad", "SAME_UPPER"}}},
      {{1, 3, 12, 12}, {70, 3, 5, 5}, {{"auto_pad", "SAME_LOWER"}}},
      {{1, 2, 4, 5, 6}, {3, 2, 2, 3, 2}, {{"pads", Sizes{0, 1, 1, 1, 0, 0}}}},
      // Windows of one element: the image itself.
      {{2, 7, 5, 4}, {9, 7, 1, 1}, {}},
      {{2, 6, 5, 5}, {10, 3, 1, 1}, {{"group", int64_t{2}}}},
      {{1, 5, 6, 6}, {4, 5, 1, 1}, {{"strides", Sizes{2, 2}}}},
      // Few channels in a group.
      {{2, 5, 9, 7}, {5, 1, 3, 3}, {{"group", int64_t{5}}, {"pads", Sizes{1, 1, 1, 1}}}},
      {{1, 6, 7, 3}, {9, 2, 2, 2}, {{"group", int64_t{3}}, {"dilations", Sizes{2, 1}}}},
      {{0, 2, 5, 5}, {3, 2, 3, 3}, {}},
      {{2, 0, 5, 5}, {3, 0, 3, 3}, {}},
  };
  return *images;
}

TEST(ConvIntegerOnGpu, WindowsOfAllKinds) {
  for (const Image& image : Images()) {
    for (const auto& [x_type, w_type] : Pairs()) {
      const Tensor x = Bytes(image.x, x_type, 1);
      const Tensor w = Bytes(image.w, w_type, 2);
      EXPECT_TRUE(
          HasCpuCodes({.op = "ConvInteger", .attributes = image.attributes, .inputs = {x, w}}));
      EXPECT_TRUE(
          HasCpuCodes({.op = "ConvInteger",
                       .attributes = image.attributes,
                       .inputs = {x, w, Code(101, x_type), Bytes({image.w.dim(0)}, w_type, 3)}}));
    }
  }
}

TEST(QLinearConvOnGpu, ScalesOfChannelsAndBias) {
  for (const Image& image : Images()) {
    const int64_t filters = image.w.dim(0);
    for (const DType y_type : {DType::kUint8, DType::kInt8}) {
      for (const bool is_per_channel : {false, true}) {
        if (is_per_channel && y_type == DType::kUint8) continue;
        const Shape scales = is_per_channel ? Shape{filters} : Shape{};
        OpCase op_case{.op = "QLinearConv",
                       .attributes = image.attributes,
                       .inputs = {Bytes(image.x, DType::kUint8, 1), Tensor::Scalar<float>(0.013f),
                                  Code(101, DType::kUint8), Bytes(image.w, DType::kInt8, 2),
                                  RandomTensor(scales, 5, 0.1, 1), Bytes(scales, DType::kInt8, 3),
                                  Tensor::Scalar<float>(2.7f), Code(31, y_type)}};
        if (is_per_channel) {
          op_case.inputs.push_back(RandomTensor({filters}, 6, -30000, 30000, DType::kInt32));
        }
        EXPECT_TRUE(HasCpuCodes(op_case));
      }
    }
  }
}

// Halves go to even before the zero point is added.
TEST(QLinearConvOnGpu, Halves) {
  const Tensor one = Tensor::Scalar<float>(1);
  EXPECT_TRUE(HasCpuCodes(
      {.op = "QLinearConv",
       .inputs = {RandomTensor({1, 1, 61}, 1, -50, 50, DType::kInt8), Tensor::Scalar<float>(0.5f),
                  Code(0, DType::kInt8), Filled({1, 1, 1}, 1), one, Code(0, DType::kInt8), one,
                  Code(7, DType::kInt8)}}));
}

TEST(ConvIntegerOnGpu, RefusesWhatItCannot) {
  EXPECT_TRUE(ExpectErrorOnEmulatedGpu({.op = "ConvInteger",
                                        .inputs = {Bytes({1, 1, 2, 2, 2, 2}, DType::kInt8, 1),
                                                   Bytes({1, 1, 1, 1, 1, 1}, DType::kInt8, 2)}},
                                       absl::StatusCode::kUnimplemented,
                                       {"ConvInteger", "at most 3 image axes"}));
  EXPECT_TRUE(ExpectErrorOnEmulatedGpu(
      {.op = "ConvInteger",
       .inputs = {Bytes({1, 1, 5}, DType::kInt8, 1), Bytes({3, 1, 2}, DType::kInt8, 2),
                  Code(0, DType::kInt8), Bytes({2}, DType::kInt8, 3)}},
      absl::StatusCode::kInvalidArgument, {"ConvInteger", "2 elements, expected 1 or 3"}));
}

}  // namespace
}  // namespace weft::testing
