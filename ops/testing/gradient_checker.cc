#include "ops/testing/gradient_checker.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "absl/strings/str_cat.h"
#include "graph/graph_builder.h"
#include "ops/testing/graph_evaluator.h"
#include "ops/testing/test_tensors.h"
#include "platform/status_macros.h"

namespace weft::testing {
namespace {

bool Contains(const std::vector<int>& list, int i) {
  return std::find(list.begin(), list.end(), i) != list.end();
}

// Calls one node's gradient rule. An output that the rule requires and the node lacks is noted: the
// caller builds the graph again with it.
class SingleNodeGradient final : public GradientContext {
 public:
  SingleNodeGradient(GradientGraph& gradient, GraphBuilder& builder, std::vector<int> needed)
      : gradient_(gradient), builder_(builder), needed_(std::move(needed)) {
    gradient_.input_gradients.assign(node().inputs.size(), kNoValue);
  }

  const Node& node() const override { return gradient_.graph->node(gradient_.node); }
  const Graph& graph() const override { return *gradient_.graph; }
  GraphBuilder& builder() override { return builder_; }
  ValueId RequireOutput(int i, const std::string&) override {
    const ValueId output = Output(i);
    if (!output.valid()) missing_outputs_.push_back(i);
    return output;
  }
  ValueId OutputGradient(int i) const override {
    return i < static_cast<int>(gradient_.output_gradients.size()) ? gradient_.output_gradients[i]
                                                                   : kNoValue;
  }
  bool NeedsInputGradient(int i) const override { return Contains(needed_, i); }
  void SetInputGradient(int i, ValueId gradient) override {
    gradient_.input_gradients[i] = gradient;
  }

  const std::vector<int>& missing_outputs() const { return missing_outputs_; }

