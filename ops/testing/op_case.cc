#include "ops/testing/op_case.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "graph/op_schema.h"
#include "ops/testing/test_tensors.h"
#include "platform/status_macros.h"

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

absl::StatusOr<std::vector<Tensor>> RunCase(const OpCase& op_case, NodeRunOptions options) {
  const SingleNodeGraph single = MakeSingleNodeGraph(op_case);
  WEFT_ASSIGN_OR_RETURN(
      const ConcreteNode node,
      ConcreteNode::Create(single.graph->node(single.node), op_case.inputs, std::move(options)));
  return node.Run();
}

absl::Status CompareTensors(const Tensor& actual, const Tensor& expected,
                            const Tolerance& tolerance, bool any_dtype) {
  const bool same_dtype = any_dtype || actual.dtype() == expected.dtype();
  if (!actual.valid() || !same_dtype || !(actual.shape() == expected.shape())) {
    return absl::InternalError(
        absl::StrCat("is ", TypeText(actual), ", expected ", TypeText(expected)));
  }
  WEFT_ASSIGN_OR_RETURN(const std::vector<double> a, ToDoubles(actual));
  WEFT_ASSIGN_OR_RETURN(const std::vector<double> e, ToDoubles(expected));
  const double common = tolerance.absolute + tolerance.of_magnitude * LargestMagnitude(e);
  for (size_t i = 0; i < e.size(); ++i) {
    const double allowed = common + tolerance.of_element * std::abs(e[i]);
    if (Near(a[i], e[i], allowed)) continue;
    return absl::InternalError(absl::StrCat("element ", i, " of ", TypeText(actual), " is ", a[i],
                                            ", expected ", e[i], " within ", allowed));
  }
  return absl::OkStatus();
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
