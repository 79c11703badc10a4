#include <limits>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "ops/testing/emulator/gpu_op_tester.h"
#include "ops/testing/op_tester.h"
#include "ops/testing/test_tensors.h"

namespace weft::testing {
namespace {

class CudaSoftmaxTest : public ::testing::TestWithParam<const char*> {
 protected:
  OpCase Case(const Shape& shape, int64_t axis, DType dtype = DType::kFloat32) const {
    const std::string op = GetParam();
    OpCase op_case{
        .op = op, .attributes = {{"axis", axis}}, .inputs = {RandomTensor(shape, 1, -4, 4, dtype)}};
    if (op.ends_with("Grad")) {
      op_case.domain = "ai.weft";
      op_case.inputs.push_back(RandomTensor(shape, 2, -4, 0, dtype));
    }
    return op_case;
  }
};

TEST_P(CudaSoftmaxTest, RowsOfEveryWidth) {
  // One packet and beside it, a warp's, a block's, one beyond the registers.
  for (const int64_t size : {1, 4, 5, 31, 32, 128, 129, 516, 1031}) {
    EXPECT_TRUE(CheckOnEmulatedGpu(Case({3, size}, -1)));
  }
  EXPECT_TRUE(CheckOnEmulatedGpu(Case({1, 8192}, -1), {}, 1));
  EXPECT_TRUE(CheckOnEmulatedGpu(Case({1, 2049}, -1), {}, 1));
  EXPECT_TRUE(CheckOnEmulatedGpu(Case({1, 8196}, -1), {}, 1));
}

TEST_P(CudaSoftmaxTest, OtherAxes) {
  EXPECT_TRUE(CheckOnEmulatedGpu(Case({3, 5, 7}, 1)));
  EXPECT_TRUE(CheckOnEmulatedGpu(Case({37, 11}, 0)));
  EXPECT_TRUE(CheckOnEmulatedGpu(Case({2, 70, 33}, 1)));
}

TEST_P(CudaSoftmaxTest, ManyShortRows) { EXPECT_TRUE(CheckOnEmulatedGpu(Case({67, 10}, 1))); }

TEST_P(CudaSoftmaxTest, NoElementsAndScalars) {
  EXPECT_TRUE(CheckOnEmulatedGpu(Case({0, 3}, 1)));
  EXPECT_TRUE(CheckOnEmulatedGpu(Case({3, 0}, 1)));
  EXPECT_TRUE(CheckOnEmulatedGpu(Case({}, -1)));
}

TEST_P(CudaSoftmaxTest, OtherTypes) {
  for (const DType dtype : {DType::kFloat64, DType::kFloat16, DType::kBfloat16}) {
    for (const Shape& shape : {Shape{3, 40}, Shape{3, 37}}) {
      for (const int64_t axis : {0, 1}) {
        EXPECT_TRUE(CheckOnEmulatedGpu(Case(shape, axis, dtype),
                                       {.of_magnitude = dtype == DType::kFloat64 ? 1e-13 : 1e-2}));
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ops, CudaSoftmaxTest,
                         ::testing::Values("Softmax", "LogSoftmax", "SoftmaxGrad",
                                           "LogSoftmaxGrad"),
                         [](const auto& info) { return std::string(info.param); });

TEST(CudaSoftmax, MaskedScoresGetNothing) {
  const float none = -std::numeric_limits<float>::infinity();
  for (const int64_t size : {4, 8196}) {
    std::vector<float> values(size, none);
    values[0] = 80;
    values[2] = 80;
    const Tensor x = Tensor::Of<float>({1, size}, values);
    EXPECT_TRUE(CheckOnEmulatedGpu({.op = "Softmax", .inputs = {x}}, {}, 1));
  }
}

TEST(CudaSoftmax, NanPasses) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const Tensor x = Tensor::Of<float>({2, 3}, std::vector<float>{1, nan, 2, 3, 3, 3});
  const float third = 1.0f / 3;
  const auto outputs = RunOnEmulatedGpu({.op = "Softmax", .inputs = {x}});
  ASSERT_TRUE(outputs.ok()) << outputs.status();
  EXPECT_TRUE(TensorsNear(
      outputs->at(0),
      Tensor::Of<float>({2, 3}, std::vector<float>{nan, nan, nan, third, third, third})));
}

}  // namespace
}  // namespace weft::testing
