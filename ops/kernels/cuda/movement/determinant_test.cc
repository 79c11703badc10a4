// Det and DetGrad on the emulated GPU.
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "ops/testing/emulator/gpu_op_tester.h"
#include "ops/testing/op_tester.h"
#include "ops/testing/test_tensors.h"

namespace weft::testing {
namespace {

::testing::AssertionResult NearTheCpu(const OpCase& op_case, const Tolerance& tolerance) {
  const auto expected = RunOp(op_case);
  if (!expected.ok()) return ::testing::AssertionFailure() << expected.status();
  for (const uint64_t seed : {1, 2}) {
    const auto actual = RunOnEmulatedGpu(op_case, {.seed = seed});
    if (!actual.ok()) return ::testing::AssertionFailure() << actual.status();
    const auto near = TensorsNear(actual->at(0), expected->at(0), tolerance);
    if (!near) return near;
  }
  return ::testing::AssertionSuccess();
}

Tolerance ToleranceFor(DType dtype) {
  if (dtype == DType::kFloat16 || dtype == DType::kBfloat16) return {.of_magnitude = 8e-3};
  return {.of_magnitude = dtype == DType::kFloat64 ? 1e-12 : 1e-6};
}

const std::vector<Shape>& MatrixShapes() {
  static const auto* const shapes = new std::vector<Shape>{
      {1, 1}, {2, 2}, {5, 3, 3}, {257, 2, 2}, {2, 11, 11}, {0, 3, 3}, {3, 0, 0}};
  return *shapes;
}

TEST(DeterminantOnGpu, ForwardAndBackward) {
  for (const Shape& shape : MatrixShapes()) {
    const Shape batch(shape.dims().first(shape.rank() - 2));
    for (const DType dtype :
         {DType::kFloat32, DType::kFloat64, DType::kFloat16, DType::kBfloat16}) {
      const Tensor x = RandomTensor(shape, 3, -1, 1, dtype);
      EXPECT_TRUE(NearTheCpu({.op = "Det", .inputs = {x}}, ToleranceFor(dtype)));
      EXPECT_TRUE(NearTheCpu({.domain = "ai.weft",
                              .op = "DetGrad",
                              .inputs = {RandomTensor(batch, 4, -1, 1, dtype), x}},
                             ToleranceFor(dtype)));
    }
  }
}

// Of matrices that lack one rank or more, and of one whose rows must be exchanged.
TEST(DeterminantOnGpu, SingularMatrices) {
  const std::vector<std::vector<float>> matrices = {{1, 2, 3, 2, 4, 6, 1, 0, 1},
                                                    {1, 2, 3, 2, 4, 6, 3, 6, 9},
                                                    {0, 0, 0, 0, 0, 0, 0, 0, 0},
                                                    {0, 1, 0, 0, 0, 1, 1, 0, 0}};
  for (const std::vector<float>& numbers : matrices) {
    const Tensor x = Tensor::Of<float>({3, 3}, numbers);
    EXPECT_TRUE(NearTheCpu({.op = "Det", .inputs = {x}}, {.of_magnitude = 1e-6}));
    EXPECT_TRUE(
        NearTheCpu({.domain = "ai.weft", .op = "DetGrad", .inputs = {Tensor::Scalar<float>(2), x}},
                   {.of_magnitude = 1e-6}));
  }
}

}  // namespace
}  // namespace weft::testing
