#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "ops/testing/emulator/gpu_op_tester.h"
#include "ops/testing/op_tester.h"
#include "ops/testing/test_tensors.h"

namespace weft::testing {
namespace {

class CudaReduceTest : public ::testing::TestWithParam<const char*> {
 protected:
  OpCase Case(const Shape& shape, std::optional<std::vector<int64_t>> axes, bool keepdims = true,
              DType dtype = DType::kFloat32) const {
    // The logarithm of a sum wants positive numbers; a product, such that it does not overflow.
    const double width = std::string(GetParam()) == "ReduceProd" ? 0.01 : 0.4;
    OpCase op_case{.op = GetParam(),
                   .attributes = {{"keepdims", int64_t{keepdims}}},
                   .inputs = {RandomTensor(shape, 1, 1 - width, 1 + width, dtype)}};
    if (axes.has_value()) op_case.inputs.push_back(Int64s(*axes));
    return op_case;
  }
  Tolerance Near() const {
    // A product's error grows with its elements.
    return {.of_magnitude = std::string(GetParam()) == "ReduceProd" ? 1e-5 : 1e-6};
  }
};

TEST_P(CudaReduceTest, EverySetOfAxes) {
  for (int mask = 0; mask < 16; ++mask) {
    std::vector<int64_t> axes;
    for (int d = 0; d < 4; ++d) {
      if (mask >> d & 1) axes.push_back(d % 2 == 0 ? d : d - 4);
    }
    EXPECT_TRUE(CheckOnEmulatedGpu(Case({2, 3, 5, 4}, axes, mask % 2 == 0), Near()));
  }
}

TEST_P(CudaReduceTest, ShapesBesideTheWidthsOfPacketsAndBlocks) {
  for (const Shape& shape :
       {Shape{}, Shape{1}, Shape{3, 8}, Shape{3, 31}, Shape{37, 12}, Shape{2, 1031}, Shape{5, 1}}) {
    EXPECT_TRUE(CheckOnEmulatedGpu(Case(shape, std::nullopt, false), Near()));
    if (shape.rank() == 0) continue;
    EXPECT_TRUE(CheckOnEmulatedGpu(Case(shape, std::vector<int64_t>{-1}), Near()));
    EXPECT_TRUE(CheckOnEmulatedGpu(Case(shape, std::vector<int64_t>{0}, false), Near()));
  }
}

TEST_P(CudaReduceTest, LongFoldsAreCutIntoChunks) {
  EXPECT_TRUE(CheckOnEmulatedGpu(Case({8209}, std::nullopt), Near()));
  EXPECT_TRUE(CheckOnEmulatedGpu(Case({1, 24576}, std::nullopt), Near(), 1));
  EXPECT_TRUE(CheckOnEmulatedGpu(Case({1031, 8}, std::vector<int64_t>{0}), Near()));
}

TEST_P(CudaReduceTest, NoElements) {
  if (std::string(GetParam()) == "ReduceMean") GTEST_SKIP() << "NaN, see below";
  EXPECT_TRUE(CheckOnEmulatedGpu(Case({0, 3}, std::vector<int64_t>{0}), Near()));
  EXPECT_TRUE(CheckOnEmulatedGpu(Case({0, 3}, std::vector<int64_t>{1}), Near()));
}

TEST_P(CudaReduceTest, OtherFloats) {
  for (const DType dtype : {DType::kFloat64, DType::kFloat16, DType::kBfloat16}) {
    for (const int64_t axis : {0, 1}) {
      EXPECT_TRUE(CheckOnEmulatedGpu(Case({6, 16}, std::vector<int64_t>{axis}, true, dtype),
                                     {.of_magnitude = dtype == DType::kFloat64 ? 1e-14 : 8e-3}));
    }
  }
}

TEST_P(CudaReduceTest, WholeNumbers) {
  for (const DType dtype : {DType::kInt8, DType::kInt16, DType::kInt32, DType::kInt64,
                            DType::kUint8, DType::kUint16, DType::kUint32, DType::kUint64}) {
    const OpCase op_case{.op = GetParam(),
                         .attributes = {{"keepdims", int64_t{0}}},
                         .inputs = {RandomTensor({5, 3}, 3, 1, 3, dtype), Int64s({1})}};
    EXPECT_TRUE(CheckOnEmulatedGpu(op_case, {.of_magnitude = 0}, 1));
  }
}

INSTANTIATE_TEST_SUITE_P(Ops, CudaReduceTest,
                         ::testing::Values("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin",
                                           "ReduceProd", "ReduceL1", "ReduceL2", "ReduceSumSquare",
                                           "ReduceLogSum", "ReduceLogSumExp"),
                         [](const auto& info) { return std::string(info.param); });

TEST(CudaReduceSum, SignedNumbersAndTheirMagnitudes) {
  for (const char* op : {"ReduceSum", "ReduceL1", "ReduceMax", "ReduceMin", "ReduceMean"}) {
    for (const DType dtype : {DType::kInt8, DType::kInt64, DType::kFloat32}) {
      EXPECT_TRUE(CheckOnEmulatedGpu(
          {.op = op, .inputs = {RandomTensor({7, 5}, 2, -9, 9, dtype), Int64s({0})}},
          {.of_magnitude = 1e-6}, 1));
    }
  }
}

// Of 64 bits inside, of their own type outside.
TEST(CudaReduceMax, OfNoElementsIsTheEndOfTheType) {
  const auto ends = [](auto zero) {
    using T = decltype(zero);
    for (const char* op : {"ReduceMax", "ReduceMin"}) {
      const auto outputs = RunOnEmulatedGpu(
          {.op = op, .inputs = {Tensor::Of<T>({0, 2}, std::vector<T>{}), Int64s({0})}});
      ASSERT_TRUE(outputs.ok()) << outputs.status();
      const T end = std::string(op) == "ReduceMax" ? std::numeric_limits<T>::lowest()
                                                   : std::numeric_limits<T>::max();
      EXPECT_EQ(outputs->at(0).template data<T>()[0], end) << op << " of " << sizeof(T) << " bytes";
      EXPECT_EQ(outputs->at(0).template data<T>()[1], end) << op << " of " << sizeof(T) << " bytes";
    }
  };
  ends(int8_t{});
  ends(int16_t{});
  ends(int32_t{});
  ends(int64_t{});
  ends(uint8_t{});
  ends(uint16_t{});
  ends(uint32_t{});
  ends(uint64_t{});
}

TEST(CudaReduceMean, OfNothingIsNan) {
  const auto outputs =
      RunOnEmulatedGpu({.op = "ReduceMean", .inputs = {RandomTensor({0, 2}, 1), Int64s({0})}});
  ASSERT_TRUE(outputs.ok()) << outputs.status();
  EXPECT_TRUE(std::isnan(outputs->at(0).data<float>()[0]));
}

TEST(CudaReduceMax, NanWins) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const Tensor x = Tensor::Of<float>({2, 3}, std::vector<float>{1, nan, 2, 3, 1, 2});
  const auto outputs = RunOnEmulatedGpu(
      {.op = "ReduceMax", .attributes = {{"keepdims", int64_t{0}}}, .inputs = {x, Int64s({1})}});
  ASSERT_TRUE(outputs.ok()) << outputs.status();
  EXPECT_TRUE(TensorsNear(outputs->at(0), Tensor::Of<float>({2}, std::vector<float>{nan, 3})));
}

TEST(CudaReduceMax, OfBoolsIsOr) {
  const Tensor x = Cast(Int64s({0, 0, 1, 0}).Reshaped({2, 2}), DType::kBool);
  EXPECT_TRUE(CheckOnEmulatedGpu({.op = "ReduceMax", .inputs = {x, Int64s({1})}}));
}

TEST(CudaReduceLogSumExp, LargeNumbersDoNotOverflow) {
  const Tensor x = Tensor::Of<float>({3}, std::vector<float>{500, 499, -900});
  const auto outputs = RunOnEmulatedGpu({.op = "ReduceLogSumExp", .inputs = {x}});
  ASSERT_TRUE(outputs.ok()) << outputs.status();
  EXPECT_NEAR(outputs->at(0).data<float>()[0], 500 + std::log1p(std::exp(-1.0)), 1e-4);
}

TEST(CudaReduceMean, ShardsDivideByTheGlobalCount) {
  const OpCase op_case{.op = "ReduceMean", .inputs = {RandomTensor({2, 4}, 1), Int64s({0, 1})}};
  EmulatedRunOptions options;
  options.input_slices = {{Shape{6, 4}, {2, 0}}, {Shape{2}, {0}}};
  options.output_slices = {{Shape{1, 1}, {0, 0}}};
  const auto sharded = RunOnEmulatedGpu(op_case, options);
  const auto whole = RunOnEmulatedGpu(op_case);
  ASSERT_TRUE(sharded.ok() && whole.ok()) << sharded.status() << whole.status();
  EXPECT_NEAR(3 * sharded->at(0).data<float>()[0], whole->at(0).data<float>()[0], 1e-6);
}

TEST(CudaSumToShape, SumsTheBroadcastAxes) {
  for (const std::vector<int64_t>& to : std::vector<std::vector<int64_t>>{
           {}, {5}, {1}, {4, 1}, {4, 5}, {3, 4, 5}, {3, 1, 5}, {1, 4, 1}}) {
    EXPECT_TRUE(CheckOnEmulatedGpu({.domain = "ai.weft",
                                    .op = "SumToShape",
                                    .inputs = {RandomTensor({3, 4, 5}, 1), Int64s(to)}}));
  }
}

TEST(CudaBroadcastReduced, SpreadsAlongTheReducedAxes) {
  struct Spread {
    Shape small;
    std::vector<int64_t> big;
    std::vector<int64_t> axes;
  };
  for (const Spread& spread : std::vector<Spread>{{{3, 1, 5}, {3, 4, 5}, {1}},
                                                  {{3, 1, 8}, {3, 4, 8}, {1}},
                                                  {{4}, {3, 4, 5}, {0, 2}},
                                                  {{}, {3, 36}, {0, 1}},
                                                  {{7, 1}, {7, 40}, {1}},
                                                  {{0}, {3, 0}, {0}}}) {
    for (const int64_t mean : {0, 1}) {
      for (const DType dtype : {DType::kFloat32, DType::kFloat16, DType::kInt32}) {
        if (mean == 1 && dtype == DType::kInt32) continue;
        EXPECT_TRUE(CheckOnEmulatedGpu(
            {.domain = "ai.weft",
             .op = "BroadcastReduced",
             .attributes = {{"keepdims",
                             int64_t{spread.small.rank() == static_cast<int>(spread.big.size())}},
                            {"mean", mean}},
             .inputs = {RandomTensor(spread.small, 1, -9, 9, dtype), Int64s(spread.big),
                        Int64s(spread.axes)}},
            {.of_magnitude = dtype == DType::kFloat16 ? 1e-3 : 1e-6}, 1));
      }
    }
  }
}

TEST(CudaElementCount, Counts) {
  for (const DType dtype : {DType::kFloat32, DType::kInt64, DType::kBfloat16}) {
    EXPECT_TRUE(CheckOnEmulatedGpu({.domain = "ai.weft",
                                    .op = "ElementCount",
                                    .inputs = {RandomTensor({3, 7}, 1, 0, 1, dtype)}}));
  }
}

}  // namespace
}  // namespace weft::testing
