#include "training/graph/model_training_info.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "graph/expansion.h"
#include "graph/graph_builder.h"
#include "graph/inference.h"
#include "ops/node_runner.h"
#include "platform/status_macros.h"
#include "training/graph/gradient_nodes.h"
#include "training/graph/training_passes.h"

namespace weft {
namespace {

constexpr char kOutputLoss[] = "output:";

bool IsFloatTensor(const ValueType& type) {
  return type.kind == ValueKind::kTensor && IsFloatingPoint(type.dtype);
}

// The name that the loss is chosen by, before Gradient nodes are gone.
absl::StatusOr<std::string> LossName(const Graph& graph, const LossSpec& loss) {
  if (absl::StartsWith(loss.kind, kOutputLoss)) {
    const std::string name = loss.kind.substr(sizeof(kOutputLoss) - 1);
    if (graph.FindValue(name).has_value()) return name;
    return absl::InvalidArgumentError(
        absl::StrCat("--loss ", loss.kind, ": the model has no value of that name"));
  }
  for (const NodeId id : graph.node_ids()) {
    const Node& node = graph.node(id);
    if (node.op == "Gradient" && node.domain == "ai.onnx.preview.training") {
      return node.attributes.String("y", "");
    }
  }
  for (const ValueId id : graph.outputs()) {
    const ValueDef& value = graph.value(id);
    const auto shape = value.type.shape.ToConcrete();
    if (IsFloatTensor(value.type) && shape.has_value() && shape->num_elements() == 1) {
      return value.name;
    }
  }
  return absl::InvalidArgumentError(
      "no output of the model's training_info can be its loss: none is one floating-point number; "
      "name the value that is, with --loss output:NAME");
}

GraphBuilder UpdateBuilder(Graph& graph, Origin origin) {
  GraphBuilder builder(graph);
  builder.set_phase(Phase::kUpdate);
  builder.set_name_prefix("update/");
  builder.set_origin(std::move(origin));
  return builder;
}

absl::Status CheckUpdate(const Graph& graph, const Variable& variable) {
  const ValueType& type = graph.value(variable.value).type;
  const ValueDef& update = graph.value(variable.update);
  const bool fits = update.type.kind == ValueKind::kTensor && update.type.dtype == type.dtype &&
                    update.type.shape.ToConcrete() == type.shape.ToConcrete();
  if (fits) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "update_binding of '", variable.name, "' to '", update.name, "': '", variable.name, "' is ",
      type.ToString(), ", its new value is ", update.type.ToString(), "; they must be the same"));
}

absl::Status AccumulateUpdates(Graph& graph) {
  for (Variable& variable : graph.mutable_variables()) {
    if (!variable.update.valid()) continue;
    WEFT_RETURN_IF_ERROR(CheckUpdate(graph, variable));
    const ValueDef& update = graph.value(variable.update);
    Origin origin = update.origin;
    origin.logical_value = variable.name;
    GraphBuilder builder = UpdateBuilder(graph, std::move(origin));
    const ValueId at_the_end = builder.WeftOp("Accumulate", {variable.update});
    WEFT_RETURN_IF_ERROR(builder.status());
    variable.update = at_the_end;
  }
  return absl::OkStatus();
}

absl::Status AddLossOutput(Graph& graph, const std::string& name) {
  const ValueId loss = *graph.FindValue(name);
  if (!IsFloatTensor(graph.value(loss).type)) {
    return absl::InvalidArgumentError(absl::StrCat("the loss '", name, "' is ",
                                                   graph.value(loss).type.ToString(),
                                                   ", expected floating-point numbers"));
  }
  if (name == kLossOutput) graph.RenameValue(loss, absl::StrCat(name, "/micro_batch"));
  GraphBuilder forward(graph);
  forward.set_name_prefix("loss/");
  ValueId mean = forward.Op("ReduceMean", {loss}, {{"keepdims", int64_t{0}}});
  if (forward.status().ok() && forward.type(mean).dtype != DType::kFloat32) {
    mean = forward.Op("Cast", {mean}, {{"to", static_cast<int64_t>(DType::kFloat32)}});
  }
  WEFT_RETURN_IF_ERROR(forward.status());
  GraphBuilder step = UpdateBuilder(graph, {});
  const ValueId reported = step.WeftOp("Accumulate", {mean});
  WEFT_RETURN_IF_ERROR(step.status());
  graph.RenameValue(reported, kLossOutput);
  graph.SetOutputs({reported});
  // The loop feeds it whether anything reads it or not.
  graph.AddInput(kLearningRateInput, {ValueKind::kTensor, DType::kFloat32, Shape{}},
                 InputRole::kStep);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Graph> BuildOwnTrainingStep(const Graph& model, const LossSpec& loss,
                                           const GraphObserver& observe) {
  const auto see = [&observe](const char* pass, const Graph& graph) {
    return observe == nullptr ? absl::OkStatus() : observe(pass, graph);
  };
  Graph graph = model.Clone();
  WEFT_RETURN_IF_ERROR(InferShapes(graph));
  WEFT_ASSIGN_OR_RETURN(const std::string loss_name, LossName(graph, loss));
  // What no kernel runs is expanded before it is differentiated, and what follows a gradient, whose
  // type is not known before, after it.
  std::vector<absl::Status> refusals;
  WEFT_RETURN_IF_ERROR(ExpandFunctions(graph, RunsNode, &refusals).status());
  WEFT_RETURN_IF_ERROR(see(kExpandPass, graph));
  WEFT_RETURN_IF_ERROR(ReplaceGradientNodes(graph));
  refusals.clear();
  WEFT_RETURN_IF_ERROR(ExpandFunctions(graph, RunsNode, &refusals).status());
  WEFT_RETURN_IF_ERROR(InferShapes(graph));
  WEFT_RETURN_IF_ERROR(see(kGradientsPass, graph));
  WEFT_RETURN_IF_ERROR(AccumulateUpdates(graph));
  WEFT_RETURN_IF_ERROR(AddLossOutput(graph, loss_name));
  WEFT_RETURN_IF_ERROR(see(kUpdatesPass, graph));
  return graph;
}

}  // namespace weft
