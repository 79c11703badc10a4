// GridSample, its gradient and AffineGrid on the emulated GPU. The truth is the CPU's kernel, which
// ops/defs/image/sampling_test.cc and training/graph/operator_gradients_test.cc hold against values
// made by hand and numeric derivatives.
#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "ops/testing/emulator/gpu_op_tester.h"
#include "ops/testing/op_tester.h"
#include "ops/testing/test_tensors.h"

namespace weft::testing {
namespace {

Tolerance GridToleranceOf(DType dtype) {
  if (dtype == DType::kBfloat16) return {.of_magnitude = 1.6e-2};
  if (dtype == DType::kFloat16) return {.of_magnitude = 2e-3};
  return {.of_magnitude = dtype == DType::kFloat64 ? 1e-12 : 1e-5};
}

// All wanted outputs, in two orders of the threads and two runs, which give the same bits.
void ExpectSampled(const OpCase& op_case, const Tolerance& tolerance) {
  const auto expected = RunOp(op_case);
  ASSERT_TRUE(expected.ok()) << expected.status();
  const auto actual = RunOnEmulatedGpu(op_case, {.seed = 1, .runs = 2});
  ASSERT_TRUE(actual.ok()) << actual.status();
  const auto again = RunOnEmulatedGpu(op_case, {.seed = 2});
  ASSERT_TRUE(again.ok()) << again.status();
  ASSERT_EQ(actual->size(), expected->size());
  for (size_t i = 0; i < expected->size(); ++i) {
    if (!(*expected)[i].valid()) continue;
    EXPECT_TRUE(TensorsNear((*actual)[i], (*expected)[i], tolerance)) << "output " << i;
    EXPECT_TRUE(TensorsNear((*again)[i], (*actual)[i], {.of_magnitude = 0, .absolute = 0}))
        << "output " << i;
  }
}

// Of whole numbers, which are cut. A real GPU fuses products with sums: what is cut may be below a
// whole number there, and above it here.
Tolerance WholeTolerance() {
  return {.of_magnitude = 0, .absolute = TestsOnARealGpu() ? 1.0 : 0.0};
}

// Every mode, padding and alignment.
std::vector<Attributes> WaysToSample() {
  std::vector<Attributes> ways;
  for (const char* mode : {"nearest", "linear", "cubic"}) {
    for (const char* padding : {"zeros", "border", "reflection"}) {
      for (const int64_t align : {0, 1}) {
        ways.push_back({{"mode", std::string(mode)},
                        {"padding_mode", std::string(padding)},
                        {"align_corners", align}});
      }
    }
  }
  return ways;
}

// Points in and out of the image; the grid has the image's number of axes.
OpCase SampleCase(const Shape& x, const Shape& grid, const Attributes& way,
                  DType dtype = DType::kFloat32, DType grid_dtype = DType::kFloat32) {
  return {
      .op = "GridSample",
      .attributes = way,
      .inputs = {RandomTensor(x, 1, -1, 1, dtype), RandomTensor(grid, 2, -1.7, 1.7, grid_dtype)}};
}

// Of SampleCase, with both outputs.
OpCase SampleGradient(const OpCase& sample, const std::vector<bool>& outputs = {true, true}) {
  const Shape& x = sample.inputs[0].shape();
  const Shape& grid = sample.inputs[1].shape();
  std::vector<int64_t> y = {x.dim(0), x.dim(1)};
  for (int i = 1; i + 1 < grid.rank(); ++i) y.push_back(grid.dim(i));
  return {.domain = "ai.weft",
          .op = "GridSampleGrad",
          .attributes = sample.attributes,
          .inputs = {RandomTensor(Shape(y), 3, -1, 1, sample.inputs[0].dtype()), sample.inputs[0],
                     sample.inputs[1]},
          .outputs = outputs};
}

// Of X and of the grid.
std::vector<std::pair<DType, DType>> FloatTypes() {
  return {{DType::kFloat64, DType::kFloat64},   {DType::kFloat64, DType::kFloat32},
          {DType::kFloat32, DType::kFloat64},   {DType::kFloat16, DType::kFloat16},
          {DType::kBfloat16, DType::kBfloat16}, {DType::kBfloat16, DType::kFloat32}};
}

TEST(CudaGridSample, EveryWay) {
  for (const Attributes& way : WaysToSample()) {
    for (const OpCase& sample : {SampleCase({2, 11, 5, 7}, {2, 3, 5, 2}, way),
                                 SampleCase({1, 2, 3, 2, 5}, {1, 2, 1, 7, 3}, way),
                                 SampleCase({2, 3, 6}, {2, 13, 1}, way)}) {
      ExpectSampled(sample, GridToleranceOf(DType::kFloat32));
      ExpectSampled(SampleGradient(sample), GridToleranceOf(DType::kFloat32));
    }
  }
}

TEST(CudaGridSample, EveryType) {
  for (const char* mode : {"nearest", "linear", "cubic"}) {
    const Attributes way = {{"mode", std::string(mode)},
                            {"padding_mode", std::string("reflection")}};
    for (const auto& [dtype, grid] : FloatTypes()) {
      const OpCase sample = SampleCase({1, 3, 5, 4}, {1, 3, 3, 2}, way, dtype, grid);
      ExpectSampled(sample, GridToleranceOf(dtype));
      ExpectSampled(SampleGradient(sample, {true, false}), GridToleranceOf(dtype));
      ExpectSampled(SampleGradient(sample, {false, true}),
                    GridToleranceOf(dtype == DType::kFloat64 ? grid : dtype));
    }
    for (const DType dtype :
         {DType::kInt8, DType::kUint8, DType::kInt16, DType::kUint16, DType::kInt32, DType::kUint32,
          DType::kInt64, DType::kUint64, DType::kBool}) {
      const DType grid = dtype == DType::kInt32 ? DType::kFloat64 : DType::kFloat32;
      OpCase sample = SampleCase({1, 2, 5, 4}, {1, 3, 3, 2}, way, DType::kFloat32, grid);
      sample.inputs[0] = Cast(RandomTensor({1, 2, 5, 4}, 1, 0, 120), dtype);
      ExpectSampled(sample, WholeTolerance());
    }
  }
}

// Whole numbers are cut at the ends of their type: a cubic overshoots.
TEST(CudaGridSample, CutsAtTheEndsOfAType) {
  Tensor x = *Tensor::Zeros(DType::kUint8, {1, 1, 1, 6});
  for (int i = 2; i < 4; ++i) x.mutable_data<uint8_t>()[i] = 255;
  OpCase sample = SampleCase({1, 1, 1, 6}, {1, 1, 29, 2}, {{"mode", std::string("cubic")}});
  sample.inputs[0] = x;
  ExpectSampled(sample, WholeTolerance());
}

TEST(CudaGridSample, NothingAndNoNumbers) {
  const Attributes linear;
  for (const OpCase& sample : {SampleCase({0, 3, 4, 4}, {0, 2, 2, 2}, linear),
                               SampleCase({2, 0, 4, 4}, {2, 2, 2, 2}, linear),
                               SampleCase({2, 3, 4, 4}, {2, 0, 2, 2}, linear)}) {
    ExpectSampled(sample, {});
    ExpectSampled(SampleGradient(sample), {});
  }
  for (const char* padding : {"zeros", "border", "reflection"}) {
    OpCase sample =
        SampleCase({1, 1, 2, 2}, {1, 1, 3, 2}, {{"padding_mode", std::string(padding)}});
    sample.inputs[1] =
        Tensor::Of<float>({1, 1, 3, 2}, std::vector<float>{NAN, 0, 1e30f, 0, 0, -INFINITY});
    ExpectSampled(sample, {});
  }
}

// Many points give to one element, and all weights are sorted by digits.
TEST(CudaGridSample, ManyPointsOfFewElements) {
  const OpCase sample = SampleCase({2, 1, 3, 2}, {2, 53, 47, 2}, {});
  ExpectSampled(SampleGradient(sample, {true, false}), {.of_magnitude = 2e-5});
}

TEST(CudaGridSample, RefusesWhatItCannotDo) {
  EXPECT_TRUE(ExpectErrorOnEmulatedGpu(SampleCase({1, 1, 2, 2, 2, 2}, {1, 1, 1, 1, 1, 4}, {}),
                                       absl::StatusCode::kUnimplemented, {"1 to 3 axes"}));
  EXPECT_TRUE(ExpectErrorOnEmulatedGpu(SampleCase({1, 1, 0, 2}, {1, 1, 1, 2}, {}),
                                       absl::StatusCode::kInvalidArgument, {"no elements"}));
}

TEST(CudaAffineGrid, EveryTypeAndSize) {
  for (const DType dtype : {DType::kFloat32, DType::kFloat64, DType::kFloat16, DType::kBfloat16}) {
    for (const int64_t align : {0, 1}) {
      for (const auto& [theta, size] :
           {std::pair<Shape, std::vector<int64_t>>{{2, 2, 3}, {2, 1, 13, 17}},
            {{3, 3, 4}, {3, 1, 5, 1, 7}},
            {{0, 2, 3}, {0, 1, 3, 3}},
            {{1, 2, 3}, {1, 1, 0, 3}}}) {
        ExpectSampled({.op = "AffineGrid",
                       .attributes = {{"align_corners", align}},
                       .inputs = {RandomTensor(theta, 1, -1, 1, dtype), Int64s(size)}},
                      GridToleranceOf(dtype));
      }
    }
  }
}

}  // namespace
}  // namespace weft::testing
