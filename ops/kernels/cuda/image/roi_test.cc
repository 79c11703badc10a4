// RoiAlign, MaxRoiPool and their gradients on the emulated GPU. The truth is the CPU's kernel,
// which ops/defs/image/sampling_test.cc and training/graph/operator_gradients_test.cc hold against
// values made by hand and numeric derivatives.
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "ops/testing/emulator/gpu_op_tester.h"
#include "ops/testing/op_tester.h"
#include "ops/testing/test_tensors.h"

namespace weft::testing {
namespace {

Tolerance RoiToleranceOf(DType dtype) {
  if (dtype == DType::kBfloat16) return {.of_magnitude = 1.6e-2};
  if (dtype == DType::kFloat16) return {.of_magnitude = 2e-3};
  return {.of_magnitude = dtype == DType::kFloat64 ? 1e-12 : 1e-5};
}

// All wanted outputs, in two orders of the threads and two runs, which give the same bits.
void ExpectPooled(const OpCase& op_case, const Tolerance& tolerance) {
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

// Within the image, over its edges, outside, of no size, and from right to left.
std::vector<float> RegionsOf(const char* op) {
  const std::vector<std::vector<float>> corners = {
      {0.3f, 1.2f, 6.1f, 4.4f},   {-3.2f, -2.1f, 2.7f, 9.3f},
      {20, 20, 25, 31},           {-9, -9, -5, -5},
      {2.2f, 2.3f, 2.2f, 2.3f},   {5.1f, 4.2f, 1.4f, 0.3f},
      {3.6f, 0.1f, 12.9f, 11.1f}, {0, 0, 6, 4}};
  std::vector<float> rois;
  for (size_t r = 0; r < corners.size(); ++r) {
    if (std::string(op) == "MaxRoiPool") rois.push_back(static_cast<float>(r % 2));
    rois.insert(rois.end(), corners[r].begin(), corners[r].end());
  }
  return rois;
}

OpCase RoiCase(const char* op, const Attributes& way, DType dtype = DType::kFloat32) {
  const bool align = std::string(op) == "RoiAlign";
  OpCase pool{.op = op,
              .attributes = way,
              .inputs = {RandomTensor({2, 5, 5, 7}, 1, -1, 1, dtype),
                         Cast(Tensor::Of<float>({8, align ? 4 : 5}, RegionsOf(op)), dtype)}};
  if (align) {
    pool.attributes.Set("output_height", int64_t{3});
    pool.attributes.Set("output_width", int64_t{2});
    pool.inputs.push_back(Int64s({0, 1, 1, 0, 1, 0, 0, 1}));
  } else {
    pool.attributes.Set("pooled_shape", std::vector<int64_t>{3, 2});
  }
  return pool;
}

// Of RoiCase; dX, and of RoiAlign drois.
OpCase RoiGradient(const OpCase& pool) {
  OpCase gradient{
      .domain = "ai.weft",
      .op = pool.op + "Grad",
      .attributes = pool.attributes,
      .inputs = {RandomTensor({pool.inputs[1].shape().dim(0), pool.inputs[0].shape().dim(1), 3, 2},
                              3, -1, 1, pool.inputs[0].dtype())}};
  for (const Tensor& input : pool.inputs) gradient.inputs.push_back(input);
  if (pool.op == "RoiAlign") gradient.outputs = {true, true};
  return gradient;
}

std::vector<Attributes> WaysToAlign() {
  std::vector<Attributes> ways;
  for (const char* mode : {"avg", "max"}) {
    for (const char* pixels : {"half_pixel", "output_half_pixel"}) {
      for (const int64_t ratio : {0, 1, 3}) {
        ways.push_back({{"mode", std::string(mode)},
                        {"coordinate_transformation_mode", std::string(pixels)},
                        {"sampling_ratio", ratio},
                        {"spatial_scale", ratio == 1 ? 0.75f : 1.0f}});
      }
    }
  }
  return ways;
}

TEST(CudaRoiAlign, EveryWay) {
  for (const Attributes& way : WaysToAlign()) {
    const OpCase align = RoiCase("RoiAlign", way);
    ExpectPooled(align, RoiToleranceOf(DType::kFloat32));
    ExpectPooled(RoiGradient(align), RoiToleranceOf(DType::kFloat32));
  }
}

TEST(CudaRoiAlign, EveryType) {
  for (const DType dtype : {DType::kFloat64, DType::kFloat16, DType::kBfloat16}) {
    for (const char* mode : {"avg", "max"}) {
      const OpCase align = RoiCase("RoiAlign", {{"mode", std::string(mode)}}, dtype);
      ExpectPooled(align, RoiToleranceOf(dtype));
      ExpectPooled(RoiGradient(align), RoiToleranceOf(dtype));
    }
  }
}

TEST(CudaRoiAlign, NoRegionsAndNoChannels) {
  OpCase align = RoiCase("RoiAlign", {});
  align.inputs[1] = RandomTensor({0, 4}, 1);
  align.inputs[2] = Int64s({});
  ExpectPooled(align, {});
  ExpectPooled(RoiGradient(align), {});
  align = RoiCase("RoiAlign", {});
  align.inputs[0] = RandomTensor({2, 0, 5, 7}, 1);
  ExpectPooled(align, {});
  ExpectPooled(RoiGradient(align), {});
}

// A region whose end is no number has no samples; the CPU's kernel once read what is not its.
TEST(CudaRoiAlign, EndsThatAreNoNumbers) {
  OpCase align = RoiCase("RoiAlign", {{"sampling_ratio", int64_t{2}}});
  align.inputs[1].mutable_data<float>()[2] = NAN;
  ExpectPooled(align, RoiToleranceOf(DType::kFloat32));
}

TEST(CudaRoiAlign, ReportsWrongRegions) {
  for (const char* op : {"RoiAlign", "RoiAlignGrad"}) {
    const OpCase right = RoiCase("RoiAlign", {});
    const auto of = [&](const OpCase& align) {
      return std::string(op) == "RoiAlign" ? align : RoiGradient(align);
    };
    OpCase align = right;
    align.inputs[2] = Int64s({0, 1, 2, 0, 1, 0, 0, 1});
    EXPECT_TRUE(ExpectErrorOnEmulatedGpu(of(align), absl::StatusCode::kInvalidArgument,
                                         {op, "batch_indices", "2"}));
    align = right;
    align.inputs[1] = Cast(right.inputs[1], DType::kFloat32);
    align.inputs[1].mutable_data<float>()[4] = 1e20f;
    EXPECT_TRUE(
        ExpectErrorOnEmulatedGpu(of(align), absl::StatusCode::kInvalidArgument, {op, "rois", "1"}));
    align.inputs[1] = Cast(right.inputs[1], DType::kFloat32);
    align.inputs[1].mutable_data<float>()[6] = 1e8f;
    EXPECT_TRUE(ExpectErrorOnEmulatedGpu(of(align), absl::StatusCode::kInvalidArgument,
                                         {op, "samples along an axis of rois"}));
  }
}

TEST(CudaMaxRoiPool, EveryTypeAndScale) {
  for (const DType dtype : {DType::kFloat32, DType::kFloat64, DType::kFloat16, DType::kBfloat16}) {
    for (const float scale : {1.0f, 0.6f}) {
      const OpCase pool = RoiCase("MaxRoiPool", {{"spatial_scale", scale}}, dtype);
      ExpectPooled(pool, {.of_magnitude = 0});
      ExpectPooled(RoiGradient(pool), RoiToleranceOf(dtype));
    }
  }
}

TEST(CudaMaxRoiPool, EqualPixelsNoNumbersNoImage) {
  OpCase pool = RoiCase("MaxRoiPool", {});
  pool.inputs[0] = *Tensor::Zeros(DType::kFloat32, {2, 5, 5, 7});
  ExpectPooled(pool, {});
  ExpectPooled(RoiGradient(pool), {});
  pool.inputs[0] = RandomTensor({2, 5, 5, 7}, 1);
  pool.inputs[0].mutable_data<float>()[17] = NAN;
  ExpectPooled(pool, {});
  pool.inputs[0] = RandomTensor({2, 5, 0, 7}, 1);
  ExpectPooled(pool, {});
}

TEST(CudaMaxRoiPool, ReportsWrongRegions) {
  OpCase pool = RoiCase("MaxRoiPool", {});
  pool.inputs[1].mutable_data<float>()[10] = 2;
  EXPECT_TRUE(ExpectErrorOnEmulatedGpu(pool, absl::StatusCode::kInvalidArgument,
                                       {"MaxRoiPool", "sample of rois", "2"}));
  EXPECT_TRUE(ExpectErrorOnEmulatedGpu(RoiGradient(pool), absl::StatusCode::kInvalidArgument,
                                       {"MaxRoiPoolGrad", "sample of rois", "2"}));
  pool.inputs[1].mutable_data<float>()[10] = -0.5f;
  EXPECT_TRUE(ExpectErrorOnEmulatedGpu(pool, absl::StatusCode::kInvalidArgument,
                                       {"MaxRoiPool", "sample of rois", "-1"}));
  pool.inputs[1].mutable_data<float>()[10] = 0;
  pool.inputs[1].mutable_data<float>()[14] = INFINITY;
  EXPECT_TRUE(ExpectErrorOnEmulatedGpu(pool, absl::StatusCode::kInvalidArgument,
                                       {"MaxRoiPool", "corner of rois"}));
}

}  // namespace
}  // namespace weft::testing
