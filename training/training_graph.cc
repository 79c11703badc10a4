#include "training/training_graph.h"

#include <map>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "graph/expansion.h"
#include "graph/graph_builder.h"
#include "graph/inference.h"
#include "ops/node_runner.h"
#include "platform/status_macros.h"
#include "training/autodiff.h"
#include "training/loss.h"

namespace weft {
namespace {

constexpr char kAccuracyOutput[] = "accuracy";

// The model with types and with the functions expanded that no kernel runs, so that what is
// differentiated is what runs. A node that cannot be expanded stays: it may be dead, or fail later.
absl::StatusOr<Graph> PrepareModel(const Graph& model) {
  Graph graph = model.Clone();
  WEFT_RETURN_IF_ERROR(InferShapes(graph));
  std::vector<absl::Status> refusals;
  WEFT_RETURN_IF_ERROR(ExpandFunctions(graph, RunsNode, &refusals).status());
  return graph;
}

// A node of the step region that has no forward counterpart.
GraphBuilder StepBuilder(Graph& graph, const std::string& prefix) {
  GraphBuilder builder(graph);
  builder.set_phase(Phase::kUpdate);
  builder.set_name_prefix(prefix);
  return builder;
}

// The mean over the global batch, from the sums of all micro-batches. `weight` is returned
// accumulated.
struct GlobalMean {
  ValueId mean;
  ValueId weight;
};

absl::StatusOr<GlobalMean> AddGlobalMean(Graph& graph, const MeanParts& parts,
                                         const std::string& name) {
  // The model may have a value of that name: it keeps living under another.
  if (const std::optional<ValueId> taken = graph.FindValue(name)) {
    graph.RenameValue(*taken, absl::StrCat(name, "/micro_batch"));
  }
  GraphBuilder builder = StepBuilder(graph, absl::StrCat(name, "/"));
  const ValueId sum = builder.WeftOp("Accumulate", {parts.sum});
  const ValueId weight = builder.WeftOp("Accumulate", {parts.weight});
  const ValueId mean = builder.Op("Div", {sum, weight});
  builder.Name(mean, name);
  WEFT_RETURN_IF_ERROR(builder.status());
  return GlobalMean{mean, weight};
}

// Variables and inputs keep their names, which people and files know: none may have one of a step's
// own. (Other values of the model step aside.)
absl::Status CheckNames(const Graph& model) {
  const std::set<std::string> reserved = {kLossOutput, kAccuracyOutput, kLearningRateInput,
                                          kStepInput};
  const auto check = [&](const char* what, const std::string& name) -> absl::Status {
    const bool taken = reserved.contains(name) || (*what == 'w' && name == kLabelsInput);
    if (!taken) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("the model's ", what, " '", name,
                     "' has a name that a training step uses for itself; rename it in the model"));
  };
  for (const Variable& variable : model.variables()) {
    WEFT_RETURN_IF_ERROR(check("weight", variable.name));
  }
  for (const ValueId input : model.inputs()) {
    WEFT_RETURN_IF_ERROR(check("input", model.value(input).name));
  }
  return absl::OkStatus();
}

std::vector<ValueId> TrainableValues(const Graph& graph) {
  std::vector<ValueId> values;
  for (const Variable& variable : graph.variables()) {
    if (variable.trainable) values.push_back(variable.value);
  }
  return values;
}

absl::StatusOr<std::map<ValueId, ValueId>> AddBackward(Graph& graph, ValueId loss_sum,
                                                       const std::vector<ValueId>& wanted) {
  GraphBuilder builder(graph);
  builder.set_phase(Phase::kBackward);
  builder.set_name_prefix("grad/");
  const ValueDef& sum = graph.value(loss_sum);
  if (sum.source == ValueSource::kNode) {
    builder.set_origin({graph.node(sum.producer).name, sum.name, true});
  }
  const ValueId one = builder.Scalar(sum.type.dtype, 1.0);
  WEFT_RETURN_IF_ERROR(builder.status());
  return AddGradients(graph, {{loss_sum, one}}, wanted);
}

absl::Status AddUpdates(Graph& graph, const TrainingSpec& spec, const GlobalMean& loss,
                        const std::map<ValueId, ValueId>& gradients) {
  OptimizerInputs inputs;
  const auto scalar = [&](const char* name, DType dtype) {
    return graph.AddInput(name, {ValueKind::kTensor, dtype, Shape{}}, InputRole::kStep);
  };
  inputs.learning_rate = scalar(kLearningRateInput, DType::kFloat32);
  if (spec.optimizer.needs_step_number()) inputs.step = scalar(kStepInput, DType::kInt64);
  GraphBuilder builder = StepBuilder(graph, "update/");
  const ValueId scale = builder.Op("Reciprocal", {loss.weight});
  for (const auto& [value, gradient] : gradients) {
    const std::string name = graph.value(value).name;
    builder.set_origin({graph.value(gradient).origin.forward_node, name, true});
    builder.set_name_prefix(absl::StrCat("update/", name, "/"));
    ValueId mean = builder.WeftOp("Accumulate", {gradient});
    mean = builder.WeftOp("Scale", {mean, scale});
    WEFT_RETURN_IF_ERROR(builder.status());
    if (spec.report_gradients) {
      builder.Name(mean, absl::StrCat("gradient/", name));
      graph.AddOutput(mean);
    }
    WEFT_RETURN_IF_ERROR(AddUpdate(builder, spec.optimizer, inputs, name, mean));
  }
  return builder.status();
}

}  // namespace

