// Scatters, index tuples and caches on the emulated GPU.
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "ops/testing/emulator/gpu_op_tester.h"
#include "ops/testing/op_tester.h"
#include "ops/testing/test_tensors.h"

namespace weft::testing {
namespace {

::testing::AssertionResult ScattersAsCpu(const OpCase& op_case,
                                         const Tolerance& tolerance = {.of_magnitude = 0,
                                                                       .absolute = 0}) {
  const auto expected = RunOp(op_case);
  if (!expected.ok()) return ::testing::AssertionFailure() << expected.status();
  const auto actual = RunOnEmulatedGpu(op_case);
  if (!actual.ok()) {
    return ::testing::AssertionFailure() << op_case.ToString() << ": " << actual.status();
  }
  const auto same = TensorsNear(actual->at(0), expected->at(0), tolerance);
  if (same) return same;
  return ::testing::AssertionFailure() << op_case.ToString() << ": " << same.message();
}

// Indices in [-size, size), many of them twice.
Tensor ManyIndices(const Shape& shape, int64_t size, uint64_t seed, DType dtype = DType::kInt64) {
  return RandomTensor(shape, seed, static_cast<double>(-size), static_cast<double>(size), dtype);
}

// Whole numbers, so that sums have one result whatever the type.
Tensor Wholes(const Shape& shape, uint64_t seed, DType dtype) {
  return Cast(RandomTensor(shape, seed, 0, 4, DType::kInt32), dtype);
}

const DType kScattered[] = {DType::kFloat32, DType::kFloat64, DType::kBfloat16, DType::kFloat16,
                            DType::kInt64,   DType::kUint8,   DType::kBool};

TEST(GpuScatterElementsTest, UpdatesArriveInOrder) {
  for (const std::string reduction : {"none", "add", "mul", "max", "min"}) {
    for (const DType dtype : kScattered) {
      for (const int64_t axis : {0, 1, 2}) {
        EXPECT_TRUE(ScattersAsCpu(
            {.op = "ScatterElements",
             .attributes = {{"axis", axis}, {"reduction", reduction}},
             .inputs = {Wholes({4, 5, 4}, 1, dtype), ManyIndices({3, 3, 3}, 4, 2, DType::kInt32),
                        Wholes({3, 3, 3}, 3, dtype)}}));
      }
    }
  }
  EXPECT_TRUE(ScattersAsCpu(
      {.op = "ScatterElements",
       .inputs = {RandomTensor({37}, 1), ManyIndices({401}, 37, 2), RandomTensor({401}, 3)}}));
  EXPECT_TRUE(ScattersAsCpu(
      {.op = "ScatterElements",
       .inputs = {RandomTensor({7}, 1), Int64s({}), Tensor::Zeros(DType::kFloat32, {0}).value()}}));
}

TEST(GpuScatterElementsTest, ReportsWrongIndices) {
  EXPECT_TRUE(ExpectErrorOnEmulatedGpu(
      {.op = "ScatterElements",
       .inputs = {RandomTensor({5}, 1), Int64s({0, -6, 2}), RandomTensor({3}, 2)}},
      absl::StatusCode::kInvalidArgument, {"ScatterElements", "index", "-6", "1"}));
}

TEST(GpuGatherElementsGradTest, AddsInOrder) {
  for (const DType dtype : {DType::kFloat32, DType::kFloat64, DType::kBfloat16, DType::kFloat16}) {
    for (const int64_t axis : {0, 1}) {
      EXPECT_TRUE(ScattersAsCpu(
          {.domain = "ai.weft",
           .op = "GatherElementsGrad",
           .attributes = {{"axis", axis}},
           .inputs = {Wholes({5, 7}, 1, dtype), ManyIndices({5, 7}, 5, 2), Int64s({5, 7})}}));
    }
  }
}

TEST(GpuGatherNdTest, TakesRows) {
  for (const DType dtype : {DType::kUint8, DType::kBfloat16, DType::kFloat32, DType::kFloat64}) {
    const Tensor x = Cast(RandomTensor({3, 4, 5, 6}, 1, 0, 100), dtype);
    for (const int64_t batches : {0, 1, 2}) {
      Shape indices;
      for (int d = 0; d < batches; ++d) indices.AddDim(x.shape().dim(d));
      indices.AddDim(7);
      indices.AddDim(2);
      EXPECT_TRUE(ScattersAsCpu({.op = "GatherND",
                                 .attributes = {{"batch_dims", batches}},
                                 .inputs = {x, ManyIndices(indices, 3, 2)}}));
    }
  }
  EXPECT_TRUE(ExpectErrorOnEmulatedGpu(
      {.op = "GatherND",
       .inputs = {RandomTensor({3, 4}, 1), Int64s({0, 1, 2, 4}).Reshaped({2, 2})}},
      absl::StatusCode::kInvalidArgument, {"GatherND", "4", "3"}));
}

TEST(GpuScatterNdTest, UpdatesArriveInOrder) {
  for (const std::string reduction : {"none", "add", "mul", "max", "min"}) {
    for (const DType dtype : kScattered) {
      EXPECT_TRUE(
          ScattersAsCpu({.op = "ScatterND",
                         .attributes = {{"reduction", reduction}},
                         .inputs = {Wholes({4, 3, 5}, 1, dtype), ManyIndices({2, 9, 2}, 3, 2),
                                    Wholes({2, 9, 5}, 3, dtype)}}));
    }
  }
  EXPECT_TRUE(
      ExpectErrorOnEmulatedGpu({.op = "ScatterND",
                                .inputs = {RandomTensor({3, 4}, 1), Int64s({0, 3}).Reshaped({2, 1}),
                                           RandomTensor({2, 4}, 2)}},
                               absl::StatusCode::kInvalidArgument, {"ScatterND", "3", "1"}));
}

TEST(GpuGatherNdGradTest, AddsRows) {
  for (const DType dtype : {DType::kFloat32, DType::kFloat64, DType::kBfloat16, DType::kFloat16}) {
    EXPECT_TRUE(ScattersAsCpu({.domain = "ai.weft",
                               .op = "GatherNdGrad",
                               .attributes = {{"batch_dims", int64_t{1}}},
                               .inputs = {Wholes({2, 9, 5}, 1, dtype), ManyIndices({2, 9, 1}, 4, 2),
                                          Int64s({2, 4, 5})}}));
  }
}

TEST(GpuTensorScatterTest, WritesIntoACache) {
  for (const DType dtype : {DType::kFloat32, DType::kFloat16}) {
    for (const std::string mode : {"linear", "circular"}) {
      EXPECT_TRUE(ScattersAsCpu({.op = "TensorScatter",
                                 .attributes = {{"mode", mode}},
                                 .inputs = {Cast(RandomTensor({2, 3, 7, 5}, 1), dtype),
                                            Cast(RandomTensor({2, 3, 4, 5}, 2), dtype),
                                            Int64s({3, mode == "linear" ? 0 : 16})}}));
    }
  }
  EXPECT_TRUE(ExpectErrorOnEmulatedGpu(
      {.op = "TensorScatter",
       .inputs = {RandomTensor({2, 7, 5}, 1), RandomTensor({2, 4, 5}, 2), Int64s({3, 4})}},
      absl::StatusCode::kInvalidArgument, {"TensorScatter", "write index", "4"}));
}

TEST(GpuPlaceSamplesTest, FillsUpWithZeros) {
  for (const DType dtype : {DType::kFloat32, DType::kBfloat16}) {
    EXPECT_TRUE(ScattersAsCpu({.domain = "ai.weft",
                               .op = "PlaceSamples",
                               .attributes = {{"samples", int64_t{7}}},
                               .inputs = {Cast(RandomTensor({3, 5}, 1), dtype)}}));
  }
}

}  // namespace
}  // namespace weft::testing
