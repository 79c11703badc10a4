// Operators that fill, cut out or mirror, on the emulated GPU.
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "ops/testing/emulator/gpu_op_tester.h"
#include "ops/testing/op_tester.h"
#include "ops/testing/test_tensors.h"

namespace weft::testing {
namespace {

::testing::AssertionResult FillsAsCpu(const OpCase& op_case,
                                      const Tolerance& tolerance = {.of_magnitude = 0,
                                                                    .absolute = 0}) {
  const auto expected = RunOp(op_case);
  if (!expected.ok()) return ::testing::AssertionFailure() << expected.status();
  const auto actual = RunOnEmulatedGpu(op_case);
  if (!actual.ok()) {
    return ::testing::AssertionFailure() << op_case.ToString() << ": " << actual.status();
  }
  for (size_t i = 0; i < expected->size(); ++i) {
    if (!(*expected)[i].valid()) continue;
    const auto same = TensorsNear((*actual)[i], (*expected)[i], tolerance);
    if (!same) return ::testing::AssertionFailure() << op_case.ToString() << ": " << same.message();
  }
  return ::testing::AssertionSuccess();
}

const DType kSizes[] = {DType::kUint8, DType::kBfloat16, DType::kFloat32, DType::kFloat64};

TEST(GpuTriluTest, ClearsOneSide) {
  for (const DType dtype : kSizes) {
    const Tensor x = Cast(RandomTensor({2, 13, 17}, 1, 1, 100), dtype);
    for (const int64_t upper : {0, 1}) {
      EXPECT_TRUE(FillsAsCpu({.op = "Trilu", .attributes = {{"upper", upper}}, .inputs = {x}}));
      for (const int64_t k : {-20, -3, 5, 400}) {
        EXPECT_TRUE(FillsAsCpu({.op = "Trilu",
                                .attributes = {{"upper", upper}},
                                .inputs = {x, Tensor::Scalar<int64_t>(k)}}));
      }
    }
  }
  EXPECT_TRUE(FillsAsCpu({.op = "Trilu", .inputs = {*Tensor::Zeros(DType::kFloat32, {0, 3, 5})}}));
}

TEST(GpuEyeLikeTest, WritesOnes) {
  for (const int64_t k : {-2, 0, 3, 30}) {
    EXPECT_TRUE(FillsAsCpu(
        {.op = "EyeLike", .attributes = {{"k", k}}, .inputs = {RandomTensor({7, 11}, 1)}}));
    EXPECT_TRUE(FillsAsCpu({.op = "EyeLike",
                            .attributes = {{"k", k}, {"dtype", int64_t{9}}},  // bool
                            .inputs = {RandomTensor({7, 11}, 1)}}));
  }
}

TEST(GpuShapeTest, WritesSizes) {
  const Tensor x = RandomTensor({2, 3, 5, 7}, 1);
  EXPECT_TRUE(FillsAsCpu({.op = "Shape", .inputs = {x}}));
  EXPECT_TRUE(FillsAsCpu(
      {.op = "Shape", .attributes = {{"start", int64_t{-3}}, {"end", int64_t{3}}}, .inputs = {x}}));
  EXPECT_TRUE(FillsAsCpu({.op = "Shape", .inputs = {Tensor::Scalar<float>(1)}}));
  EXPECT_TRUE(FillsAsCpu({.op = "Size", .inputs = {x}}));
}

TEST(GpuConstantOfShapeTest, RepeatsOneElement) {
  EXPECT_TRUE(FillsAsCpu({.op = "ConstantOfShape", .inputs = {Int64s({3, 67})}}));
  for (const DType dtype : kSizes) {
    const Tensor value = Cast(RandomTensor({1}, 3, 1, 100), dtype);
    EXPECT_TRUE(FillsAsCpu(
        {.op = "ConstantOfShape", .attributes = {{"value", value}}, .inputs = {Int64s({5, 7})}}));
  }
  EXPECT_TRUE(FillsAsCpu({.op = "ConstantOfShape", .inputs = {Int64s({0, 4})}}));
}

TEST(GpuRangeTest, CountsInSteps) {
  const auto scalar = [](double value, DType dtype) {
    return Cast(Tensor::Scalar<double>(value), dtype);
  };
  for (const DType dtype : {DType::kFloat32, DType::kFloat64, DType::kInt32, DType::kInt64}) {
    EXPECT_TRUE(FillsAsCpu(
        {.op = "Range", .inputs = {scalar(3, dtype), scalar(320, dtype), scalar(3, dtype)}},
        {.of_magnitude = 1e-6}));
    EXPECT_TRUE(FillsAsCpu(
        {.op = "Range", .inputs = {scalar(3, dtype), scalar(-20, dtype), scalar(-2, dtype)}}));
  }
}

TEST(GpuOneHotTest, TurnsOneElementOn) {
  const Tensor depth = Tensor::Scalar<int64_t>(6);
  const Tensor indices = Int64s({0, 5, -1, -6, 6, -7, 3, 2, 1, 0, 4, 5});
  for (const DType dtype : kSizes) {
    for (const int64_t axis : {-1, 0, 1}) {
      EXPECT_TRUE(
          FillsAsCpu({.op = "OneHot",
                      .attributes = {{"axis", axis}},
                      .inputs = {indices.Reshaped({3, 4}), depth, Cast(Int64s({2, 5}), dtype)}}));
    }
  }
  EXPECT_TRUE(FillsAsCpu(
      {.op = "OneHot", .inputs = {Cast(indices, DType::kFloat32), depth, Int64s({0, 1})}}));
}

TEST(GpuPadTest, FillsWhatLiesBeyond) {
  for (const std::string mode : {"constant", "reflect", "edge", "wrap"}) {
    for (const DType dtype : kSizes) {
      const Tensor x = Cast(RandomTensor({2, 3, 5, 7}, 1, 1, 100), dtype);
      EXPECT_TRUE(FillsAsCpu({.op = "Pad",
                              .attributes = {{"mode", mode}},
                              .inputs = {x, Int64s({0, 0, 2, 1, 0, 0, 1, 9})}}));
      EXPECT_TRUE(FillsAsCpu({.op = "Pad",
                              .attributes = {{"mode", mode}},
                              .inputs = {x, Int64s({-1, 3, 0, -2, 0, 0, -1, 0})}}));
    }
    EXPECT_TRUE(FillsAsCpu({.op = "Pad",
                            .attributes = {{"mode", mode}},
                            .inputs = {RandomTensor({4, 1}, 1), Int64s({3, 2, 4, 5})}}));
  }
  EXPECT_TRUE(FillsAsCpu({.op = "Pad",
                          .inputs = {RandomTensor({4, 5}, 1), Int64s({3, 2}),
                                     Tensor::Scalar<float>(7), Int64s({-1})}}));
  EXPECT_TRUE(FillsAsCpu(
      {.op = "Pad", .inputs = {*Tensor::Zeros(DType::kFloat32, {0, 2}), Int64s({2, 0, 1, 0})}}));
}

TEST(GpuPadTest, RefusesToMirrorNothing) {
  EXPECT_TRUE(ExpectErrorOnEmulatedGpu(
      {.op = "Pad",
       .attributes = {{"mode", "reflect"}},
       .inputs = {*Tensor::Zeros(DType::kFloat32, {0, 2}), Int64s({2, 0, 1, 0})}},
      absl::StatusCode::kInvalidArgument, {"none to pad with"}));
}

TEST(GpuCenterCropPadTest, KeepsTheMiddle) {
  EXPECT_TRUE(FillsAsCpu(
      {.op = "CenterCropPad", .inputs = {RandomTensor({5, 8, 3}, 1), Int64s({8, 5, 3})}}));
}

TEST(GpuReverseSequenceTest, TurnsBeginningsRound) {
  const Tensor x = RandomTensor({5, 4, 3}, 1);
  for (const int64_t batch : {0, 1}) {
    const Tensor lengths = batch == 0 ? Int64s({4, 0, 1, 3, 2}) : Int64s({5, 0, 1, 3});
    EXPECT_TRUE(FillsAsCpu({.op = "ReverseSequence",
                            .attributes = {{"batch_axis", batch}, {"time_axis", 1 - batch}},
                            .inputs = {x, lengths}}));
  }
  EXPECT_TRUE(ExpectErrorOnEmulatedGpu(
      {.op = "ReverseSequence",
       .attributes = {{"batch_axis", int64_t{1}}, {"time_axis", int64_t{0}}},
       .inputs = {x, Int64s({5, 0, 6, 3})}},
      absl::StatusCode::kInvalidArgument, {"ReverseSequence", "sequence_lens", "6", "2"}));
}

TEST(GpuRunningTermTest, WeighsByTheMicroBatch) {
  for (const DType dtype : {DType::kFloat32, DType::kFloat64, DType::kFloat16, DType::kBfloat16}) {
    for (const int64_t size : {0, 5, 1031}) {
      EXPECT_TRUE(FillsAsCpu({.domain = "ai.weft",
                              .op = "RunningTerm",
                              .attributes = {{"decay", 0.9f}, {"share", 0.1f}},
                              .inputs = {Cast(RandomTensor({size}, 1), dtype)},
                              .outputs = {true, true}},
                             {.of_magnitude = 1e-6}));
    }
  }
}

}  // namespace
}  // namespace weft::testing
