// Gather, its gradient and GatherElements on the emulated GPU.
#include <vector>

#include "gtest/gtest.h"
#include "ops/testing/emulator/gpu_op_tester.h"
#include "ops/testing/op_tester.h"
#include "ops/testing/test_tensors.h"

namespace weft::testing {
namespace {

::testing::AssertionResult GathersAsCpu(const OpCase& op_case) {
  const auto expected = RunOp(op_case);
  if (!expected.ok()) return ::testing::AssertionFailure() << expected.status();
  const auto actual = RunOnEmulatedGpu(op_case);
  if (!actual.ok()) {
    return ::testing::AssertionFailure() << op_case.ToString() << ": " << actual.status();
  }
  return TensorsNear(actual->at(0), expected->at(0), {.of_magnitude = 0, .absolute = 0});
}

// Indices in [-size, size).
Tensor RandomIndices(const Shape& shape, int64_t size, uint64_t seed, DType dtype = DType::kInt64) {
  return RandomTensor(shape, seed, static_cast<double>(-size), static_cast<double>(size), dtype);
}

TEST(GpuGatherTest, TakesRowsOfAnySize) {
  for (const DType dtype : {DType::kUint8, DType::kBfloat16, DType::kFloat32, DType::kFloat64}) {
    for (const DType index : {DType::kInt32, DType::kInt64}) {
      for (const int64_t axis : {0, 1, 2}) {
        EXPECT_TRUE(GathersAsCpu({.op = "Gather",
                                  .attributes = {{"axis", axis}},
                                  .inputs = {Cast(RandomTensor({7, 5, 12}, 1, 0, 100), dtype),
                                             RandomIndices({3, 11}, 5, 2, index)}}));
      }
    }
    EXPECT_TRUE(GathersAsCpu(
        {.op = "Gather",
         .inputs = {Cast(RandomTensor({67, 3}, 1, 0, 100), dtype), RandomIndices({401}, 67, 2)}}));
  }
  EXPECT_TRUE(GathersAsCpu({.op = "Gather", .inputs = {RandomTensor({5, 3}, 1), Int64s({})}}));
  EXPECT_TRUE(GathersAsCpu(
      {.op = "Gather", .inputs = {RandomTensor({5}, 1), Tensor::Scalar<int64_t>(-5)}}));
}

TEST(GpuGatherTest, ReportsWrongIndices) {
  for (const int64_t wrong : {5, -6}) {
    EXPECT_TRUE(ExpectErrorOnEmulatedGpu(
        {.op = "Gather", .inputs = {RandomTensor({5, 3}, 1), Int64s({0, 4, wrong, 1})}},
        absl::StatusCode::kInvalidArgument, {"Gather", "index", std::to_string(wrong), "2"}));
  }
}

OpCase GatherGradCase(const Shape& table, const Tensor& indices, int64_t axis, DType dtype,
                      uint64_t seed) {
  Shape dy;
  for (int d = 0; d < axis; ++d) dy.AddDim(table.dim(d));
  for (const int64_t dim : indices.shape().dims()) dy.AddDim(dim);
  for (int d = static_cast<int>(axis) + 1; d < table.rank(); ++d) dy.AddDim(table.dim(d));
  std::vector<int64_t> sizes(table.dims().begin(), table.dims().end());
  return {.domain = "ai.weft",
          .op = "GatherGrad",
          .attributes = {{"axis", axis}},
          .inputs = {Cast(RandomTensor(dy, seed), dtype), indices, Int64s(sizes)}};
}

// With packets and without; rows within a run of indices, over two and over many of them.
TEST(GpuGatherGradTest, SumsRows) {
  for (const DType dtype : {DType::kFloat32, DType::kFloat64, DType::kFloat16, DType::kBfloat16}) {
    const Tolerance tolerance{.of_magnitude = dtype == DType::kFloat16    ? 1e-3
                                              : dtype == DType::kBfloat16 ? 8e-3
                                                                          : 1e-6};
    EXPECT_TRUE(CheckOnEmulatedGpu(
        GatherGradCase({13, 8}, RandomIndices({101}, 13, 1), 0, dtype, 2), tolerance));
    EXPECT_TRUE(CheckOnEmulatedGpu(
        GatherGradCase({3, 7}, RandomIndices({2, 97}, 3, 1, DType::kInt32), 0, dtype, 3),
        tolerance));
    EXPECT_TRUE(CheckOnEmulatedGpu(
        GatherGradCase({3, 50, 4}, RandomIndices({40}, 50, 1), 1, dtype, 4), tolerance));
    EXPECT_TRUE(CheckOnEmulatedGpu(
        GatherGradCase({2, 5}, RandomIndices({3, 33}, 5, 1), 1, dtype, 5), tolerance));
  }
  EXPECT_TRUE(CheckOnEmulatedGpu(GatherGradCase({9, 4}, Int64s({}), 0, DType::kFloat32, 1)));
  EXPECT_TRUE(CheckOnEmulatedGpu(
      GatherGradCase({9, 4}, *Tensor::Zeros(DType::kInt64, {200}), 0, DType::kFloat32, 1)));
}

// Few of many rows are named; those of the others become zeros, whatever lay in the memory. Without
// packets, with packets of each width, and with several tables.
TEST(GpuGatherGradTest, ClearsRowsThatNoIndexNames) {
  for (const int64_t inner : {1, 3, 4, 32}) {
    EXPECT_TRUE(CheckOnEmulatedGpu(
        GatherGradCase({1031, inner}, Int64s({1030, 7, -1, 7, 500}), 0, DType::kFloat32, 1)));
    EXPECT_TRUE(CheckOnEmulatedGpu(
        GatherGradCase({3, 67, inner}, Int64s({0, 66, 13}), 1, DType::kBfloat16, 2)));
  }
}

TEST(GpuGatherGradTest, ReportsWrongIndices) {
  EXPECT_TRUE(ExpectErrorOnEmulatedGpu(
      GatherGradCase({5, 3}, Int64s({0, 7, 1}), 0, DType::kFloat32, 1),
      absl::StatusCode::kInvalidArgument, {"GatherGrad", "index", "7", "1"}));
}

TEST(GpuGatherElementsTest, TakesElements) {
  for (const DType dtype : {DType::kUint8, DType::kBfloat16, DType::kFloat32, DType::kFloat64}) {
    for (const int64_t axis : {0, 1, 2}) {
      Shape indices = {3, 4, 5};
      indices.set_dim(static_cast<int>(axis), 9);
      EXPECT_TRUE(GathersAsCpu({.op = "GatherElements",
                                .attributes = {{"axis", axis}},
                                .inputs = {Cast(RandomTensor({4, 4, 6}, 1, 0, 100), dtype),
                                           RandomIndices(indices, 4, 2)}}));
    }
  }
  EXPECT_TRUE(ExpectErrorOnEmulatedGpu(
      {.op = "GatherElements", .inputs = {RandomTensor({5}, 1), Int64s({0, 5})}},
      absl::StatusCode::kInvalidArgument, {"GatherElements", "index", "5", "1"}));
}

}  // namespace
}  // namespace weft::testing
