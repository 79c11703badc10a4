// CausalConvWithState on the emulated GPU.
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "ops/testing/emulator/gpu_op_tester.h"
#include "ops/testing/op_tester.h"
#include "ops/testing/test_tensors.h"

namespace weft::testing {
namespace {

// Both outputs are those of the CPU's kernel.
::testing::AssertionResult CausalConvAgrees(const OpCase& op_case, double tolerance) {
  const auto expected = RunOp(op_case);
  if (!expected.ok()) return ::testing::AssertionFailure() << expected.status();
  const auto actual = RunOnEmulatedGpu(op_case);
  if (!actual.ok()) return ::testing::AssertionFailure() << actual.status();
  for (size_t i = 0; i < expected->size(); ++i) {
    const auto near = TensorsNear(actual->at(i), expected->at(i), {.of_magnitude = tolerance});
    if (!near) return near;
  }
  return ::testing::AssertionSuccess();
}

TEST(CausalConvOnGpu, AllOperandsAndTypes) {
  for (const DType dtype : {DType::kFloat32, DType::kFloat64, DType::kFloat16, DType::kBfloat16}) {
    const double tolerance = dtype == DType::kFloat32   ? 2e-6
                             : dtype == DType::kFloat64 ? 1e-14
                                                        : 1e-2;
    for (const int64_t length : {1, 2, 37, 301}) {
      for (const int64_t taps : {1, 4}) {
        const Tensor x = RandomTensor({2, 5, length}, 1, -1, 1, dtype);
        const Tensor w = RandomTensor({5, 1, taps}, 2, -1, 1, dtype);
        const Tensor bias = RandomTensor({5}, 3, -1, 1, dtype);
        const Tensor past = RandomTensor({2, 5, taps - 1}, 4, -1, 1, dtype);
        EXPECT_TRUE(CausalConvAgrees({.op = "CausalConvWithState",
                                      .attributes = {{"activation", std::string("silu")}},
                                      .inputs = {x, w, bias, past},
                                      .outputs = {true, true}},
                                     tolerance));
        EXPECT_TRUE(CausalConvAgrees(
            {.op = "CausalConvWithState", .inputs = {x, w}, .outputs = {true, true}}, tolerance));
      }
    }
  }
}

}  // namespace
}  // namespace weft::testing
