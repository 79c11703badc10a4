// BatchNormalization, its gradient, LpNormalization and LRN.
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "ops/testing/emulator/gpu_op_tester.h"
#include "ops/testing/op_tester.h"
#include "ops/testing/test_tensors.h"

namespace weft::testing {
namespace {

const std::string kWeft(kWeftDomain);

OpCase Batch(const Shape& x, int64_t training, std::vector<bool> outputs = {true},
             DType dtype = DType::kFloat32, DType parameters = DType::kFloat32) {
  const Shape channels{x.dim(1)};
  return {.op = "BatchNormalization",
          .attributes = {{"epsilon", 1e-3f}, {"momentum", 0.8f}, {"training_mode", training}},
          .inputs = {Cast(RandomTensor(x, 1, -3, 5), dtype),
                     Cast(RandomTensor(channels, 2, 0.5, 2), parameters),
                     Cast(RandomTensor(channels, 3), parameters),
                     Cast(RandomTensor(channels, 4), parameters),
                     Cast(RandomTensor(channels, 5, 0.5, 2), parameters)},
          .outputs = std::move(outputs)};
}

OpCase BatchGrad(const Shape& x, int64_t training, std::vector<bool> outputs,
                 DType dtype = DType::kFloat32) {
  const Shape channels{x.dim(1)};
  OpCase op_case{.domain = kWeft,
                 .op = "BatchNormalizationGrad",
                 .attributes = {{"epsilon", 1e-3f}, {"training_mode", training}},
                 .inputs = {Cast(RandomTensor(x, 1), dtype), Cast(RandomTensor(x, 2, -3, 5), dtype),
                            Cast(RandomTensor(channels, 3, 0.5, 2), dtype)},
                 .outputs = std::move(outputs)};
  if (training == 0) {
    op_case.inputs.push_back(Cast(RandomTensor(channels, 4), dtype));
    op_case.inputs.push_back(Cast(RandomTensor(channels, 5, 0.5, 2), dtype));
  }
  return op_case;
}

TEST(CudaBatchNormalization, GivenStatistics) {
  for (const Shape& shape : {Shape{3, 5}, Shape{2, 3, 4, 4}, Shape{2, 3, 7, 5}, Shape{0, 3, 2}}) {
    EXPECT_TRUE(CheckOnEmulatedGpu(Batch(shape, 0)));
  }
}

TEST(CudaBatchNormalization, StatisticsOfTheSamples) {
  for (const Shape& shape :
       {Shape{7, 5}, Shape{9, 8}, Shape{3, 2, 8, 8}, Shape{3, 4, 7, 5}, Shape{2, 2, 1031}}) {
    EXPECT_TRUE(CheckOnEmulatedGpu(Batch(shape, 1, {true, true, true})));
  }
  EXPECT_TRUE(CheckOnEmulatedGpu(Batch({7, 5}, 1, {true, false, true})));
  EXPECT_TRUE(CheckOnEmulatedGpu(Batch({0, 3, 2}, 1, {true, true, true})));
}

TEST(CudaBatchNormalization, KeepsSmallVariancesOfLargeMeans) {
  OpCase op_case = Batch({64, 2}, 1, {true, true, true});
  op_case.inputs[0] = RandomTensor({64, 2}, 1, 1000, 1001);
  // What float32 can say of distances from the mean.
  EXPECT_TRUE(CheckOnEmulatedGpu(op_case, {.of_magnitude = 1e-4}));
}

TEST(CudaBatchNormalization, OtherTypes) {
  for (const DType dtype : {DType::kFloat16, DType::kBfloat16}) {
    for (const DType parameters : {dtype, DType::kFloat32}) {
      for (const int64_t training : {0, 1}) {
        EXPECT_TRUE(CheckOnEmulatedGpu(Batch({4, 3, 8}, training, {true}, dtype, parameters),
                                       {.of_magnitude = 2e-2}));
      }
    }
  }
  EXPECT_TRUE(
      CheckOnEmulatedGpu(Batch({4, 3, 6}, 1, {true, true, true}, DType::kFloat64, DType::kFloat64),
                         {.of_magnitude = 1e-13}));
}

TEST(CudaBatchNormalizationGrad, OfBothKindsOfStatistics) {
  for (const int64_t training : {0, 1}) {
    for (const Shape& shape : {Shape{7, 5}, Shape{3, 2, 4, 4}, Shape{3, 4, 7, 5}}) {
      for (const std::vector<bool>& outputs :
           {std::vector<bool>{true, true, true}, {true, false, false}, {false, true, true}}) {
        EXPECT_TRUE(CheckOnEmulatedGpu(BatchGrad(shape, training, outputs), {}, 1));
      }
    }
    EXPECT_TRUE(CheckOnEmulatedGpu(BatchGrad({2, 2, 1031}, training, {true, true, true})));
    EXPECT_TRUE(
        CheckOnEmulatedGpu(BatchGrad({4, 3, 8}, training, {true, true, true}, DType::kFloat16),
                           {.of_magnitude = 2e-2}));
    EXPECT_TRUE(
        CheckOnEmulatedGpu(BatchGrad({4, 3, 6}, training, {true, true, true}, DType::kFloat64),
                           {.of_magnitude = 1e-13}));
  }
}

TEST(CudaLpNormalization, BothNormsAndEveryAxis) {
  for (const int64_t p : {1, 2}) {
    for (const int64_t axis : {0, 1, -1}) {
      for (const DType dtype : {DType::kFloat32, DType::kFloat16}) {
        EXPECT_TRUE(CheckOnEmulatedGpu({.op = "LpNormalization",
                                        .attributes = {{"axis", axis}, {"p", p}},
                                        .inputs = {RandomTensor({3, 5, 8}, 1, -1, 1, dtype)}},
                                       {.of_magnitude = dtype == DType::kFloat16 ? 1e-3 : 1e-6},
                                       1));
      }
    }
  }
  const Tensor zeros = RandomTensor({2, 4}, 1, 0, 1e-30, DType::kInt32);
  EXPECT_TRUE(
      CheckOnEmulatedGpu({.op = "LpNormalization", .inputs = {Cast(zeros, DType::kFloat32)}}));
}

TEST(CudaLrn, WindowsOfChannels) {
  for (const int64_t size : {1, 2, 3, 5, 9}) {
    EXPECT_TRUE(CheckOnEmulatedGpu({.op = "LRN",
                                    .attributes = {{"size", size}, {"alpha", 0.3f}, {"bias", 2.0f}},
                                    .inputs = {RandomTensor({2, 5, 3, 2}, 1, -3, 3)}}));
  }
  EXPECT_TRUE(CheckOnEmulatedGpu({.op = "LRN",
                                  .attributes = {{"size", int64_t{3}}},
                                  .inputs = {RandomTensor({2, 5, 3}, 1, -3, 3, DType::kBfloat16)}},
                                 {.of_magnitude = 1e-2}));
}

}  // namespace
}  // namespace weft::testing
