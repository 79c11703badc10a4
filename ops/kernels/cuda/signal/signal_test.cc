// DFT and STFT on the emulated GPU, against the definition and the CPU's kernels in float64.
#include <cmath>
#include <cstdint>
#include <numbers>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "ops/testing/emulator/gpu_op_tester.h"
#include "ops/testing/op_tester.h"
#include "ops/testing/test_tensors.h"

namespace weft::testing {
namespace {

OpCase DftCase(const Shape& shape, DType dtype = DType::kFloat32) {
  return {.op = "DFT", .inputs = {Cast(RandomTensor(shape, 1), dtype)}};
}

Tolerance ToleranceOf(DType dtype) {
  if (dtype == DType::kFloat64) return {.of_magnitude = 1e-13};
  if (dtype == DType::kFloat16) return {.of_magnitude = 1e-3};
  if (dtype == DType::kBfloat16) return {.of_magnitude = 1e-2};
  return {};
}

// Products of small factors, primes above 5 and their products, of real and complex lines.
TEST(DftOnGpu, LengthsOfAllKinds) {
  for (const int64_t n : {1, 2, 3, 4, 5, 7, 8, 30, 31, 128}) {
    for (const int64_t parts : {1, 2}) {
      for (const int64_t inverse : {0, 1}) {
        if (inverse == 1 && parts == 1) continue;
        OpCase op_case = DftCase({3, n, parts});
        op_case.attributes = {{"inverse", inverse}};
        EXPECT_TRUE(CheckOnEmulatedGpu(op_case)) << n;
      }
    }
  }
}

TEST(DftOnGpu, Types) {
  for (const DType dtype : {DType::kFloat64, DType::kFloat16, DType::kBfloat16}) {
    for (const int64_t n : {30, 31}) {
      EXPECT_TRUE(CheckOnEmulatedGpu(DftCase({2, n, 2}, dtype), ToleranceOf(dtype)));
    }
  }
}

// A onesided transform keeps the first half, its inverse mirrors it.
TEST(DftOnGpu, Onesided) {
  for (const int64_t n : {2, 5, 6, 13, 64}) {
    OpCase forward = DftCase({3, n, 1});
    forward.attributes = {{"onesided", int64_t{1}}};
    EXPECT_TRUE(CheckOnEmulatedGpu(forward)) << n;
    OpCase back = DftCase({3, n, 2});
    back.attributes = {{"onesided", int64_t{1}}, {"inverse", int64_t{1}}};
    EXPECT_TRUE(CheckOnEmulatedGpu(back)) << n;
  }
}

TEST(DftOnGpu, AxesAndOtherLengths) {
  for (const int64_t axis : {0, 1, 2, -2}) {
    for (const int64_t parts : {1, 2}) {
      OpCase op_case = DftCase({5, 6, 7, parts});
      op_case.inputs.push_back(Tensor());
      op_case.inputs.push_back(Tensor::Scalar<int64_t>(axis));
      EXPECT_TRUE(CheckOnEmulatedGpu(op_case)) << axis;
      for (const int64_t length : {4, 11}) {
        for (const int64_t onesided : {0, 1}) {
          if (onesided == 1 && parts == 2) continue;
          op_case.inputs[1] = Tensor::Scalar<int64_t>(length);
          op_case.attributes = {{"onesided", onesided}};
          EXPECT_TRUE(CheckOnEmulatedGpu(op_case)) << axis << " of " << length;
        }
      }
      op_case.attributes = {};
    }
  }
  OpCase inverse = DftCase({3, 4, 2});
  inverse.inputs.push_back(Tensor::Scalar<int64_t>(9));
  inverse.attributes = {{"onesided", int64_t{1}}, {"inverse", int64_t{1}}};
  EXPECT_TRUE(CheckOnEmulatedGpu(inverse));
}

TEST(DftOnGpu, NoElementsAndManyLines) {
  EXPECT_TRUE(CheckOnEmulatedGpu(DftCase({0, 8, 2})));
  EXPECT_TRUE(CheckOnEmulatedGpu(DftCase({1100, 4, 1})));
  OpCase across = DftCase({4, 1100, 1});
  across.inputs.push_back(Tensor());
  across.inputs.push_back(Tensor::Scalar<int64_t>(0));
  EXPECT_TRUE(CheckOnEmulatedGpu(across));
}

// Beyond shared memory: by way of the workspace. The truth is a few waves, whose spectrum is known.
TEST(DftOnGpu, LongLines) {
  for (const int64_t n : {8000, 1031}) {
    for (const int64_t inverse : {0, 1}) {
      std::vector<float> x, y(4 * n, 0.0f);
      for (const int64_t frequency : {3, 500}) {
        for (int64_t i = 0; i < n; ++i) {
          const double angle = 2 * std::numbers::pi * static_cast<double>(frequency * i % n) /
                               static_cast<double>(n);
          x.push_back(static_cast<float>(std::cos(angle)));
          x.push_back(static_cast<float>(std::sin(angle)));
        }
        const int64_t bin = inverse == 1 ? n - frequency : frequency;
        y[(frequency == 3 ? 0 : 2 * n) + 2 * bin] = inverse == 1 ? 1.0f : static_cast<float>(n);
      }
      const auto actual = RunOnEmulatedGpu({.op = "DFT",
                                            .attributes = {{"inverse", inverse}},
                                            .inputs = {Tensor::Of<float>({2, n, 2}, x)}});
      ASSERT_TRUE(actual.ok()) << actual.status();
      EXPECT_TRUE(
          TensorsNear(actual->at(0), Tensor::Of<float>({2, n, 2}, y), {.of_magnitude = 2e-6}))
          << n;
    }
  }
}

// ---- STFT.

struct Frames {
  int64_t signal;
  int64_t step;
  int64_t window;  // 0: none
  int64_t length;  // 0: not given
};

TEST(StftOnGpu, FramesOfAllKinds) {
  for (const Frames& f : std::vector<Frames>{
           {40, 8, 16, 16}, {41, 7, 13, 0}, {40, 3, 0, 12}, {23, 1, 0, 0}, {64, 64, 64, 64}}) {
    for (const int64_t parts : {1, 2}) {
      for (const int64_t onesided : {0, 1}) {
        if (onesided == 1 && parts == 2) continue;
        for (const DType dtype : {DType::kFloat32, DType::kFloat64, DType::kBfloat16}) {
          OpCase op_case{.op = "STFT",
                         .attributes = {{"onesided", onesided}},
                         .inputs = {Cast(RandomTensor({2, f.signal, parts}, 1), dtype),
                                    Tensor::Scalar<int64_t>(f.step), Tensor(), Tensor()}};
          if (f.window > 0) op_case.inputs[2] = Cast(RandomTensor({f.window}, 2, 0, 1), dtype);
          if (f.length > 0) op_case.inputs[3] = Tensor::Scalar<int64_t>(f.length);
          const auto actual = RunOnEmulatedGpu(op_case);
          ASSERT_TRUE(actual.ok()) << actual.status();
          const auto expected = RunOp(InFloat64(op_case));
          ASSERT_TRUE(expected.ok()) << expected.status();
          EXPECT_TRUE(TensorsNear(actual->at(0), Cast(expected->at(0), dtype), ToleranceOf(dtype)))
              << op_case.ToString();
        }
      }
    }
  }
}

TEST(StftOnGpu, NoSignals) {
  const auto y = RunOnEmulatedGpu(
      {.op = "STFT",
       .inputs = {RandomTensor({0, 20, 1}, 1), Tensor::Scalar<int64_t>(4), RandomTensor({8}, 2)}});
  ASSERT_TRUE(y.ok()) << y.status();
  EXPECT_EQ(y->at(0).shape(), (Shape{0, 4, 5, 2}));
}

}  // namespace
}  // namespace weft::testing
