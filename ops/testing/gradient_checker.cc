#include "ops/testing/gradient_checker.h"

#include "ops/testing/test_tensors.h"

namespace weft::testing {
namespace {

OpCase InFloat32(OpCase op_case, const std::vector<int>& inputs) {
  for (const int i : inputs) op_case.inputs[i] = Cast(op_case.inputs[i], DType::kFloat32);
  return op_case;
}

::testing::AssertionResult CheckProduction(const OpCase& op_case, const std::vector<int>& inputs,
                                           const std::vector<Tensor>& reference,
                                           const GradientCheckOptions& options) {
  const absl::StatusOr<std::vector<Tensor>> gradients =
      RuleGradients(op_case, inputs, KernelRegistry::Global());
  if (!gradients.ok()) {
    return ::testing::AssertionFailure()
           << op_case.ToString() << ", backward in production: " << gradients.status();
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    if ((*gradients)[i].dtype() != op_case.inputs[inputs[i]].dtype()) {
      return ::testing::AssertionFailure()
             << op_case.ToString() << ", gradient of input " << inputs[i]
             << " has another type: " << (*gradients)[i].ToString();
    }
    const ::testing::AssertionResult near =
        TensorsNear((*gradients)[i], reference[i], options.production, /*any_dtype=*/true);
    if (!near) {
      return ::testing::AssertionFailure()
             << op_case.ToString() << ", gradient of input " << inputs[i]
             << " by the production kernels: " << near.message();
    }
  }
  return ::testing::AssertionSuccess();
}

}  // namespace

::testing::AssertionResult CheckGradient(const OpCase& op_case,
                                         const GradientCheckOptions& options) {
  const OpCase exact = InFloat64(op_case);
  const std::vector<int> inputs =
      options.inputs.empty() ? DifferentiableInputs(op_case) : options.inputs;
  const absl::StatusOr<std::vector<Tensor>> gradients =
      RuleGradients(exact, inputs, KernelRegistry::Reference());
  if (!gradients.ok()) {
    return ::testing::AssertionFailure()
           << op_case.ToString() << ", backward by the reference kernels: " << gradients.status();
  }
  // Outputs that only the rule wanted carry no gradient: the objective skips them.
  const absl::Status numeric = CheckAgainstNumericGradients(
      exact, inputs, *gradients, {&KernelRegistry::Reference(), options.tolerance, options.step});
  if (!numeric.ok()) {
    return ::testing::AssertionFailure() << op_case.ToString() << ", " << numeric.message();
  }
  if (!options.check_production) return ::testing::AssertionSuccess();
  return CheckProduction(InFloat32(op_case, inputs), inputs, *gradients, options);
}

}  // namespace weft::testing
