// Pools and their gradients on the emulated GPU.
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "ops/testing/emulator/gpu_op_tester.h"
#include "ops/testing/op_tester.h"
#include "ops/testing/test_tensors.h"

namespace weft::testing {
namespace {

const DType kPoolTypes[] = {DType::kFloat32, DType::kFloat64, DType::kFloat16, DType::kBfloat16};

Tolerance PoolRounding(DType dtype) {
  if (dtype == DType::kFloat16) return {.of_magnitude = 2e-3};
  if (dtype == DType::kBfloat16) return {.of_magnitude = 1.6e-2};
  return {.of_magnitude = 2e-6};
}

::testing::AssertionResult PoolsAsCpu(const OpCase& op_case,
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

struct PoolWindows {
  Shape x;
  Attributes attributes;
};

// Side by side, overlapping, padded, dilated, rounded up, and over one, two and three axes.
std::vector<PoolWindows> AllWindows() {
  using Ints = std::vector<int64_t>;
  return {
      {{2, 3, 6, 8}, {{"kernel_shape", Ints{2, 2}}, {"strides", Ints{2, 2}}}},
      {{1, 3, 9, 7},
       {{"kernel_shape", Ints{3, 3}}, {"strides", Ints{2, 2}}, {"pads", Ints{1, 1, 1, 1}}}},
      {{2, 2, 11, 10},
       {{"kernel_shape", Ints{3, 2}}, {"strides", Ints{1, 3}}, {"dilations", Ints{2, 3}}}},
      {{1, 2, 7, 8},
       {{"kernel_shape", Ints{3, 3}}, {"strides", Ints{2, 2}}, {"ceil_mode", int64_t{1}}}},
      {{3, 2, 17}, {{"kernel_shape", Ints{4}}, {"strides", Ints{3}}, {"pads", Ints{2, 1}}}},
      {{1, 2, 4, 5, 6},
       {{"kernel_shape", Ints{2, 3, 2}},
        {"strides", Ints{2, 1, 2}},
        {"pads", Ints{0, 1, 1, 1, 1, 0}}}},
      {{1, 1, 5, 5}, {{"kernel_shape", Ints{3, 3}}, {"auto_pad", std::string("SAME_UPPER")}}},
      {{0, 3, 4, 4}, {{"kernel_shape", Ints{2, 2}}}},
  };
}

TEST(GpuMaxPoolTest, TakesTheLargest) {
  for (const PoolWindows& windows : AllWindows()) {
    for (const DType dtype : kPoolTypes) {
      EXPECT_TRUE(PoolsAsCpu({.op = "MaxPool",
                              .attributes = windows.attributes,
                              .inputs = {Cast(RandomTensor(windows.x, 1), dtype)}}));
    }
    for (const int64_t by_column : {0, 1}) {
      Attributes attributes = windows.attributes;
      attributes.Set("storage_order", by_column);
      EXPECT_TRUE(PoolsAsCpu({.op = "MaxPool",
                              .attributes = attributes,
                              .inputs = {RandomTensor(windows.x, 1, -100, 100, DType::kInt8)},
                              .outputs = {true, true}}));
    }
  }
}

TEST(GpuMaxPoolTest, NanWins) {
  Tensor x = RandomTensor({1, 2, 6, 6}, 1);
  x.mutable_data<float>()[9] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_TRUE(PoolsAsCpu({.op = "MaxPool",
                          .attributes = {{"kernel_shape", std::vector<int64_t>{3, 3}}},
                          .inputs = {x},
                          .outputs = {true, true}}));
}

// Ties too: whole numbers of a few values.
TEST(GpuMaxPoolGradTest, GivesToTheFirstOfTheLargest) {
  for (const PoolWindows& windows : AllWindows()) {
    for (const DType dtype : kPoolTypes) {
      const Tensor x = Cast(RandomTensor(windows.x, 1, 0, 4, DType::kInt32), dtype);
      const auto y = RunOp({.op = "MaxPool", .attributes = windows.attributes, .inputs = {x}});
      ASSERT_TRUE(y.ok()) << y.status();
      EXPECT_TRUE(
          PoolsAsCpu({.domain = "ai.weft",
                      .op = "MaxPoolGrad",
                      .attributes = windows.attributes,
                      .inputs = {x, y->at(0), Cast(RandomTensor(y->at(0).shape(), 2), dtype)}},
                     PoolRounding(dtype)));
    }
  }
}

TEST(GpuMaxPoolGradTest, GivesToTheLastWhereNoneIsEqual) {
  Tensor x = RandomTensor({1, 1, 5, 5}, 1);
  x.mutable_data<float>()[7] = std::numeric_limits<float>::quiet_NaN();
  const Attributes attributes = {{"kernel_shape", std::vector<int64_t>{3, 3}}};
  const auto y = RunOp({.op = "MaxPool", .attributes = attributes, .inputs = {x}});
  ASSERT_TRUE(y.ok()) << y.status();
  EXPECT_TRUE(PoolsAsCpu({.domain = "ai.weft",
                          .op = "MaxPoolGrad",
                          .attributes = attributes,
                          .inputs = {x, y->at(0), RandomTensor(y->at(0).shape(), 2)}},
                         {.of_magnitude = 1e-6}));
}

TEST(GpuAveragePoolTest, AndItsGradient) {
  for (PoolWindows windows : AllWindows()) {
    for (const int64_t counts : {0, 1}) {
      windows.attributes.Set("count_include_pad", counts);
      for (const DType dtype : kPoolTypes) {
        const OpCase pool{.op = "AveragePool",
                          .attributes = windows.attributes,
                          .inputs = {Cast(RandomTensor(windows.x, 1), dtype)}};
        EXPECT_TRUE(CheckOnEmulatedGpu(pool, PoolRounding(dtype)));
        const auto y = RunOp(pool);
        ASSERT_TRUE(y.ok()) << y.status();
        const std::vector<int64_t> sizes(windows.x.dims().begin(), windows.x.dims().end());
        EXPECT_TRUE(
            PoolsAsCpu({.domain = "ai.weft",
                        .op = "AveragePoolGrad",
                        .attributes = windows.attributes,
                        .inputs = {Cast(RandomTensor(y->at(0).shape(), 2), dtype), Int64s(sizes)}},
                       PoolRounding(dtype)));
      }
    }
  }
}

TEST(GpuLpPoolTest, RaisesAndTakesRoots) {
  for (PoolWindows windows : AllWindows()) {
    for (const int64_t p : {1, 2, 3}) {
      windows.attributes.Set("p", p);
      EXPECT_TRUE(PoolsAsCpu({.op = "LpPool",
                              .attributes = windows.attributes,
                              .inputs = {RandomTensor(windows.x, 1)}},
                             {.of_magnitude = 2e-6}));
    }
  }
}

TEST(GpuGlobalPoolTest, OverSmallAndLargeImages) {
  for (const Shape& shape :
       {Shape{2, 3, 7, 7}, Shape{1, 2, 8, 16}, Shape{1, 1, 67, 64}, Shape{3, 1, 5}}) {
    for (const DType dtype : kPoolTypes) {
      const Tensor x = Cast(RandomTensor(shape, 1), dtype);
      for (const std::string op : {"GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool"}) {
        // The CPU's float32 sums are rougher than the GPU's.
        EXPECT_TRUE(op == "GlobalAveragePool"
                        ? CheckOnEmulatedGpu({.op = op, .inputs = {x}}, PoolRounding(dtype))
                        : PoolsAsCpu({.op = op, .inputs = {x}}, PoolRounding(dtype)));
      }
      Shape averages{shape.dim(0), shape.dim(1)};
      for (int d = 2; d < shape.rank(); ++d) averages.AddDim(1);
      const std::vector<int64_t> sizes(shape.dims().begin(), shape.dims().end());
      EXPECT_TRUE(PoolsAsCpu({.domain = "ai.weft",
                              .op = "GlobalAveragePoolGrad",
                              .inputs = {Cast(RandomTensor(averages, 2), dtype), Int64s(sizes)}},
                             PoolRounding(dtype)));
    }
  }
}

TEST(GpuMaxUnpoolTest, PutsElementsBack) {
  const Tensor x = RandomTensor({1, 2, 2, 3}, 1);
  const Tensor indices =
      Int64s({0, 3, 5, 13, 15, 22, 24, 27, 29, 37, 39, 46}).Reshaped({1, 2, 2, 3});
  const Attributes attributes = {{"kernel_shape", std::vector<int64_t>{2, 2}},
                                 {"strides", std::vector<int64_t>{2, 2}}};
  EXPECT_TRUE(PoolsAsCpu({.op = "MaxUnpool", .attributes = attributes, .inputs = {x, indices}}));
  EXPECT_TRUE(PoolsAsCpu(
      {.op = "MaxUnpool", .attributes = attributes, .inputs = {x, indices, Int64s({1, 2, 5, 7})}}));
  // Of several for one place the last one stays.
  const Tensor doubled = Int64s({0, 3, 0, 13, 3, 3, 24, 24, 24, 37, 39, 37}).Reshaped({1, 2, 2, 3});
  EXPECT_TRUE(PoolsAsCpu({.op = "MaxUnpool", .attributes = attributes, .inputs = {x, doubled}}));
  const Tensor wrong = Int64s({0, 3, 48, 13, 1, 2, 24, 25, 26, 37, 39, 38}).Reshaped({1, 2, 2, 3});
  EXPECT_TRUE(
      ExpectErrorOnEmulatedGpu({.op = "MaxUnpool", .attributes = attributes, .inputs = {x, wrong}},
                               absl::StatusCode::kInvalidArgument, {"MaxUnpool", "48", "2"}));
}

TEST(GpuCol2ImTest, AddsBlocks) {
  using Ints = std::vector<int64_t>;
  for (const DType dtype : {DType::kFloat32, DType::kInt32, DType::kUint8, DType::kBool}) {
    EXPECT_TRUE(PoolsAsCpu({.op = "Col2Im",
                            .attributes = {{"pads", Ints{0, 1, 1, 0}}, {"strides", Ints{1, 2}}},
                            .inputs = {Cast(RandomTensor({2, 12, 15}, 1, 0, 100), dtype),
                                       Int64s({5, 6}), Int64s({2, 3})}},
                           {.of_magnitude = 1e-6}));
  }
}

}  // namespace
}  // namespace weft::testing