absl::StatusOr<Graph> BuildTrainingGraph(const Graph& model, const TrainingSpec& spec) {
  WEFT_RETURN_IF_ERROR(ValidateOptimizer(spec.optimizer));
  WEFT_RETURN_IF_ERROR(CheckNames(model));
  WEFT_ASSIGN_OR_RETURN(Graph graph, PrepareModel(model));
  const std::vector<ValueId> wanted = TrainableValues(graph);
  if (wanted.empty()) {
    return absl::InvalidArgumentError(
        "nothing trains: the model has no floating-point weights that reach the loss and are not "
        "frozen; `graph_runner inspect` lists them, --trainable PATTERN adds some");
  }
  GraphBuilder builder(graph);
  builder.set_name_prefix("loss/");
  WEFT_ASSIGN_OR_RETURN(MeanParts parts, AddLoss(builder, spec.loss));
  graph.SetOutputs({});
  WEFT_ASSIGN_OR_RETURN(auto gradients, AddBackward(graph, parts.sum, wanted));
  if (gradients.empty()) {
    return absl::InvalidArgumentError(
        "nothing trains: the loss depends on none of the model's trainable weights");
  }
  WEFT_ASSIGN_OR_RETURN(GlobalMean loss, AddGlobalMean(graph, parts, kLossOutput));
  graph.SetOutputs({loss.mean});
  WEFT_RETURN_IF_ERROR(AddUpdates(graph, spec, loss, gradients));
  return graph;
}

absl::StatusOr<Graph> BuildEvaluationGraph(const Graph& model, const LossSpec& loss,
                                           const std::vector<std::string>& metrics) {
  WEFT_RETURN_IF_ERROR(CheckNames(model));
  WEFT_ASSIGN_OR_RETURN(Graph graph, PrepareModel(model));
  std::vector<ValueId> outputs;
  for (const std::string& metric : metrics) {
    GraphBuilder builder(graph);
    builder.set_name_prefix(absl::StrCat(metric, "/"));
    absl::StatusOr<MeanParts> parts = absl::InvalidArgumentError(
        absl::StrCat("no metric '", metric, "'; there are accuracy and loss"));
    if (metric == "accuracy") parts = AddAccuracy(builder, loss);
    if (metric == "loss") parts = AddLoss(builder, loss);
    WEFT_RETURN_IF_ERROR(parts.status());
    WEFT_ASSIGN_OR_RETURN(GlobalMean mean, AddGlobalMean(graph, *parts, metric));
    graph.RenameValue(mean.weight, absl::StrCat(metric, kWeightSuffix));
    outputs.push_back(mean.mean);
    outputs.push_back(mean.weight);
  }
  graph.SetOutputs(std::move(outputs));
  return graph;
}

}  // namespace weft
