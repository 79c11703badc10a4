#include "ops/testing/op_tester.h"

#include "absl/strings/str_cat.h"
#include "platform/status_macros.h"
#include "tensor/testing/fake_device.h"

namespace weft::testing {
namespace {

// Also fails when the kernel wrote outside of its operands.
absl::StatusOr<std::vector<Tensor>> RunOnFakeDevice(const OpCase& op_case, int threads) {
  FakeDevice device;
  NodeRunOptions options;
  options.threads = threads;
  options.strict = false;
  options.device = &device;
  WEFT_ASSIGN_OR_RETURN(std::vector<Tensor> outputs, RunCase(op_case, std::move(options)));
  WEFT_RETURN_IF_ERROR(device.Verify());
  return outputs;
}

// Runs once more and asks for the bits of `outputs`.
::testing::AssertionResult SameBits(const OpCase& op_case, const char* how, Kernels kernels,
                                    int threads, const std::vector<Tensor>& outputs) {
  const absl::StatusOr<std::vector<Tensor>> other = RunOp(op_case, kernels, threads);
  if (!other.ok()) {
    return ::testing::AssertionFailure() << op_case.ToString() << how << ": " << other.status();
  }
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (!outputs[i].valid() || BitwiseEqual(outputs[i], (*other)[i])) continue;
    return ::testing::AssertionFailure()
           << op_case.ToString() << " output " << i << " has other bits" << how << ": "
           << (*other)[i].ToString() << " instead of " << outputs[i].ToString();
  }
  return ::testing::AssertionSuccess();
}

::testing::AssertionResult AllNear(const OpCase& op_case, const char* what,
                                   const std::vector<Tensor>& actual,
                                   const std::vector<Tensor>& expected, const Tolerance& tolerance,
                                   bool any_dtype) {
  if (expected.size() > actual.size()) {
    return ::testing::AssertionFailure() << op_case.ToString() << " has " << actual.size()
                                         << " outputs, expected " << expected.size();
  }
  for (size_t i = 0; i < expected.size(); ++i) {
    if (!expected[i].valid()) continue;
    const ::testing::AssertionResult near =
        TensorsNear(actual[i], expected[i], tolerance, any_dtype);
    if (!near) {
      return ::testing::AssertionFailure()
             << op_case.ToString() << " " << what << ", output " << i << ": " << near.message();
    }
  }
  return ::testing::AssertionSuccess();
}

// The production kernel on 1 and 2 threads is near `expected`; the fake device gives 1 thread's
// bits.
::testing::AssertionResult ProductionNear(const OpCase& op_case,
                                          const std::vector<Tensor>& expected,
                                          const Tolerance& tolerance, bool any_dtype) {
  for (const int threads : {2, 1}) {
    const absl::StatusOr<std::vector<Tensor>> outputs =
        RunOp(op_case, Kernels::kProduction, threads);
    if (!outputs.ok()) {
      return ::testing::AssertionFailure() << op_case.ToString() << ": " << outputs.status();
    }
    const ::testing::AssertionResult near =
        AllNear(op_case, threads == 1 ? "by the production kernel" : "with 2 threads", *outputs,
                expected, tolerance, any_dtype);
    if (!near) return near;
    if (threads == 1) {
      return SameBits(op_case, " on the fake device", Kernels::kFakeDevice, 1, *outputs);
    }
  }
  return ::testing::AssertionSuccess();
}

}  // namespace

absl::StatusOr<std::vector<Tensor>> RunOp(const OpCase& op_case, Kernels kernels, int threads) {
  if (kernels == Kernels::kFakeDevice) return RunOnFakeDevice(op_case, threads);
  NodeRunOptions options;
  options.threads = threads;
  options.strict = false;
  if (kernels == Kernels::kReference) options.registry = &KernelRegistry::Reference();
  return RunCase(op_case, std::move(options));
}

::testing::AssertionResult TensorsNear(const Tensor& actual, const Tensor& expected,
                                       const Tolerance& tolerance, bool any_dtype) {
  const absl::Status status = CompareTensors(actual, expected, tolerance, any_dtype);
  if (status.ok()) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << status.message();
}

::testing::AssertionResult ExpectOutputs(const OpCase& op_case, const std::vector<Tensor>& expected,
                                         const Tolerance& tolerance) {
  const ::testing::AssertionResult result =
      ProductionNear(op_case, expected, tolerance, /*any_dtype=*/false);
  if (!result) return result;
  const absl::StatusOr<std::vector<Tensor>> reference = RunOp(op_case, Kernels::kReference);
  if (!reference.ok()) {
    return ::testing::AssertionFailure()
           << op_case.ToString() << " by the reference kernel: " << reference.status();
  }
  return AllNear(op_case, "by the reference kernel", *reference, expected, tolerance, false);
}

::testing::AssertionResult CheckKernelAgainstReference(const OpCase& op_case,
                                                       const Tolerance& tolerance) {
  const absl::StatusOr<std::vector<Tensor>> reference =
      RunOp(InFloat64(op_case), Kernels::kReference);
  if (!reference.ok()) {
    return ::testing::AssertionFailure()
           << op_case.ToString() << " by the reference kernel: " << reference.status();
  }
  return ProductionNear(op_case, *reference, tolerance, /*any_dtype=*/true);
}

::testing::AssertionResult SameBitsOnTwoThreads(const OpCase& op_case) {
  const absl::StatusOr<std::vector<Tensor>> one = RunOp(op_case);
  if (!one.ok()) {
    return ::testing::AssertionFailure() << op_case.ToString() << ": " << one.status();
  }
  return SameBits(op_case, " with 2 threads", Kernels::kProduction, 2, *one);
}

::testing::AssertionResult ExpectError(const OpCase& op_case, absl::StatusCode code,
                                       const std::vector<std::string>& texts) {
  const absl::StatusOr<std::vector<Tensor>> outputs = RunOp(op_case);
  if (outputs.ok()) {
    return ::testing::AssertionFailure() << op_case.ToString() << " did not fail";
  }
  if (outputs.status().code() != code) {
    return ::testing::AssertionFailure()
           << "expected " << absl::StatusCodeToString(code) << ", got " << outputs.status();
  }
  const std::string message(outputs.status().message());
  for (const std::string& text : texts) {
    if (message.find(text) != std::string::npos) continue;
    return ::testing::AssertionFailure() << "the message lacks '" << text << "': " << message;
  }
  return ::testing::AssertionSuccess();
}

}  // namespace weft::testing
