// Scale, AddN, TrustRatio and RateFactor on the emulated GPU.
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "ops/testing/emulator/gpu_op_tester.h"
#include "ops/testing/op_tester.h"
#include "ops/testing/test_tensors.h"

namespace weft::testing {
namespace {

const DType kFloats[] = {DType::kFloat32, DType::kFloat64, DType::kFloat16, DType::kBfloat16};

Tolerance RoundingOf(DType dtype) {
  if (dtype == DType::kFloat16) return {.of_magnitude = 1e-3};
  if (dtype == DType::kBfloat16) return {.of_magnitude = 8e-3};
  return {.of_magnitude = 1e-6};
}

TEST(GpuScaleTest, MultipliesByANumberOfTheDevice) {
  for (const DType dtype : kFloats) {
    for (const int64_t count : {0, 7, 1031}) {
      EXPECT_TRUE(CheckOnEmulatedGpu({.domain = "ai.weft",
                                      .op = "Scale",
                                      .inputs = {Cast(RandomTensor({count}, 1), dtype),
                                                 Cast(Tensor::Scalar<float>(0.375f), dtype)}},
                                     RoundingOf(dtype)));
    }
  }
}

TEST(GpuAddNTest, AddsInOrder) {
  for (const DType dtype : kFloats) {
    for (const int addends : {1, 2, 5, 40}) {
      OpCase op_case{.domain = "ai.weft", .op = "AddN", .inputs = {}};
      for (int n = 0; n < addends; ++n) {
        op_case.inputs.push_back(Cast(RandomTensor({3, 67}, static_cast<uint64_t>(n)), dtype));
      }
      EXPECT_TRUE(CheckOnEmulatedGpu(op_case, RoundingOf(dtype)));
    }
  }
  const Tensor whole = Int64s({1, -2, 3, 4, 5});
  for (const DType dtype : {DType::kInt8, DType::kInt32, DType::kInt64}) {
    const Tensor x = Cast(whole, dtype);
    EXPECT_TRUE(CheckOnEmulatedGpu({.domain = "ai.weft", .op = "AddN", .inputs = {x, x, x}}));
  }
}

// Sums of 16-bit floats are kept in float32: the third addend brings them back into range.
TEST(GpuAddNTest, SumsOfHalvesMayLeaveTheirRange) {
  const auto half = [](float value) { return Cast(Tensor::Scalar<float>(value), DType::kFloat16); };
  EXPECT_TRUE(CheckOnEmulatedGpu(
      {.domain = "ai.weft", .op = "AddN", .inputs = {half(60000), half(60000), half(-60000)}}));
}

TEST(GpuTrustRatioTest, IsOneWithoutANorm) {
  for (const DType dtype : {DType::kFloat32, DType::kFloat64}) {
    const auto squares = [&](const std::vector<int64_t>& values) {
      return Cast(Int64s(values), dtype);
    };
    EXPECT_TRUE(CheckOnEmulatedGpu(
        {.domain = "ai.weft",
         .op = "TrustRatio",
         .attributes = {{"coefficient", 0.5f}, {"weight_decay", 0.1f}, {"epsilon", 1e-6f}},
         .inputs = {squares({4, 0, 9, 2}), squares({9, 5, 0, 3})}}));
  }
}

TEST(GpuRateFactorTest, FollowsEverySchedule) {
  for (const std::string kind :
       {"constant", "step", "exponential", "linear", "cosine", "polynomial", "one_cycle"}) {
    for (const int64_t warmup : {0, 4}) {
      if (kind == "one_cycle" && warmup != 0) continue;
      for (const int64_t step : {1, 2, 4, 5, 13, 20, 50}) {
        EXPECT_TRUE(CheckOnEmulatedGpu({.domain = "ai.weft",
                                        .op = "RateFactor",
                                        .attributes = {{"kind", kind},
                                                       {"warmup", warmup},
                                                       {"total", int64_t{20}},
                                                       {"every", int64_t{3}},
                                                       {"gamma", 0.9f},
                                                       {"power", 2.0f},
                                                       {"end", 0.1f}},
                                        .inputs = {Tensor::Scalar<int64_t>(step)}}));
      }
    }
  }
}

}  // namespace
}  // namespace weft::testing
