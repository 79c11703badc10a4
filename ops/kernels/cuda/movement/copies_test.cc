// Copies between strides on the emulated GPU: they give the bits of the CPU's kernels.
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "ops/testing/emulator/gpu_op_tester.h"
#include "ops/testing/op_tester.h"
#include "ops/testing/test_tensors.h"

namespace weft::testing {
namespace {

constexpr Tolerance kNoDifference = {.of_magnitude = 0, .absolute = 0};

::testing::AssertionResult CopiesAsCpu(const OpCase& op_case) {
  const auto expected = RunOp(op_case);
  if (!expected.ok()) return ::testing::AssertionFailure() << expected.status();
  const auto actual = RunOnEmulatedGpu(op_case);
  if (!actual.ok()) {
    return ::testing::AssertionFailure() << op_case.ToString() << ": " << actual.status();
  }
  for (size_t i = 0; i < expected->size(); ++i) {
    if (!(*expected)[i].valid()) continue;
    const auto same = TensorsNear((*actual)[i], (*expected)[i], kNoDifference);
    if (!same) return ::testing::AssertionFailure() << op_case.ToString() << ": " << same.message();
  }
  return ::testing::AssertionSuccess();
}

OpCase Transposed(const Shape& shape, std::vector<int64_t> perm, DType dtype = DType::kFloat32) {
  return {.op = "Transpose",
          .attributes = {{"perm", std::move(perm)}},
          .inputs = {Cast(RandomTensor(shape, 1, -100, 100), dtype)}};
}

const DType kWidths[] = {DType::kUint8, DType::kFloat16, DType::kFloat32, DType::kFloat64,
                         DType::kInt64};

// Elements of every size by tiles: full ones, cut ones, packs and none.
TEST(GpuTransposeTest, GoesByTiles) {
  for (const DType dtype : kWidths) {
    EXPECT_TRUE(CopiesAsCpu(Transposed({35, 67}, {1, 0}, dtype)));
    EXPECT_TRUE(CopiesAsCpu(Transposed({2, 64, 36}, {0, 2, 1}, dtype)));
    EXPECT_TRUE(CopiesAsCpu(Transposed({19, 3, 17}, {2, 1, 0}, dtype)));
  }
  EXPECT_TRUE(CopiesAsCpu(Transposed({3, 2, 17, 5, 18}, {3, 0, 4, 1, 2})));
}

// Matrices that fill tiles, in packets of 16 bytes (8 of a narrow one of 2 bytes): whole tiles, cut
// ones, several matrices, and more tiles than a band has.
TEST(GpuTransposeTest, GoesBySquaresOfPackets) {
  EXPECT_TRUE(CopiesAsCpu(Transposed({68, 132}, {1, 0}, DType::kFloat32)));
  EXPECT_TRUE(CopiesAsCpu(Transposed({2, 64, 64}, {0, 2, 1}, DType::kFloat32)));
  EXPECT_TRUE(CopiesAsCpu(Transposed({34, 17 * 32 + 6}, {1, 0}, DType::kFloat64)));
  EXPECT_TRUE(CopiesAsCpu(Transposed({136, 144}, {1, 0}, DType::kFloat16)));
  EXPECT_TRUE(CopiesAsCpu(Transposed({68, 3, 72}, {2, 1, 0}, DType::kFloat16)));
}

// Where rows stay together they are moved by up to 16 bytes; narrow matrices by elements.
TEST(GpuTransposeTest, MovesRowsAndNarrowMatrices) {
  for (const DType dtype : kWidths) {
    EXPECT_TRUE(CopiesAsCpu(Transposed({3, 7, 5, 16}, {0, 2, 1, 3}, dtype)));
    EXPECT_TRUE(CopiesAsCpu(Transposed({3, 7, 5, 3}, {2, 0, 1, 3}, dtype)));
    EXPECT_TRUE(CopiesAsCpu(Transposed({2, 131, 3}, {0, 2, 1}, dtype)));
    EXPECT_TRUE(CopiesAsCpu(Transposed({40, 17, 4}, {1, 0, 2}, dtype)));
  }
  EXPECT_TRUE(CopiesAsCpu(Transposed({2, 3, 2, 3, 2}, {4, 3, 2, 1, 0})));
  EXPECT_TRUE(CopiesAsCpu(Transposed({5, 0, 3}, {2, 0, 1})));
  EXPECT_TRUE(CopiesAsCpu(Transposed({1, 1}, {1, 0})));
  EXPECT_TRUE(CopiesAsCpu({.op = "Transpose", .inputs = {RandomTensor({3, 4, 5}, 2)}}));
}

TEST(GpuTransposeTest, RefusesPackedElements) {
  EXPECT_TRUE(ExpectErrorOnEmulatedGpu(
      {.op = "Transpose", .inputs = {*Tensor::Zeros(DType::kInt4, {2, 4})}},
      absl::StatusCode::kUnimplemented, {"int4"}));
}

TEST(GpuConcatTest, JoinsParts) {
  for (const DType dtype : kWidths) {
    for (const int64_t axis : {0, 1, 2}) {
      const auto part = [&](int64_t size, uint64_t seed) {
        Shape shape = {3, 5, 8};
        shape.set_dim(static_cast<int>(axis), size);
        return Cast(RandomTensor(shape, seed, -100, 100), dtype);
      };
      EXPECT_TRUE(CopiesAsCpu({.op = "Concat",
                               .attributes = {{"axis", axis}},
                               .inputs = {part(4, 1), part(0, 2), part(7, 3), part(16, 4)}}));
    }
  }
}

TEST(GpuSplitTest, CutsParts) {
  const Tensor x = RandomTensor({7, 12, 3}, 1);
  EXPECT_TRUE(CopiesAsCpu({.op = "Split",
                           .attributes = {{"axis", int64_t{1}}},
                           .inputs = {x, Int64s({5, 0, 4, 3})},
                           .outputs = {true, true, false, true}}));
  EXPECT_TRUE(CopiesAsCpu({.op = "Split",
                           .attributes = {{"axis", int64_t{-2}}, {"num_outputs", int64_t{3}}},
                           .inputs = {x},
                           .outputs = {true, true, true}}));
}

OpCase Sliced(const Tensor& x, const std::vector<int64_t>& starts, const std::vector<int64_t>& ends,
              const std::vector<int64_t>& axes, const std::vector<int64_t>& steps) {
  return {.op = "Slice", .inputs = {x, Int64s(starts), Int64s(ends), Int64s(axes), Int64s(steps)}};
}

TEST(GpuSliceTest, TakesPartsForwardsAndBackwards) {
  for (const DType dtype : kWidths) {
    const Tensor x = Cast(RandomTensor({9, 11, 24}, 1, -100, 100), dtype);
    EXPECT_TRUE(CopiesAsCpu(Sliced(x, {2, 8}, {7, 24}, {0, 2}, {1, 1})));
    EXPECT_TRUE(CopiesAsCpu(Sliced(x, {-1, 10}, {-10, 0}, {0, 1}, {-1, -3})));
    EXPECT_TRUE(CopiesAsCpu(Sliced(x, {23}, {-30}, {2}, {-1})));
    EXPECT_TRUE(CopiesAsCpu(Sliced(x, {5}, {5}, {1}, {1})));
  }
}

TEST(GpuSliceGradTest, PutsPartsBackAmongZeros) {
  const auto check = [](const Shape& shape, const std::vector<int64_t>& starts,
                        const std::vector<int64_t>& ends, const std::vector<int64_t>& axes,
                        const std::vector<int64_t>& steps) {
    const auto slice = RunOp(Sliced(RandomTensor(shape, 2), starts, ends, axes, steps));
    ASSERT_TRUE(slice.ok()) << slice.status();
    std::vector<int64_t> sizes(shape.dims().begin(), shape.dims().end());
    EXPECT_TRUE(CopiesAsCpu({.domain = "ai.weft",
                             .op = "SliceGrad",
                             .inputs = {slice->at(0), Int64s(sizes), Int64s(starts), Int64s(ends),
                                        Int64s(axes), Int64s(steps)}}));
  };
  check({9, 11, 24}, {2, 8}, {7, 24}, {0, 2}, {1, 1});
  check({9, 11, 7}, {-1, 10}, {-10, 0}, {0, 1}, {-1, -3});
  check({5, 7}, {0}, {7}, {1}, {1});
  check({5, 7}, {3}, {3}, {1}, {1});
}

TEST(GpuExpandTest, RepeatsElementsRowsAndTensors) {
  for (const DType dtype : kWidths) {
    const auto check = [&](const Shape& from, const std::vector<int64_t>& to) {
      EXPECT_TRUE(CopiesAsCpu(
          {.op = "Expand", .inputs = {Cast(RandomTensor(from, 1, -100, 100), dtype), Int64s(to)}}));
    };
    check({}, {67});
    check({7, 1}, {7, 64});
    check({7, 1}, {3, 7, 13});
    check({1, 16}, {5, 16});
    check({5, 1, 3}, {2, 5, 4, 3});
    check({1}, {0});
  }
}

TEST(GpuTileTest, RepeatsTensors) {
  EXPECT_TRUE(CopiesAsCpu({.op = "Tile", .inputs = {RandomTensor({3, 5}, 1), Int64s({2, 3})}}));
  EXPECT_TRUE(CopiesAsCpu({.op = "Tile", .inputs = {RandomTensor({3, 1}, 1), Int64s({1, 40})}}));
  EXPECT_TRUE(CopiesAsCpu({.op = "Tile", .inputs = {RandomTensor({3, 8}, 1), Int64s({0, 1})}}));
}

TEST(GpuDepthToSpaceTest, MovesBlocks) {
  for (const std::string mode : {"DCR", "CRD"}) {
    EXPECT_TRUE(CopiesAsCpu({.op = "DepthToSpace",
                             .attributes = {{"blocksize", int64_t{2}}, {"mode", mode}},
                             .inputs = {RandomTensor({2, 12, 3, 5}, 1)}}));
  }
  EXPECT_TRUE(CopiesAsCpu({.op = "SpaceToDepth",
                           .attributes = {{"blocksize", int64_t{3}}},
                           .inputs = {RandomTensor({2, 2, 6, 9}, 1)}}));
}

}  // namespace
}  // namespace weft::testing
