#include "ops/testing/gradient_rule.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "graph/graph_builder.h"
#include "graph/op_schema.h"
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
  absl::StatusOr<std::map<ValueId, ValueId>> DifferentiateBody(
      Graph&, const std::vector<GradientSeed>&, const std::vector<ValueId>&) override {
    return absl::UnimplementedError(
        "one node's rule cannot differentiate a body: test it in training/");
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
                                 const std::map<ValueId, Tensor>& feeds,
                                 const KernelRegistry& registry) {
  NodeRunOptions run;
  run.registry = &registry;
  run.strict = false;
  WEFT_ASSIGN_OR_RETURN(const std::vector<Tensor> outputs, RunCase(op_case, std::move(run)));
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

void SetElement(Tensor& tensor, size_t k, double value) {
  if (tensor.dtype() == DType::kFloat64) {
    tensor.mutable_data<double>()[k] = value;
  } else {
    tensor.mutable_data<float>()[k] = static_cast<float>(value);
  }
}

// d objective / d input, by the five-point formula (error ~ step^4):
// (8 (f(x+h) - f(x-h)) - (f(x+2h) - f(x-2h))) / 12h.
absl::StatusOr<std::vector<double>> NumericGradient(OpCase op_case, int input,
                                                    const NumericGradientOptions& options,
                                                    const GradientGraph& gradient,
                                                    const std::map<ValueId, Tensor>& feeds) {
  const KernelRegistry& registry =
      options.registry != nullptr ? *options.registry : KernelRegistry::Global();
  const double step = options.step;
  WEFT_ASSIGN_OR_RETURN(op_case.inputs[input], op_case.inputs[input].Clone());
  WEFT_ASSIGN_OR_RETURN(const std::vector<double> centers, ToDoubles(op_case.inputs[input]));
  std::vector<double> result(centers.size());
  for (size_t k = 0; k < centers.size(); ++k) {
    double sum = 0;
    for (const auto& [offset, weight] :
         {std::pair{1, 8.0}, std::pair{-1, -8.0}, std::pair{2, -1.0}, std::pair{-2, 1.0}}) {
      SetElement(op_case.inputs[input], k, centers[k] + offset * step);
      WEFT_ASSIGN_OR_RETURN(const double objective, Objective(op_case, gradient, feeds, registry));
      sum += weight * objective;
    }
    SetElement(op_case.inputs[input], k, centers[k]);
    result[k] = sum / (12 * step);
  }
  return result;
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

std::vector<int> DifferentiableInputs(const OpCase& op_case) {
  const OpSchema* schema = OpRegistry::Global().Find(op_case.domain, op_case.op);
  std::vector<int> inputs;
  for (int i = 0; i < static_cast<int>(op_case.inputs.size()); ++i) {
    const Tensor& input = op_case.inputs[i];
    const bool is_value = schema != nullptr && Contains(schema->value_inputs(), i);
    if (input.valid() && IsFloatingPoint(input.dtype()) && !is_value) inputs.push_back(i);
  }
  return inputs;
}

absl::StatusOr<std::vector<Tensor>> RuleGradients(const OpCase& op_case,
                                                  const std::vector<int>& inputs,
                                                  const KernelRegistry& registry) {
  WEFT_ASSIGN_OR_RETURN(const GradientGraph gradient, BuildGradientGraph(op_case, inputs));
  std::vector<ValueId> wanted;
  for (const int input : inputs) {
    if (gradient.input_gradients[input].valid()) wanted.push_back(gradient.input_gradients[input]);
  }
  WEFT_ASSIGN_OR_RETURN(const std::vector<Tensor> values,
                        EvaluateGraph(*gradient.graph, Feeds(gradient, op_case), wanted, registry));
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

absl::Status CheckAgainstNumericGradients(const OpCase& op_case, const std::vector<int>& inputs,
                                          const std::vector<Tensor>& gradients,
                                          const NumericGradientOptions& options) {
  WEFT_ASSIGN_OR_RETURN(const GradientGraph graph, BuildGradientGraph(op_case, inputs));
  const std::map<ValueId, Tensor> feeds = Feeds(graph, op_case);
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Tensor& x = op_case.inputs[inputs[i]];
    WEFT_ASSIGN_OR_RETURN(const std::vector<double> numeric,
                          NumericGradient(op_case, inputs[i], options, graph, feeds));
    if (!(gradients[i].shape() == x.shape()) || gradients[i].dtype() != x.dtype()) {
      return absl::InternalError(absl::StrCat("the gradient of input ", inputs[i], " is ",
                                              gradients[i].ToString(0), ", the input is ",
                                              x.ToString(0)));
    }
    // A gradient that cancels to nothing is held against rounding: 1e-9 of the order of one.
    const absl::Status near =
        CompareTensors(gradients[i], Tensor::Of<double>(x.shape(), numeric),
                       Tolerance{.of_magnitude = options.tolerance, .absolute = 1e-9},
                       /*any_dtype=*/true);
    if (near.ok()) continue;
    return absl::InternalError(
        absl::StrCat("gradient of input ", inputs[i],
                     " against the numeric one: ", std::string(near.message())));
  }
  return absl::OkStatus();
}

}  // namespace weft::testing
