// Holds gradient rules against numeric differentiation.
//
//   EXPECT_TRUE(CheckGradient({.op = "Mul", .inputs = {RandomTensor({3, 4}, 1), RandomTensor({4},
//   2)}}));
#ifndef WEFT_OPS_TESTING_GRADIENT_CHECKER_H_
#define WEFT_OPS_TESTING_GRADIENT_CHECKER_H_

#include <vector>

#include "gtest/gtest.h"
#include "ops/testing/gradient_rule.h"
#include "ops/testing/op_tester.h"

namespace weft::testing {

struct GradientCheckOptions {
  // Inputs whose gradients are checked; empty: every floating input that is not a value input.
  std::vector<int> inputs;
  // Largest difference from the numeric gradient, relative to the largest element of that gradient.
  double tolerance = 1e-6;
  // Of the numeric differentiation (five points): x +- step, x +- 2 step. Kinks must be farther
  // away.
  double step = 1e-3;
  // Of the float32 production kernels against the float64 reference kernels.
  Tolerance production = {.of_magnitude = 5e-6};
  bool check_production = true;
};

// In float64 with the reference kernels, the gradient of each input agrees with the numeric one of
// sum(outputs * random weights), and has the input's shape and dtype; the same gradient graph in
// float32 with the production kernels agrees with the reference.
::testing::AssertionResult CheckGradient(const OpCase& op_case,
                                         const GradientCheckOptions& options = {});

}  // namespace weft::testing

#endif  // WEFT_OPS_TESTING_GRADIENT_CHECKER_H_
