#include <cmath>

#include "gtest/gtest.h"
#include "ops/testing/op_tester.h"
#include "ops/testing/test_tensors.h"

namespace weft::testing {
namespace {

OpCase Dft(Shape shape, Attributes attributes, Tensor length = {}, Tensor axis = {}) {
  return {.op = "DFT",
          .attributes = std::move(attributes),
          .inputs = {RandomTensor(std::move(shape), 1), std::move(length), std::move(axis)}};
}
const Attributes kOnesided = {{"onesided", int64_t{1}}};
const Attributes kInverse = {{"inverse", int64_t{1}}};
const Attributes kInverseOnesided = {{"inverse", int64_t{1}}, {"onesided", int64_t{1}}};

TEST(DftTest, AgreesWithReferenceForEveryLength) {
  for (const int64_t n : {1, 2, 3, 5, 8, 12, 17, 31, 64, 97}) {
    EXPECT_TRUE(CheckKernelAgainstReference(Dft({2, n, 1}, {}), {.of_magnitude = 1e-6})) << n;
    EXPECT_TRUE(CheckKernelAgainstReference(Dft({2, n, 1}, kOnesided), {.of_magnitude = 1e-6}));
    EXPECT_TRUE(CheckKernelAgainstReference(Dft({n, 2}, kInverse), {.of_magnitude = 1e-6}));
  }
}

TEST(DftTest, AgreesWithReferenceAlongAnyAxis) {
  for (const int64_t axis : {0, 1, 2, -2, -4}) {
    for (const int64_t length : {3, 4, 9}) {
      for (const Attributes& attributes : {Attributes(), kOnesided, kInverse, kInverseOnesided}) {
        EXPECT_TRUE(CheckKernelAgainstReference(
            Dft({3, 5, 4, 2}, attributes, Tensor::Scalar<int64_t>(length),
                Tensor::Scalar<int64_t>(axis)),
            {.of_magnitude = 1e-6}))
            << axis << " " << length;
      }
    }
  }
}

TEST(DftTest, OnesidedInverseOfUnsaidLengthIsEven) {
  EXPECT_TRUE(
      CheckKernelAgainstReference(Dft({2, 5, 2}, kInverseOnesided), {.of_magnitude = 1e-6}));
}

TEST(DftTest, RefusesWhatDoesNotFit) {
  EXPECT_TRUE(ExpectError(Dft({2, 5, 3}, {}), absl::StatusCode::kInvalidArgument,
                          {"last axis of 1 (real) or 2 (complex)"}));
  EXPECT_TRUE(ExpectError(Dft({2, 5, 2}, {}, Tensor::Scalar<int64_t>(0)),
                          absl::StatusCode::kInvalidArgument, {"dft_length is 0"}));
}

TEST(StftTest, EachFrameIsATransform) {
  const Tensor signal = RandomTensor({1, 20, 1}, 1);
  const Tensor window = RandomTensor({7}, 2);
  const auto stft = RunOp({.op = "STFT", .inputs = {signal, Tensor::Scalar<int64_t>(4), window}});
  ASSERT_TRUE(stft.ok()) << stft.status();
  ASSERT_EQ((*stft)[0].shape(), (Shape{1, 4, 4, 2}));
  for (int64_t frame = 0; frame < 4; ++frame) {
    std::vector<float> piece;
    for (int64_t i = 0; i < 7; ++i) {
      piece.push_back(signal.data<float>()[frame * 4 + i] * window.data<float>()[i]);
    }
    const auto dft = RunOp(
        {.op = "DFT", .attributes = kOnesided, .inputs = {Tensor::Of<float>({1, 7, 1}, piece)}});
    ASSERT_TRUE(dft.ok()) << dft.status();
    const Tensor own = (*stft)[0].Reshaped({4, 4, 2}).Rows(frame, frame + 1);
    EXPECT_TRUE(TensorsNear(own, (*dft)[0], {.of_magnitude = 1e-6}));
  }
}

TEST(WindowTest, MatchesTheFormula) {
  for (const int64_t periodic : {0, 1}) {
    const auto hann = RunOp({.op = "HannWindow",
                             .attributes = {{"periodic", periodic}},
                             .inputs = {Tensor::Scalar<int64_t>(10)}});
    ASSERT_TRUE(hann.ok()) << hann.status();
    for (int i = 0; i < 10; ++i) {
      const double sine = std::sin(i * std::acos(-1.0) / (periodic == 1 ? 10 : 9));
      EXPECT_NEAR((*hann)[0].data<float>()[i], sine * sine, 1e-6);
    }
  }
}

TEST(WindowTest, TakesOtherTypes) {
  const auto window = RunOp({.op = "BlackmanWindow",
                             .attributes = {{"output_datatype", int64_t{11}}},
                             .inputs = {Tensor::Scalar<int32_t>(5)}});
  ASSERT_TRUE(window.ok()) << window.status();
  EXPECT_EQ((*window)[0].dtype(), DType::kFloat64);
}

TEST(MelWeightMatrixTest, ColumnsAreTriangles) {
  const auto mel = RunOp({.op = "MelWeightMatrix",
                          .inputs = {Tensor::Scalar<int64_t>(8), Tensor::Scalar<int64_t>(16),
                                     Tensor::Scalar<int64_t>(8192), Tensor::Scalar<float>(0),
                                     Tensor::Scalar<float>(4096)}});
  ASSERT_TRUE(mel.ok()) << mel.status();
  EXPECT_EQ((*mel)[0].shape(), (Shape{9, 8}));
  for (int column = 0; column < 8; ++column) {
    float largest = 0;
    for (int row = 0; row < 9; ++row) {
      largest = std::max(largest, (*mel)[0].data<float>()[row * 8 + column]);
    }
    EXPECT_EQ(largest, 1.0f);
  }
}

}  // namespace
}  // namespace weft::testing