 private:
  GradientGraph& gradient_;
  GraphBuilder& builder_;
  std::vector<int> needed_;
  std::vector<int> missing_outputs_;
};

// The forward node over graph inputs (value inputs as constants), outputs `wanted`.
GradientGraph BuildForward(const OpCase& op_case, const OpSchema& schema, GraphBuilder& builder,
                           std::unique_ptr<Graph> graph, const std::vector<bool>& wanted) {
  GradientGraph result;
  result.graph = std::move(graph);
  for (size_t i = 0; i < op_case.inputs.size(); ++i) {
    const Tensor& input = op_case.inputs[i];
    if (!input.valid()) {
      result.inputs.push_back(kNoValue);
    } else if (Contains(schema.value_inputs(), static_cast<int>(i))) {
      result.inputs.push_back(builder.Constant(input));
    } else {
      result.inputs.push_back(result.graph->AddInput(
          absl::StrCat("x", i), ValueType{ValueKind::kTensor, input.dtype(), input.shape()}));
    }
  }
  const std::vector<ValueId> outputs =
      builder.Ops(op_case.domain, op_case.op, result.inputs, op_case.attributes, wanted);
  for (size_t i = 0; builder.status().ok() && i < outputs.size(); ++i) {
    ValueId gradient = kNoValue;
    const bool asked = i < op_case.outputs.size() && op_case.outputs[i];
    if (asked && IsFloatingPoint(builder.type(outputs[i]).dtype)) {
      result.node = result.graph->value(outputs[i]).producer;
      gradient = result.graph->AddInput(absl::StrCat("dy", i), builder.type(outputs[i]));
    }
    result.output_gradients.push_back(gradient);
  }
  return result;
}

// Inputs and random output gradients, with values that float32 holds.
std::map<ValueId, Tensor> Feeds(const GradientGraph& gradient, const OpCase& op_case) {
  std::map<ValueId, Tensor> feeds;
  for (size_t i = 0; i < op_case.inputs.size(); ++i) {
    if (op_case.inputs[i].valid()) feeds[gradient.inputs[i]] = op_case.inputs[i];
  }
  for (size_t i = 0; i < gradient.output_gradients.size(); ++i) {
    const ValueId dy = gradient.output_gradients[i];
    if (!dy.valid()) continue;
    const ValueType& type = gradient.graph->value(dy).type;
    feeds[dy] = RandomTensor(*type.shape.ToConcrete(), 100 + i, -1, 1, type.dtype);
  }
  return feeds;
}

// sum over outputs of output * its arriving gradient.
absl::StatusOr<double> Objective(const OpCase& op_case, const GradientGraph& gradient,
                                 const std::map<ValueId, Tensor>& feeds) {
  WEFT_ASSIGN_OR_RETURN(const std::vector<Tensor> outputs, RunOp(op_case, Kernels::kReference));
  double sum = 0;
  for (size_t i = 0; i < outputs.size(); ++i) {
    const ValueId dy = gradient.output_gradients[i];
    if (!dy.valid()) continue;
    WEFT_ASSIGN_OR_RETURN(const std::vector<double> values, ToDoubles(outputs[i]));
    WEFT_ASSIGN_OR_RETURN(const std::vector<double> weights, ToDoubles(feeds.at(dy)));
    for (size_t k = 0; k < values.size(); ++k) sum += values[k] * weights[k];
  }
  return sum;
}

// d objective / d input, by the five-point formula (error ~ step^4):
// (8 (f(x+h) - f(x-h)) - (f(x+2h) - f(x-2h))) / 12h.
absl::StatusOr<std::vector<double>> NumericGradient(OpCase op_case, int input, double step,
                                                    const GradientGraph& gradient,
                                                    const std::map<ValueId, Tensor>& feeds) {
  WEFT_ASSIGN_OR_RETURN(op_case.inputs[input], op_case.inputs[input].Clone());
  const std::span<double> x = op_case.inputs[input].mutable_data<double>();
  std::vector<double> result(x.size());
  for (size_t k = 0; k < x.size(); ++k) {
    const double center = x[k];
    double sum = 0;
    for (const auto& [offset, weight] :
         {std::pair{1, 8.0}, std::pair{-1, -8.0}, std::pair{2, -1.0}, std::pair{-2, 1.0}}) {
      x[k] = center + offset * step;
      WEFT_ASSIGN_OR_RETURN(const double objective, Objective(op_case, gradient, feeds));
      sum += weight * objective;
    }
    x[k] = center;
    result[k] = sum / (12 * step);
  }
  return result;
}

// All-zero tensors stand for gradients that the rule leaves out.
absl::StatusOr<std::vector<Tensor>> EvaluateGradients(const GradientGraph& gradient,
                                                      const OpCase& op_case,
                                                      const std::vector<int>& inputs,
                                                      const std::map<ValueId, Tensor>& feeds,
                                                      const KernelRegistry& registry) {
  std::vector<ValueId> wanted;
  for (const int input : inputs) {
    if (gradient.input_gradients[input].valid()) wanted.push_back(gradient.input_gradients[input]);
  }
  WEFT_ASSIGN_OR_RETURN(const std::vector<Tensor> values,
                        EvaluateGraph(*gradient.graph, feeds, wanted, registry));
  std::vector<Tensor> gradients;
  size_t next = 0;
  for (const int input : inputs) {
    if (gradient.input_gradients[input].valid()) {
      gradients.push_back(values[next++]);
    } else {
      const Tensor& x = op_case.inputs[input];
      WEFT_ASSIGN_OR_RETURN(gradients.emplace_back(), Tensor::Zeros(x.dtype(), x.shape()));
    }
  }
  return gradients;
}

std::vector<int> InputsToCheck(const OpCase& op_case, const OpSchema& schema,
                               const GradientCheckOptions& options) {
  if (!options.inputs.empty()) return options.inputs;
  std::vector<int> inputs;
  for (int i = 0; i < static_cast<int>(op_case.inputs.size()); ++i) {
    const Tensor& input = op_case.inputs[i];
    if (input.valid() && IsFloatingPoint(input.dtype()) && !Contains(schema.value_inputs(), i)) {
      inputs.push_back(i);
    }
  }
  return inputs;
}

::testing::AssertionResult CheckNumerically(const OpCase& op_case, const std::vector<int>& inputs,
                                            const std::vector<Tensor>& gradients,
                                            const GradientGraph& graph,
                                            const std::map<ValueId, Tensor>& feeds,
                                            const GradientCheckOptions& options) {
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Tensor& x = op_case.inputs[inputs[i]];
    const absl::StatusOr<std::vector<double>> numeric =
        NumericGradient(op_case, inputs[i], options.step, graph, feeds);
    if (!numeric.ok()) return ::testing::AssertionFailure() << numeric.status();
    // A gradient that cancels to nothing is held against rounding: 1e-9 of the order of one.
    const ::testing::AssertionResult near =
        TensorsNear(gradients[i], Tensor::Of<double>(x.shape(), *numeric),
                    Tolerance{.of_magnitude = options.tolerance, .absolute = 1e-9});
    if (!near) {
      return ::testing::AssertionFailure()
             << op_case.ToString() << ", gradient of input " << inputs[i]
             << " against the numeric one: " << near.message();
    }
  }
  return ::testing::AssertionSuccess();
}

OpCase InFloat32(OpCase op_case, const std::vector<int>& inputs) {
  for (const int i : inputs) op_case.inputs[i] = Cast(op_case.inputs[i], DType::kFloat32);
  return op_case;
}

::testing::AssertionResult CheckProduction(const OpCase& op_case, const std::vector<int>& inputs,
                                           const std::vector<Tensor>& reference,
                                           const GradientCheckOptions& options) {
  const absl::StatusOr<GradientGraph> graph = BuildGradientGraph(op_case, inputs);
  if (!graph.ok()) return ::testing::AssertionFailure() << graph.status();
  const absl::StatusOr<std::vector<Tensor>> gradients =
      EvaluateGradients(*graph, op_case, inputs, Feeds(*graph, op_case), KernelRegistry::Global());
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

absl::StatusOr<GradientGraph> BuildGradientGraph(const OpCase& op_case,
                                                 const std::vector<int>& inputs) {
  const OpSchema* schema = OpRegistry::Global().Find(op_case.domain, op_case.op);
  if (schema == nullptr || schema->gradient_kind() != GradientKind::kRule) {
    return absl::InvalidArgumentError(absl::StrCat(op_case.ToString(), " has no gradient rule"));
  }
  std::vector<bool> wanted = op_case.outputs;
  // Each round adds at least one output that the rule requires.
  for (size_t round = 0; round <= schema->outputs().size(); ++round) {
    auto graph = std::make_unique<Graph>();
    GraphBuilder builder(*graph);
    GradientGraph result = BuildForward(op_case, *schema, builder, std::move(graph), wanted);
    WEFT_RETURN_IF_ERROR(builder.status());
    if (!result.node.valid()) {
      return absl::InvalidArgumentError(
          absl::StrCat(op_case.ToString(), " has no floating output that is wanted"));
    }
    builder.set_phase(Phase::kBackward);
    SingleNodeGradient context(result, builder, inputs);
    const absl::Status status = schema->gradient()(context);
    if (context.missing_outputs().empty()) {
      WEFT_RETURN_IF_ERROR(status);
      return result;
    }
    for (const int i : context.missing_outputs()) {
      wanted.resize(std::max<size_t>(wanted.size(), i + 1), false);
      wanted[i] = true;
    }
  }
  return absl::InternalError("the gradient rule requires outputs without end");
}

::testing::AssertionResult CheckGradient(const OpCase& op_case,
                                         const GradientCheckOptions& options) {
  const OpSchema* schema = OpRegistry::Global().Find(op_case.domain, op_case.op);
  if (schema == nullptr) return ::testing::AssertionFailure() << op_case.op << " is not declared";
  const std::vector<int> inputs = InputsToCheck(op_case, *schema, options);
  const OpCase exact = InFloat64(op_case);
  const absl::StatusOr<GradientGraph> graph = BuildGradientGraph(exact, inputs);
  if (!graph.ok()) return ::testing::AssertionFailure() << graph.status();
  const std::map<ValueId, Tensor> feeds = Feeds(*graph, exact);
  const absl::StatusOr<std::vector<Tensor>> gradients =
      EvaluateGradients(*graph, exact, inputs, feeds, KernelRegistry::Reference());
  if (!gradients.ok()) {
    return ::testing::AssertionFailure()
           << op_case.ToString() << ", backward by the reference kernels: " << gradients.status();
  }
  // Outputs that only the rule wanted carry no gradient: the objective skips them.
  const ::testing::AssertionResult numeric =
      CheckNumerically(exact, inputs, *gradients, *graph, feeds, options);
  if (!numeric || !options.check_production) return numeric;
  return CheckProduction(InFloat32(op_case, inputs), inputs, *gradients, options);
}

}  // namespace weft::testing
