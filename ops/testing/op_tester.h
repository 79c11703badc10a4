// Runs one op by name on given inputs and holds its kernels against independent truth.
//
//   OpCase softmax{.op = "Softmax", .attributes = {{"axis", int64_t{-1}}},
//                  .inputs = {RandomTensor({7, 10}, 1)}};
//   EXPECT_TRUE(CheckKernelAgainstReference(softmax));
//   EXPECT_TRUE(ExpectOutputs(softmax, {expected}));
#ifndef WEFT_OPS_TESTING_OP_TESTER_H_
#define WEFT_OPS_TESTING_OP_TESTER_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "gtest/gtest.h"
#include "ops/testing/op_case.h"
#include "tensor/tensor.h"

namespace weft::testing {

enum class Kernels : uint8_t {
  kProduction,
  kReference,
  // The production kernels on the fake device: memory of its own that nothing else may touch.
  kFakeDevice,
};

// One tensor per output. The errors of inference, preparation and running come through.
absl::StatusOr<std::vector<Tensor>> RunOp(const OpCase& op_case,
                                          Kernels kernels = Kernels::kProduction, int threads = 1);

// Equal dtype (unless `any_dtype`) and shape; elements within the tolerance; NaN equals NaN.
::testing::AssertionResult TensorsNear(const Tensor& actual, const Tensor& expected,
                                       const Tolerance& tolerance = {}, bool any_dtype = false);

// Production kernels on the CPU with 1 and 2 threads, and the reference kernels, give `expected`.
// An invalid expected tensor is not looked at.
::testing::AssertionResult ExpectOutputs(const OpCase& op_case, const std::vector<Tensor>& expected,
                                         const Tolerance& tolerance = {});

// The production kernels, with the inputs as they are and on 1 and 2 threads, agree with the
// reference kernels on float64 copies of the floating inputs.
::testing::AssertionResult CheckKernelAgainstReference(const OpCase& op_case,
                                                       const Tolerance& tolerance = {});

// 2 threads give the bits of 1. (Not so for some of oneDNN's kernels.)
::testing::AssertionResult SameBitsOnTwoThreads(const OpCase& op_case);

// Running fails with this code, and the message contains every one of the texts.
::testing::AssertionResult ExpectError(const OpCase& op_case, absl::StatusCode code,
                                       const std::vector<std::string>& texts);

}  // namespace weft::testing

#endif  // WEFT_OPS_TESTING_OP_TESTER_H_
