// ArgMax, ArgMin, Hardmax, TopK, CumSum, CumProd and CumProdGrad.
#include <limits>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "ops/testing/emulator/gpu_op_tester.h"
#include "ops/testing/op_tester.h"
#include "ops/testing/test_tensors.h"

namespace weft::testing {
namespace {

constexpr DType kNumbers[] = {DType::kFloat32, DType::kFloat64, DType::kFloat16, DType::kBfloat16,
                              DType::kInt8,    DType::kInt16,   DType::kInt32,   DType::kInt64,
                              DType::kUint8,   DType::kUint16,  DType::kUint32,  DType::kUint64};

TEST(CudaArgExtreme, OfEveryAxis) {
  for (const char* op : {"ArgMax", "ArgMin"}) {
    for (const Shape& shape : {Shape{5, 7, 3}, Shape{3, 2, 300}, Shape{3, 9, 8}}) {
      for (const int64_t axis : {0, 1, 2}) {
        EXPECT_TRUE(CheckOnEmulatedGpu(
            {.op = op, .attributes = {{"axis", axis}}, .inputs = {RandomTensor(shape, 4)}}));
      }
    }
    EXPECT_TRUE(
        CheckOnEmulatedGpu({.op = op, .inputs = {RandomTensor({8209}, 4)}}, {.of_magnitude = 0}));
  }
}

TEST(CudaArgExtreme, OfEqualOnesTheFirstOrTheLast) {
  for (const char* op : {"ArgMax", "ArgMin"}) {
    for (const int64_t last : {0, 1}) {
      for (const DType dtype : kNumbers) {
        EXPECT_TRUE(CheckOnEmulatedGpu({.op = op,
                                        .attributes = {{"axis", int64_t{1}},
                                                       {"select_last_index", last},
                                                       {"keepdims", int64_t{0}}},
                                        .inputs = {RandomTensor({6, 16}, 5, 0, 3, dtype)}},
                                       {.of_magnitude = 0}, 1));
      }
    }
  }
}

TEST(CudaArgExtreme, TheFirstNanBeatsAll) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const Tensor x = Tensor::Of<float>({5}, std::vector<float>{1, 9, nan, 3, nan});
  for (const char* op : {"ArgMax", "ArgMin"}) {
    const auto outputs = RunOnEmulatedGpu({.op = op, .inputs = {x}});
    ASSERT_TRUE(outputs.ok()) << outputs.status();
    EXPECT_EQ(outputs->at(0).data<int64_t>()[0], 2);
  }
}

// Whole numbers that no double tells apart, and the ends of the types with and without a sign.
template <typename T>
void ExpectOrder(const std::vector<T>& numbers, const std::vector<int64_t>& descending) {
  const auto count = static_cast<int64_t>(numbers.size());
  const Tensor x = Tensor::Of<T>({count}, numbers);
  const auto sorted =
      RunOnEmulatedGpu({.op = "TopK", .inputs = {x, Int64s({count})}, .outputs = {true, true}});
  const auto largest = RunOnEmulatedGpu({.op = "ArgMax", .inputs = {x}});
  const auto smallest = RunOnEmulatedGpu({.op = "ArgMin", .inputs = {x}});
  ASSERT_TRUE(sorted.ok() && largest.ok() && smallest.ok()) << sorted.status();
  EXPECT_EQ(largest->at(0).template data<int64_t>()[0], descending.front());
  EXPECT_EQ(smallest->at(0).template data<int64_t>()[0], descending.back());
  for (int64_t i = 0; i < count; ++i) {
    EXPECT_EQ(sorted->at(1).template data<int64_t>()[i], descending[i]);
    EXPECT_EQ(sorted->at(0).template data<T>()[i], numbers[descending[i]]);
  }
}

TEST(CudaArgExtreme, OrdersTheEndsOfWholeTypes) {
  constexpr uint64_t kTop = uint64_t{1} << 63;
  ExpectOrder<uint64_t>({kTop - 1, ~uint64_t{0}, 0, kTop, ~uint64_t{0} - 1}, {1, 4, 3, 0, 2});
  constexpr int64_t kHigh = std::numeric_limits<int64_t>::max();
  ExpectOrder<int64_t>({-1, kHigh - 1, -kHigh - 1, kHigh, 0}, {3, 1, 4, 0, 2});
  ExpectOrder<int16_t>({-1, 32767, -32768, 0}, {1, 3, 0, 2});
  ExpectOrder<uint16_t>({65535, 0, 32768, 32767}, {0, 2, 3, 1});
}

TEST(CudaHardmax, OneAtTheFirstLargest) {
  for (const DType dtype : {DType::kFloat32, DType::kFloat64, DType::kFloat16, DType::kBfloat16}) {
    for (const int64_t axis : {0, 1, -1}) {
      EXPECT_TRUE(CheckOnEmulatedGpu({.op = "Hardmax",
                                      .attributes = {{"axis", axis}},
                                      .inputs = {RandomTensor({3, 5, 8}, 6, 0, 4, dtype)}},
                                     {.of_magnitude = 0}, 1));
    }
  }
  EXPECT_TRUE(CheckOnEmulatedGpu({.op = "Hardmax", .inputs = {RandomTensor({2, 1031}, 6)}}));
}

OpCase TopK(const Shape& shape, int64_t k, int64_t axis, int64_t largest,
            DType dtype = DType::kFloat32) {
  return {.op = "TopK",
          .attributes = {{"axis", axis}, {"largest", largest}},
          .inputs = {RandomTensor(shape, 7, 0, 50, dtype), Int64s({k})},
          .outputs = {true, true}};
}

TEST(CudaTopK, SortsShortLines) {
  for (const int64_t largest : {0, 1}) {
    EXPECT_TRUE(CheckOnEmulatedGpu(TopK({3, 5, 7}, 3, 1, largest), {.of_magnitude = 0}));
    EXPECT_TRUE(CheckOnEmulatedGpu(TopK({2, 300}, 17, -1, largest), {.of_magnitude = 0}, 1));
    EXPECT_TRUE(CheckOnEmulatedGpu(TopK({4, 1}, 1, -1, largest), {.of_magnitude = 0}));
    for (const DType dtype : kNumbers) {
      EXPECT_TRUE(CheckOnEmulatedGpu(TopK({2, 9}, 9, -1, largest, dtype), {.of_magnitude = 0}, 1));
    }
  }
  EXPECT_TRUE(CheckOnEmulatedGpu(TopK({3, 5}, 0, 1, 1)));
}

TEST(CudaTopK, SelectsFromLongLines) {
  EXPECT_TRUE(CheckOnEmulatedGpu(TopK({2, 2049}, 3, -1, 1), {.of_magnitude = 0}, 1));
  EXPECT_TRUE(CheckOnEmulatedGpu(TopK({2053, 2}, 2, 0, 0), {.of_magnitude = 0}, 1));
  EXPECT_TRUE(ExpectErrorOnEmulatedGpu(TopK({1, 2049}, 257, -1, 1),
                                       absl::StatusCode::kUnimplemented,
                                       {"K 257 of 2049 elements", "at most 256"}));
}

OpCase Cumulative(const char* op, const Shape& shape, int64_t axis, int64_t exclusive,
                  int64_t reverse, DType dtype = DType::kFloat32) {
  return {.op = op,
          .attributes = {{"exclusive", exclusive}, {"reverse", reverse}},
          .inputs = {RandomTensor(shape, 8, 0.7, 1.4, dtype), Tensor::Scalar<int64_t>(axis)}};
}

TEST(CudaCumulative, EveryAxisAndDirection) {
  for (const char* op : {"CumSum", "CumProd"}) {
    for (const int64_t exclusive : {0, 1}) {
      for (const int64_t reverse : {0, 1}) {
        for (const int64_t axis : {0, 1, -1}) {
          EXPECT_TRUE(
              CheckOnEmulatedGpu(Cumulative(op, {3, 5, 37}, axis, exclusive, reverse), {}, 1));
        }
      }
    }
    EXPECT_TRUE(CheckOnEmulatedGpu(Cumulative(op, {2, 131}, 1, 0, 0)));
    EXPECT_TRUE(CheckOnEmulatedGpu(Cumulative(op, {0, 3}, 0, 0, 0)));
    for (const DType dtype : kNumbers) {
      EXPECT_TRUE(
          CheckOnEmulatedGpu(Cumulative(op, {2, 5}, 1, 0, 0, dtype), {.of_magnitude = 8e-3}, 1));
    }
  }
}

TEST(CudaCumulative, AScalarIsOneLine) {
  const OpCase op_case = Cumulative("CumSum", {}, -1, 0, 0);
  const auto outputs = RunOnEmulatedGpu(op_case);
  ASSERT_TRUE(outputs.ok()) << outputs.status();
  EXPECT_TRUE(TensorsNear(outputs->at(0), op_case.inputs[0]));
}

TEST(CudaCumulative, AnAxisThatThereIsNotIsAFault) {
  EXPECT_TRUE(ExpectErrorOnEmulatedGpu(Cumulative("CumSum", {3, 5}, 2, 0, 0),
                                       absl::StatusCode::kInvalidArgument, {"axis", "2"}));
}

TEST(CudaCumProdGrad, AgreesWithTheReference) {
  for (const int64_t axis : {0, 1}) {
    for (const int64_t exclusive : {0, 1}) {
      for (const DType dtype : {DType::kFloat32, DType::kFloat64, DType::kFloat16}) {
        OpCase op_case = Cumulative("CumProdGrad", {4, 9}, axis, exclusive, axis, dtype);
        op_case.domain = "ai.weft";
        op_case.inputs.insert(op_case.inputs.begin(), RandomTensor({4, 9}, 9, -1, 1, dtype));
        EXPECT_TRUE(CheckOnEmulatedGpu(
            op_case, {.of_magnitude = dtype == DType::kFloat16 ? 1e-3 : 1e-6}, 1));
      }
    }
  }
}

}  // namespace
}  // namespace weft::testing
