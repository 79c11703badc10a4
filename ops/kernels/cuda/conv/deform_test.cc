// DeformConv, its sampling and the gradient of that on the emulated GPU. The truth is the CPU's
// kernel, which training/graph/operator_gradients_test.cc holds against numeric derivatives.
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

struct Deformed {
  Shape x = {2, 4, 5, 7};
  std::vector<int64_t> kernel = {3, 2};
  std::vector<int64_t> windows = {4, 3};  // what pads, strides and dilations make of x
  std::vector<int64_t> pads = {1, 0, 0, 1};
  std::vector<int64_t> strides = {1, 2};
  std::vector<int64_t> dilations = {1, 2};
  int64_t group = 2, offset_group = 2, outputs = 6;
  bool has_bias = true, has_mask = true;
  DType dtype = DType::kFloat32;
};

std::vector<Deformed> ManyDeformed() {
  return {{},
          {.group = 1, .offset_group = 4, .outputs = 5, .has_bias = false, .has_mask = false},
          {.x = {1, 18, 5, 7}, .group = 1, .offset_group = 2, .outputs = 1, .has_mask = false},
          {.x = {2, 2, 9},
           .kernel = {3},
           .windows = {9},
           .pads = {1, 1},
           .strides = {1},
           .dilations = {1},
           .group = 1,
           .offset_group = 1,
           .outputs = 2},
          {.x = {1, 2, 3, 4, 3},
           .kernel = {2, 1, 3},
           .windows = {2, 4, 1},
           .pads = {0, 0, 0, 0, 0, 0},
           .strides = {1, 1, 1},
           .dilations = {1, 1, 1},
           .group = 2,
           .offset_group = 1,
           .outputs = 4},
          {.x = {0, 4, 5, 7}},
          {.outputs = 0}};
}

Tolerance DeformToleranceOf(DType dtype) {
  if (dtype == DType::kBfloat16) return {.of_magnitude = 1.6e-2};
  if (dtype == DType::kFloat16) return {.of_magnitude = 2e-3};
  return {.of_magnitude = dtype == DType::kFloat64 ? 1e-12 : 1e-5};
}

void ExpectDeformed(const OpCase& op_case, const Tolerance& tolerance) {
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

// Offsets reach over the edges of the image.
std::vector<Tensor> OffsetAndMask(const Deformed& d) {
  std::vector<int64_t> dims = {d.x.dim(0), d.offset_group};
  for (const int64_t size : d.kernel) dims[1] *= size;
  dims.insert(dims.end(), d.windows.begin(), d.windows.end());
  const Shape mask(dims);
  dims[1] *= static_cast<int64_t>(d.kernel.size());
  return {RandomTensor(Shape(dims), 3, -2.5, 2.5, d.dtype),
          d.has_mask ? RandomTensor(mask, 4, 0, 1, d.dtype) : Tensor()};
}

Attributes DeformAttributes(const Deformed& d) {
  return {{"kernel_shape", d.kernel},
          {"pads", d.pads},
          {"strides", d.strides},
          {"dilations", d.dilations},
          {"offset_group", d.offset_group}};
}

OpCase DeformCase(const Deformed& d) {
  std::vector<int64_t> w = {d.outputs, d.x.dim(1) / d.group};
  w.insert(w.end(), d.kernel.begin(), d.kernel.end());
  const std::vector<Tensor> sampled = OffsetAndMask(d);
  OpCase conv{
      .op = "DeformConv",
      .attributes = DeformAttributes(d),
      .inputs = {RandomTensor(d.x, 1, -1, 1, d.dtype), RandomTensor(Shape(w), 2, -1, 1, d.dtype),
                 sampled[0], d.has_bias ? RandomTensor({d.outputs}, 5, -1, 1, d.dtype) : Tensor(),
                 sampled[1]}};
  conv.attributes.Set("group", d.group);
  return conv;
}

OpCase DeformColumnsCase(const Deformed& d) {
  const std::vector<Tensor> sampled = OffsetAndMask(d);
  return {.domain = "ai.weft",
          .op = "DeformColumns",
          .attributes = DeformAttributes(d),
          .inputs = {RandomTensor(d.x, 1, -1, 1, d.dtype), sampled[0], sampled[1]}};
}

OpCase DeformGradient(const Deformed& d, std::vector<bool> outputs) {
  OpCase gradient = DeformColumnsCase(d);
  int64_t rows = d.x.dim(1);
  int64_t windows = 1;
  for (const int64_t size : d.kernel) rows *= size;
  for (const int64_t size : d.windows) windows *= size;
  gradient.op = "DeformColumnsGrad";
  gradient.inputs.insert(gradient.inputs.begin(),
                         RandomTensor({d.x.dim(0), rows, windows}, 6, -1, 1, d.dtype));
  gradient.outputs = std::move(outputs);
  return gradient;
}

TEST(CudaDeformConv, ManyShapes) {
  for (const Deformed& d : ManyDeformed()) {
    ExpectDeformed(DeformCase(d), DeformToleranceOf(d.dtype));
    ExpectDeformed(DeformColumnsCase(d), DeformToleranceOf(d.dtype));
    ExpectDeformed(DeformGradient(d, {true, true, d.has_mask}), DeformToleranceOf(d.dtype));
  }
}

TEST(CudaDeformConv, EveryType) {
  for (const DType dtype : {DType::kFloat64, DType::kFloat16, DType::kBfloat16}) {
    Deformed d;
    d.dtype = dtype;
    ExpectDeformed(DeformCase(d), DeformToleranceOf(dtype));
    ExpectDeformed(DeformColumnsCase(d), DeformToleranceOf(dtype));
    ExpectDeformed(DeformGradient(d, {true, false, false}), DeformToleranceOf(dtype));
    ExpectDeformed(DeformGradient(d, {false, true, false}), DeformToleranceOf(dtype));
    ExpectDeformed(DeformGradient(d, {false, false, true}), DeformToleranceOf(dtype));
  }
}

// What is no number is outside.
TEST(CudaDeformConv, OffsetsThatAreNoNumbers) {
  OpCase columns = DeformColumnsCase({});
  columns.inputs[1].mutable_data<float>()[5] = NAN;
  columns.inputs[1].mutable_data<float>()[11] = INFINITY;
  columns.inputs[1].mutable_data<float>()[29] = -1e30f;
  ExpectDeformed(columns, DeformToleranceOf(DType::kFloat32));
}

TEST(CudaDeformConv, RefusesWhatItCannotDo) {
  Deformed d{.x = {1, 1, 2, 2, 2, 2},
             .kernel = {1, 1, 1, 1},
             .windows = {2, 2, 2, 2},
             .pads = {0, 0, 0, 0, 0, 0, 0, 0},
             .strides = {1, 1, 1, 1},
             .dilations = {1, 1, 1, 1},
             .group = 1,
             .offset_group = 1,
             .outputs = 1};
  EXPECT_TRUE(ExpectErrorOnEmulatedGpu(DeformCase(d), absl::StatusCode::kUnimplemented,
                                       {"at most 3 image axes"}));
}

}  // namespace
}  // namespace weft::testing
