#include "ops/testing/op_tester.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "ops/testing/test_tensors.h"
#include "platform/status_macros.h"
#include "tensor/testing/fake_device.h"

namespace weft::testing {
namespace {

std::string TypeText(const Tensor& tensor) {
  if (!tensor.valid()) return "-";
  return absl::StrCat(std::string(DTypeName(tensor.dtype())), tensor.shape().ToString());
}

double LargestMagnitude(const std::vector<double>& values) {
  double largest = 0;
  for (const double value : values) {
    if (std::isfinite(value)) largest = std::max(largest, std::abs(value));
  }
  return largest;
}

bool Near(double actual, double expected, double allowed) {
  if (std::isnan(expected)) return std::isnan(actual);
  if (!std::isfinite(expected)) return actual == expected;
  return std::abs(actual - expected) <= allowed;
}

absl::StatusOr<std::vector<Tensor>> RunWith(const OpCase& op_case, NodeRunOptions options) {
  const SingleNodeGraph single = MakeSingleNodeGraph(op_case);
  WEFT_ASSIGN_OR_RETURN(
      const ConcreteNode node,
      ConcreteNode::Create(single.graph->node(single.node), op_case.inputs, std::move(options)));
  return node.Run();
}

// Also fails when the kernel wrote outside of its operands.
absl::StatusOr<std::vector<Tensor>> RunOnFakeDevice(const OpCase& op_case, int threads) {
  FakeDevice device;
  NodeRunOptions options;
  options.threads = threads;
  options.strict = false;
  options.device = &device;
  WEFT_ASSIGN_OR_RETURN(std::vector<Tensor> outputs, RunWith(op_case, std::move(options)));
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

std::string OpCase::ToString() const {
  std::string text = absl::StrCat(domain, domain.empty() ? "" : "::", op, "(");
  for (size_t i = 0; i < inputs.size(); ++i) {
    absl::StrAppend(&text, i > 0 ? ", " : "", TypeText(inputs[i]));
  }
  return absl::StrCat(text, ")");
}

SingleNodeGraph MakeSingleNodeGraph(const OpCase& op_case) {
  SingleNodeGraph result{std::make_unique<Graph>(), NodeId()};
  Graph::NodeSpec spec;
  spec.name = "node";
  spec.domain = op_case.domain;
  spec.op = op_case.op;
  spec.attributes = op_case.attributes;
  for (size_t i = 0; i < op_case.inputs.size(); ++i) {
    const Tensor& input = op_case.inputs[i];
    if (!input.valid()) {
      spec.inputs.push_back(kNoValue);
      continue;
    }
    const ValueType type{ValueKind::kTensor, input.dtype(), input.shape()};
    spec.inputs.push_back(result.graph->AddInput(absl::StrCat("x", i), type));
  }
  for (size_t i = 0; i < op_case.outputs.size(); ++i) {
    spec.outputs.push_back(op_case.outputs[i] ? absl::StrCat("y", i) : "");
  }
  spec.keep_empty_outputs = true;
  result.node = result.graph->AddNode(std::move(spec));
  return result;
}

absl::StatusOr<std::vector<Tensor>> RunOp(const OpCase& op_case, Kernels kernels, int threads) {
  if (kernels == Kernels::kFakeDevice) return RunOnFakeDevice(op_case, threads);
  NodeRunOptions options;
  options.threads = threads;
  options.strict = false;
  if (kernels == Kernels::kReference) options.registry = &KernelRegistry::Reference();
  return RunWith(op_case, std::move(options));
}

::testing::AssertionResult TensorsNear(const Tensor& actual, const Tensor& expected,
                                       const Tolerance& tolerance, bool any_dtype) {
  const bool same_dtype = any_dtype || actual.dtype() == expected.dtype();
  if (!actual.valid() || !same_dtype || !(actual.shape() == expected.shape())) {
    return ::testing::AssertionFailure()
           << "is " << TypeText(actual) << ", expected " << TypeText(expected);
  }
  const absl::StatusOr<std::vector<double>> a = ToDoubles(actual);
  const absl::StatusOr<std::vector<double>> e = ToDoubles(expected);
  if (!a.ok() || !e.ok()) {
    return ::testing::AssertionFailure() << "not comparable: " << a.status() << e.status();
  }
  const double common = tolerance.absolute + tolerance.of_magnitude * LargestMagnitude(*e);
  for (size_t i = 0; i < e->size(); ++i) {
    const double allowed = common + tolerance.of_element * std::abs((*e)[i]);
    if (Near((*a)[i], (*e)[i], allowed)) continue;
    return ::testing::AssertionFailure()
           << "element " << i << " of " << TypeText(actual) << " is " << (*a)[i] << ", expected "
           << (*e)[i] << " within " << allowed;
  }
  return ::testing::AssertionSuccess();
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

OpCase InFloat64(OpCase op_case) {
  const OpSchema* schema = OpRegistry::Global().Find(op_case.domain, op_case.op);
  for (size_t i = 0; i < op_case.inputs.size(); ++i) {
    Tensor& input = op_case.inputs[i];
    if (!input.valid() || !IsFloatingPoint(input.dtype())) continue;
    if (schema != nullptr) {
      const std::vector<int>& known = schema->value_inputs();
      if (std::find(known.begin(), known.end(), static_cast<int>(i)) != known.end()) continue;
    }
    input = Cast(input, DType::kFloat64);
  }
  return op_case;
}

}  // namespace weft::testing
