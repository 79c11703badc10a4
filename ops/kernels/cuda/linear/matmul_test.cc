// Matrix products on the emulated GPU, with a library that computes them there.
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "graph/attribute.h"
#include "gtest/gtest.h"
#include "ops/kernels/cuda/linear/testing/recording_blas_lt.h"
#include "ops/testing/emulator/gpu_op_tester.h"
#include "ops/testing/op_tester.h"
#include "ops/testing/test_tensors.h"

namespace weft::testing {
namespace {

const std::string kWeft("ai.weft");
const std::vector<DType> kRealTypes = {DType::kFloat32, DType::kFloat64, DType::kFloat16,
                                       DType::kBfloat16};
const std::vector<DType> kWholeTypes = {DType::kInt32, DType::kInt64, DType::kUint32,
                                        DType::kUint64};

Tolerance ToleranceOf(DType dtype) {
  if (dtype == DType::kBfloat16) return {.of_magnitude = 1e-2};
  if (dtype == DType::kFloat16) return {.of_magnitude = 1e-3};
  return {};
}

OpCase MatMulCase(Shape a, Shape b, DType dtype = DType::kFloat32) {
  const double low = dtype == DType::kUint32 || dtype == DType::kUint64 ? 0 : -9;
  const double scale = IsFloatingPoint(dtype) ? 1 : 9;
  return {.op = "MatMul",
          .inputs = {RandomTensor(a, 1, scale == 1 ? -1 : low, scale, dtype),
                     RandomTensor(b, 2, scale == 1 ? -1 : low, scale, dtype)}};
}

OpCase TransposingCase(Shape a, Shape b, bool trans_a, bool trans_b,
                       DType dtype = DType::kFloat32) {
  OpCase op_case = MatMulCase(a, b, dtype);
  op_case.domain = kWeft;
  op_case.attributes = {{"transA", int64_t{trans_a}}, {"transB", int64_t{trans_b}}};
  return op_case;
}

OpCase GemmCase(std::vector<Tensor> inputs, Attributes attributes = {}) {
  return {.op = "Gemm", .attributes = std::move(attributes), .inputs = std::move(inputs)};
}

// The calls of the runs of `op_case`, which agrees with the reference.
std::vector<RecordingBlasLt::Call> CallsOf(const OpCase& op_case) {
  RecordingBlasLt::Get().TakeCalls();
  EXPECT_TRUE(CheckOnEmulatedGpu(op_case));
  return RecordingBlasLt::Get().TakeCalls();
}

TEST(CudaMatMulTest, AgreesForAllWaysToBroadcast) {
  const std::vector<std::pair<Shape, Shape>> shapes = {
      {{17, 33}, {33, 5}},
      {{4, 17, 13}, {13, 5}},
      {{4, 3, 7}, {4, 7, 5}},
      {{2, 3, 4, 7}, {2, 3, 7, 5}},
      {{2, 1, 4, 7}, {1, 3, 7, 5}},
      {{2, 3, 4, 7}, {3, 7, 5}},
      {{4, 7}, {3, 7, 5}},
      {{2, 1, 2, 1, 3, 2}, {3, 1, 2, 2, 3}},
      {{1, 1}, {1, 1}},
  };
  for (const auto& [a, b] : shapes) EXPECT_TRUE(CheckOnEmulatedGpu(MatMulCase(a, b)));
}

TEST(CudaMatMulTest, AgreesForVectors) {
  EXPECT_TRUE(CheckOnEmulatedGpu(MatMulCase({13}, {13})));
  EXPECT_TRUE(CheckOnEmulatedGpu(MatMulCase({13}, {13, 5})));
  EXPECT_TRUE(CheckOnEmulatedGpu(MatMulCase({7, 13}, {13})));
  EXPECT_TRUE(CheckOnEmulatedGpu(MatMulCase({13}, {2, 3, 13, 5})));
  EXPECT_TRUE(CheckOnEmulatedGpu(MatMulCase({2, 3, 7, 13}, {13})));
}

TEST(CudaMatMulTest, AgreesForAllTypes) {
  for (const DType dtype : kRealTypes) {
    EXPECT_TRUE(CheckOnEmulatedGpu(MatMulCase({3, 7, 11}, {11, 5}, dtype), ToleranceOf(dtype)));
    EXPECT_TRUE(CheckOnEmulatedGpu(MatMulCase({3, 7, 11}, {3, 11, 5}, dtype), ToleranceOf(dtype)));
  }
  for (const DType dtype : kWholeTypes) {
    EXPECT_TRUE(CheckOnEmulatedGpu(MatMulCase({3, 17, 19}, {19, 18}, dtype)));
    EXPECT_TRUE(CheckOnEmulatedGpu(MatMulCase({2, 1, 3, 5}, {1, 3, 5, 4}, dtype)));
    EXPECT_TRUE(CheckOnEmulatedGpu(MatMulCase({5}, {5}, dtype)));
  }
}

TEST(CudaMatMulTest, AgreesForBothTranspositions) {
  for (const bool trans_a : {false, true}) {
    for (const bool trans_b : {false, true}) {
      const Shape a = trans_a ? Shape{3, 11, 7} : Shape{3, 7, 11};
      const Shape b = trans_b ? Shape{5, 11} : Shape{11, 5};
      EXPECT_TRUE(CheckOnEmulatedGpu(TransposingCase(a, b, trans_a, trans_b)));
      EXPECT_TRUE(CheckOnEmulatedGpu(TransposingCase(a, b, trans_a, trans_b, DType::kInt32)));
      const Shape row = trans_a ? Shape{11, 1} : Shape{1, 11};
      const Shape column = trans_b ? Shape{2, 1, 11} : Shape{2, 11, 1};
      EXPECT_TRUE(CheckOnEmulatedGpu(TransposingCase(row, column, trans_a, trans_b)));
    }
  }
}

TEST(CudaMatMulTest, AgreesWithoutElements) {
  for (const DType dtype : {DType::kFloat32, DType::kFloat16, DType::kInt64}) {
    EXPECT_TRUE(CheckOnEmulatedGpu(MatMulCase({3, 0}, {0, 5}, dtype)));
    EXPECT_TRUE(CheckOnEmulatedGpu(MatMulCase({2, 3, 0}, {2, 0, 5}, dtype)));
    EXPECT_TRUE(CheckOnEmulatedGpu(MatMulCase({0, 4}, {4, 5}, dtype)));
    EXPECT_TRUE(CheckOnEmulatedGpu(MatMulCase({3, 4}, {4, 0}, dtype)));
    EXPECT_TRUE(CheckOnEmulatedGpu(MatMulCase({0, 3, 4}, {0, 4, 5}, dtype)));
    EXPECT_TRUE(CheckOnEmulatedGpu(MatMulCase({0}, {0}, dtype)));
  }
}

TEST(CudaMatMulTest, FoldsABatchOfRowsIntoOneProduct) {
  const auto calls = CallsOf(MatMulCase({2, 3, 4, 7}, {7, 5}));
  if (TestsOnARealGpu()) return;  // NVIDIA's library counts no calls
  ASSERT_FALSE(calls.empty());
  for (const auto& call : calls) {
    EXPECT_EQ(call.spec.m, 24);
    EXPECT_EQ(call.spec.batches, 1);
  }
}

TEST(CudaMatMulTest, MakesABatchOneStridedCall) {
  const auto calls = CallsOf(MatMulCase({2, 3, 4, 7}, {2, 3, 7, 5}));
  if (TestsOnARealGpu()) return;  // NVIDIA's library counts no calls
  ASSERT_FALSE(calls.empty());
  for (const auto& call : calls) {
    EXPECT_EQ(call.spec.batches, 6);
    EXPECT_EQ(call.spec.a_batch, 28);
    EXPECT_EQ(call.spec.b_batch, 35);
    EXPECT_EQ(call.spec.y_batch, 20);
  }
}

// The second matrix of a loop begins 28 floats behind the first: at a multiple of 16 bytes.
TEST(CudaMatMulTest, SaysHowOperandsOfALoopAreAligned) {
  const auto calls = CallsOf(MatMulCase({2, 1, 4, 7}, {1, 3, 7, 5}));
  if (TestsOnARealGpu()) return;  // NVIDIA's library counts no calls
  ASSERT_FALSE(calls.empty());
  for (const auto& call : calls) {
    EXPECT_EQ(call.spec.batches, 3);
    EXPECT_EQ(call.spec.a_alignment, 16);
    EXPECT_EQ(call.spec.b_alignment, 64);
    EXPECT_EQ(call.spec.y_alignment, 16);
  }
}

TEST(CudaMatMulTest, UsesTf32OnlyWhereItIsAllowed) {
  for (const auto& call : CallsOf(MatMulCase({5, 7}, {7, 3}))) EXPECT_FALSE(call.spec.tf32);
  OpCase allowed = MatMulCase({5, 7}, {7, 3});
  allowed.tf32 = true;
  RecordingBlasLt::Get().TakeCalls();
  EXPECT_TRUE(CheckOnEmulatedGpu(allowed, {.of_magnitude = 2e-3}));
  const auto calls = RecordingBlasLt::Get().TakeCalls();
  if (TestsOnARealGpu()) return;  // NVIDIA's library counts no calls
  ASSERT_FALSE(calls.empty());
  for (const auto& call : calls) EXPECT_TRUE(call.spec.tf32);
}

TEST(CudaReduceBatchTest, AgreesWithOneProductOfAllRows) {
  const OpCase weights{.domain = kWeft,
                       .op = "MatMulReduceBatch",
                       .inputs = {RandomTensor({2, 3, 5, 7}, 1), RandomTensor({2, 3, 5, 4}, 2)}};
  const auto calls = CallsOf(weights);
  if (TestsOnARealGpu()) return;  // NVIDIA's library counts no calls
  ASSERT_FALSE(calls.empty());
  for (const auto& call : calls) {
    EXPECT_EQ(call.spec.k, 30);
    EXPECT_TRUE(call.spec.trans_a);
  }
}

TEST(CudaReduceBatchTest, AgreesForTypesAndShapes) {
  for (const DType dtype : kRealTypes) {
    const OpCase rows{
        .domain = kWeft,
        .op = "MatMulReduceBatch",
        .inputs = {RandomTensor({13, 7}, 1, -1, 1, dtype), RandomTensor({13, 3}, 2, -1, 1, dtype)}};
    EXPECT_TRUE(CheckOnEmulatedGpu(rows, ToleranceOf(dtype)));
  }
  for (const Shape& shape : {Shape{7}, Shape{0, 7}, Shape{3, 0}, Shape{1, 1}}) {
    const OpCase same{.domain = kWeft,
                      .op = "MatMulReduceBatch",
                      .inputs = {RandomTensor(shape, 1), RandomTensor(shape, 2)}};
    EXPECT_TRUE(CheckOnEmulatedGpu(same));
  }
}

TEST(CudaGemmTest, AgreesForEveryLayoutOfC) {
  for (const Shape& c :
       {Shape{}, Shape{1}, Shape{5}, Shape{1, 5}, Shape{7, 1}, Shape{7, 5}, Shape{1, 1}}) {
    for (const float beta : {1.0f, 0.5f}) {
      const Attributes attributes = {{"alpha", 1.5f}, {"beta", beta}};
      for (const DType dtype : kRealTypes) {
        EXPECT_TRUE(CheckOnEmulatedGpu(
            GemmCase({RandomTensor({7, 11}, 1, -1, 1, dtype),
                      RandomTensor({11, 5}, 2, -1, 1, dtype), RandomTensor(c, 3, -1, 1, dtype)},
                     attributes),
            ToleranceOf(dtype)));
      }
    }
  }
}

TEST(CudaGemmTest, AgreesForRowsAndColumnsOfOne) {
  for (const auto& [m, n] : std::vector<std::pair<int64_t, int64_t>>{{1, 5}, {7, 1}, {1, 1}}) {
    for (const Shape& c : {Shape{n}, Shape{m, n}, Shape{m, 1}, Shape{}}) {
      EXPECT_TRUE(CheckOnEmulatedGpu(
          GemmCase({RandomTensor({m, 4}, 1), RandomTensor({4, n}, 2), RandomTensor(c, 3)}, {})));
    }
  }
}

TEST(CudaGemmTest, AgreesForWholeNumbersAndTranspositions) {
  const Attributes attributes = {{"transA", int64_t{1}}, {"transB", int64_t{1}}};
  EXPECT_TRUE(CheckOnEmulatedGpu(GemmCase(
      {RandomTensor({11, 7}, 1), RandomTensor({5, 11}, 2), RandomTensor({5}, 3)}, attributes)));
  for (const DType dtype : kWholeTypes) {
    EXPECT_TRUE(CheckOnEmulatedGpu(
        GemmCase({RandomTensor({11, 7}, 1, 0, 9, dtype), RandomTensor({5, 11}, 2, 0, 9, dtype),
                  RandomTensor({7, 1}, 3, 0, 9, dtype)},
                 attributes)));
  }
}

TEST(CudaGemmTest, AgreesWithoutElements) {
  const Attributes half = {{"beta", 0.5f}};
  EXPECT_TRUE(CheckOnEmulatedGpu(
      GemmCase({RandomTensor({3, 0}, 1), RandomTensor({0, 5}, 2), RandomTensor({5}, 3)}, half)));
  EXPECT_TRUE(CheckOnEmulatedGpu(GemmCase({RandomTensor({3, 0}, 1), RandomTensor({0, 5}, 2)})));
  EXPECT_TRUE(CheckOnEmulatedGpu(
      GemmCase({RandomTensor({0, 4}, 1), RandomTensor({4, 5}, 2), RandomTensor({5}, 3)}, half)));
}

// A NaN in C does not count when beta is zero.
TEST(CudaGemmTest, DoesNotReadCWhenBetaIsZero) {
  const Tensor c = Tensor::Of<float>({2}, {std::nanf(""), 1});
  const OpCase product = GemmCase(
      {Tensor::Of<float>({1, 1}, {3}), Tensor::Of<float>({1, 2}, {2, -0.5f}), c}, {{"beta", 0.0f}});
  const auto outputs = RunOnEmulatedGpu(product);
  ASSERT_TRUE(outputs.ok()) << outputs.status();
  EXPECT_TRUE(TensorsNear((*outputs)[0], Tensor::Of<float>({1, 2}, {6, -1.5f})));
}

TEST(CudaGemmTest, LeavesARowOfCToTheLibrary) {
  const auto calls =
      CallsOf(GemmCase({RandomTensor({3, 4}, 1), RandomTensor({4, 2}, 2), RandomTensor({2}, 3)}));
  if (TestsOnARealGpu()) return;  // NVIDIA's library counts no calls
  ASSERT_FALSE(calls.empty());
  for (const auto& call : calls) {
    EXPECT_TRUE(call.spec.has_bias);
    EXPECT_EQ(call.spec.beta, 0);
  }
}

TEST(CudaGemmTest, AddsCItselfWhereTheLibraryHasNoBias) {
  RecordingBlasLt::Get().RefuseBias(true);
  const auto calls =
      CallsOf(GemmCase({RandomTensor({3, 4}, 1), RandomTensor({4, 2}, 2), RandomTensor({2}, 3)}));
  RecordingBlasLt::Get().RefuseBias(false);
  if (TestsOnARealGpu()) return;  // NVIDIA's library counts no calls
  ASSERT_FALSE(calls.empty());
  for (const auto& call : calls) {
    EXPECT_FALSE(call.spec.has_bias);
    EXPECT_EQ(call.spec.beta, 1);
  }
}

TEST(CudaGemmTest, GivesAWholeCToTheLibrary) {
  const auto calls =
      CallsOf(GemmCase({RandomTensor({3, 4}, 1), RandomTensor({4, 2}, 2), RandomTensor({3, 2}, 3)},
                       {{"beta", 2.0f}}));
  if (TestsOnARealGpu()) return;  // NVIDIA's library counts no calls
  ASSERT_FALSE(calls.empty());
  for (const auto& call : calls) {
    EXPECT_NE(call.operands.c, nullptr);
    EXPECT_NE(call.operands.c, call.operands.y);
    EXPECT_EQ(call.spec.beta, 2);
  }
}

}  // namespace
}  // namespace weft::testing
