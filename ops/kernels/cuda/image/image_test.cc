// Resize and ResizeGrad on the emulated GPU.
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "ops/testing/emulator/gpu_op_tester.h"
#include "ops/testing/op_tester.h"
#include "ops/testing/test_tensors.h"

namespace weft::testing {
namespace {

// The first output is the CPU kernel's.
::testing::AssertionResult AgreesWithCpu(const OpCase& op_case, const Tolerance& tolerance) {
  const auto expected = RunOp(op_case);
  if (!expected.ok()) return ::testing::AssertionFailure() << expected.status();
  const auto actual = RunOnEmulatedGpu(op_case);
  if (!actual.ok()) return ::testing::AssertionFailure() << actual.status();
  return TensorsNear(actual->at(0), expected->at(0), tolerance);
}

Tensor Floats(const std::vector<float>& values) {
  return Tensor::Of<float>({static_cast<int64_t>(values.size())}, values);
}

OpCase ResizeCase(const Tensor& x, const std::vector<float>& scales, Attributes attributes) {
  return {
      .op = "Resize", .attributes = std::move(attributes), .inputs = {x, Tensor(), Floats(scales)}};
}

std::vector<Attributes> WaysToResize() {
  std::vector<Attributes> ways;
  for (const char* mode : {"nearest", "linear", "cubic"}) {
    for (const char* coordinates : {"half_pixel", "align_corners", "asymmetric"}) {
      ways.push_back({{"mode", std::string(mode)},
                      {"coordinate_transformation_mode", std::string(coordinates)}});
    }
  }
  ways.push_back({{"mode", std::string("linear")}, {"antialias", int64_t{1}}});
  ways.push_back({{"mode", std::string("cubic")}, {"antialias", int64_t{1}}});
  ways.push_back({{"mode", std::string("cubic")}, {"exclude_outside", int64_t{1}}});
  return ways;
}

TEST(ResizeOnGpu, AllModes) {
  const Tensor x = RandomTensor({2, 3, 7, 5}, 1);
  for (const Attributes& way : WaysToResize()) {
    EXPECT_TRUE(AgreesWithCpu(ResizeCase(x, {1, 1, 2, 2}, way), {}));
    EXPECT_TRUE(AgreesWithCpu(ResizeCase(x, {1, 1, 0.6f, 1.7f}, way), {}));
    EXPECT_TRUE(AgreesWithCpu(ResizeCase(x, {1, 2, 1, 0.5f}, way), {}));
    EXPECT_TRUE(AgreesWithCpu(ResizeCase(x, {1, 1, 1, 1}, way), {}));
  }
}

TEST(ResizeOnGpu, AllTypes) {
  for (const DType dtype : {DType::kFloat64, DType::kFloat16, DType::kBfloat16, DType::kInt8,
                            DType::kUint8, DType::kInt16, DType::kUint16, DType::kInt32,
                            DType::kUint32, DType::kInt64, DType::kUint64, DType::kBool}) {
    const Tensor x = Cast(RandomTensor({1, 2, 5, 7}, 1, 0, 100), dtype);
    for (const char* mode : {"nearest", "linear", "cubic"}) {
      EXPECT_TRUE(AgreesWithCpu(
          ResizeCase(x, {1, 1, 1.5f, 0.7f}, {{"mode", std::string(mode)}}),
          {.of_magnitude = dtype == DType::kFloat16 || dtype == DType::kBfloat16 ? 8e-3 : 0}))
          << DTypeName(dtype) << mode;
    }
  }
}

// tf_crop_and_resize: what lies outside of the region has a value of its own.
TEST(ResizeOnGpu, CropsToARegion) {
  for (const char* mode : {"nearest", "linear"}) {
    for (const float value : {0.0f, 7.5f}) {
      EXPECT_TRUE(AgreesWithCpu(
          {.op = "Resize",
           .attributes = {{"mode", std::string(mode)},
                          {"coordinate_transformation_mode", std::string("tf_crop_and_resize")},
                          {"extrapolation_value", value}},
           .inputs = {RandomTensor({1, 1, 5, 4}, 1), Floats({0, 0, 0.4f, -0.3f, 1, 1, 1.2f, 0.8f}),
                      Tensor(), Int64s({1, 1, 6, 9})}},
          {}));
    }
  }
}

TEST(ResizeOnGpu, NothingToResize) {
  for (const char* mode : {"nearest", "linear"}) {
    EXPECT_TRUE(AgreesWithCpu(
        ResizeCase(RandomTensor({0, 3, 4}, 1), {1, 1, 2}, {{"mode", std::string(mode)}}), {}));
  }
}

TEST(ResizeGradOnGpu, AllModesAndTypes) {
  const Tensor sizes = Int64s({2, 3, 4, 9});
  for (const Attributes& way : WaysToResize()) {
    for (const DType dtype :
         {DType::kFloat32, DType::kFloat64, DType::kFloat16, DType::kBfloat16}) {
      const double tolerance = dtype == DType::kFloat32   ? 2e-6
                               : dtype == DType::kFloat64 ? 1e-14
                                                          : 1e-2;
      const OpCase op_case = {.domain = "ai.weft",
                              .op = "ResizeGrad",
                              .attributes = way,
                              .inputs = {RandomTensor({2, 3, 4, 9}, 1, -1, 1, dtype),
                                         Int64s({2, 3, 7, 5}), Tensor(), Tensor(), sizes}};
      EXPECT_TRUE(AgreesWithCpu(op_case, {.of_magnitude = tolerance}));
    }
  }
}

}  // namespace
}  // namespace weft::testing
