#include "training/graph/training_mode.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "graph/graph_builder.h"
#include "graph/inference.h"
#include "platform/status_macros.h"
#include "platform/text/name_pattern.h"

namespace weft {
namespace {

constexpr int kTrainingMode = 2;

bool IsNode(const Node& node, const char* op) { return node.domain.empty() && node.op == op; }
bool IsBatchNormalization(const Node& node) { return IsNode(node, "BatchNormalization"); }
bool IsDropout(const Node& node) { return IsNode(node, "Dropout"); }
bool Trains(const Node& node) {
  return IsBatchNormalization(node) && node.attributes.Int("training_mode", 0) != 0;
}

// ---- Which nodes train.

// Its input `i` becomes `value`; kNoValue at the end is not kept.
void SetInput(Node& node, int i, ValueId value) {
  if (static_cast<int>(node.inputs.size()) <= i) node.inputs.resize(i + 1, kNoValue);
  node.inputs[i] = value;
  while (!node.inputs.empty() && !node.inputs.back().valid()) node.inputs.pop_back();
}

absl::Status TurnOn(Graph& graph, const std::vector<std::string>& patterns) {
  for (const std::string& pattern : patterns) {
    bool any = false;
    for (const NodeId id : graph.node_ids()) {
      Node& node = graph.node(id);
      const bool can_train = IsBatchNormalization(node) || IsDropout(node);
      if (!can_train || !MatchesPattern(pattern, node.name)) continue;
      any = true;
      if (IsBatchNormalization(node)) {
        node.attributes.Set("training_mode", int64_t{1});
      } else {
        const std::string name = absl::StrCat(node.name, "/training_mode");
        const ValueId on = graph.AddConstant(name, Tensor::Scalar<bool>(true));
        SetInput(graph.node(id), kTrainingMode, on);
      }
    }
    if (any) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "--train-mode '", pattern,
        "' matches no node that is BatchNormalization or Dropout; graph_runner check --trainable "
        "lists those of the model"));
  }
  return absl::OkStatus();
}

// Inputs of the graph that nothing but Dropout's training_mode reads.
void FixInputs(Graph& graph, bool training) {
  const std::vector<ValueId> inputs = graph.inputs();
  const std::vector<std::vector<Graph::Use>> uses = graph.BuildUses();
  for (const ValueId input : inputs) {
    const std::vector<Graph::Use>& own = uses[input.value];
    const bool decides = !own.empty() && std::all_of(own.begin(), own.end(), [&](const auto& use) {
      return IsDropout(graph.node(use.node)) && use.input_index == kTrainingMode;
    });
    if (decides) graph.MakeConstant(input, Tensor::Scalar<bool>(training));
  }
}

// By value: it depends on a variable that trains.
absl::StatusOr<std::vector<bool>> DependsOnTrained(const Graph& graph) {
  std::vector<bool> depends(graph.value_capacity());
  for (const Variable& variable : graph.variables()) {
    depends[variable.value.value] = variable.trainable;
  }
  WEFT_ASSIGN_OR_RETURN(const std::vector<NodeId> order, graph.TopologicalOrder());
  for (const NodeId id : order) {
    const Node& node = graph.node(id);
    const bool any = std::any_of(node.inputs.begin(), node.inputs.end(), [&](ValueId input) {
      return input.valid() && depends[input.value];
    });
    for (const ValueId output : node.outputs) {
      if (output.valid()) depends[output.value] = any;
    }
  }
  return depends;
}

// A variable that could train and does not.
bool IsFrozen(const Graph& graph, ValueId value) {
  const Variable* variable = graph.VariableOf(value);
  return variable != nullptr && !variable->trainable;
}

// Evaluation for one BatchNormalization: what read the new running statistics reads the old ones.
absl::Status Freeze(Graph& graph, NodeId id) {
  graph.node(id).attributes.Set("training_mode", int64_t{0});
  for (int i = 1; i < 3; ++i) {
    const Node& node = graph.node(id);
    if (i >= static_cast<int>(node.outputs.size()) || !node.outputs[i].valid()) continue;
    graph.ReplaceUses(node.outputs[i], node.inputs[i + 2]);
    graph.DropOutput(id, i);
  }
  return InferNode(graph, id);
}

absl::Status FreezeParts(Graph& graph) {
  WEFT_ASSIGN_OR_RETURN(const std::vector<bool> depends, DependsOnTrained(graph));
  for (const NodeId id : graph.node_ids()) {
    Node& node = graph.node(id);
    if (Trains(node) && IsFrozen(graph, node.inputs[1]) && IsFrozen(graph, node.inputs[2])) {
      WEFT_RETURN_IF_ERROR(Freeze(graph, id));
    }
    if (IsDropout(node) && !depends[node.inputs[0].value]) SetInput(node, kTrainingMode, kNoValue);
  }
  return absl::OkStatus();
}

// ---- Running statistics.

// A node that updates a running statistic with that of a micro-batch.
struct Update {
  NodeId node;
  ValueId statistic;
  double momentum = 0;
};

// Output `i`, the statistics of the micro-batch alone. What read it gets the average that it was.
absl::StatusOr<ValueId> BatchStatistic(Graph& graph, NodeId id, int i, double momentum) {
  const ValueId running = graph.node(id).inputs[i + 2];
  const std::string name = absl::StrCat(graph.node(id).name, i == 1 ? "/mean" : "/variance");
  const ValueId statistic = graph.AddNodeOutput(id, i, name);
  WEFT_RETURN_IF_ERROR(InferNode(graph, id));
  const bool is_output =
      std::find(graph.outputs().begin(), graph.outputs().end(), statistic) != graph.outputs().end();
  if (graph.BuildUses()[statistic.value].empty() && !is_output) return statistic;
  GraphBuilder builder(graph);
  builder.set_name_prefix(absl::StrCat(name, "/"));
  const DType dtype = builder.type(statistic).dtype;
  const ValueId kept = builder.Op("Mul", {running, builder.Scalar(dtype, momentum)});
  // Built on a stand-in first, since it reads what it replaces.
  const ValueId share = builder.Op("Identity", {running});
  const ValueId added = builder.Op("Mul", {share, builder.Scalar(dtype, 1 - momentum)});
  const ValueId average = builder.Op("Add", {kept, added});
  WEFT_RETURN_IF_ERROR(builder.status());
  graph.ReplaceUses(statistic, average);
  graph.ReplaceUses(share, statistic);
  graph.RemoveNode(graph.value(share).producer);
  return statistic;
}

// running <- (1 - sum of weights) running + sum of terms, over all micro-batches and updates.
absl::Status AddAverage(Graph& graph, const std::string& variable,
                        const std::vector<Update>& updates) {
  const ValueId running = graph.FindVariable(variable)->value;
  double decay = 1;
  for (const Update& update : updates) decay *= update.momentum;
  std::vector<ValueId> terms;
  std::vector<ValueId> weights;
  double later = 1;  // what the updates after this one leave of it
  GraphBuilder step(graph);
  step.set_phase(Phase::kUpdate);
  step.set_name_prefix(absl::StrCat("update/", variable, "/"));
  step.set_origin({graph.node(updates.back().node).name, variable, false});
  for (auto update = updates.rbegin(); update != updates.rend(); ++update) {
    const std::string name = graph.node(update->node).name;
    GraphBuilder forward(graph);
    forward.set_origin({name, variable, false});
    forward.set_name_prefix(absl::StrCat(name, "/running/"));
    const double share = (1 - update->momentum) * later;
    const std::vector<ValueId> term = forward.Ops(
        std::string(kWeftDomain), "RunningTerm", {update->statistic},
        {{"decay", static_cast<float>(decay)}, {"share", static_cast<float>(share)}}, {true, true});
    WEFT_RETURN_IF_ERROR(forward.status());
    terms.push_back(step.WeftOp("Accumulate", {term[0]}));
    weights.push_back(step.WeftOp("Accumulate", {term[1]}));
    later *= update->momentum;
  }
  for (size_t i = 1; i < terms.size(); ++i) {
    terms[0] = step.Op("Add", {terms[0], terms[i]});
    weights[0] = step.Op("Add", {weights[0], weights[i]});
  }
  const ValueId kept = step.Op("Sub", {step.Scalar(step.type(running).dtype, 1), weights[0]});
  const ValueId average = step.Op("Add", {step.Op("Mul", {running, kept}), terms[0]});
  WEFT_RETURN_IF_ERROR(step.status());
  graph.SetVariableUpdate(variable, average);
  return absl::OkStatus();
}

bool HasOutput(const Node& node, int i) {
  return i < static_cast<int>(node.outputs.size()) && node.outputs[i].valid();
}

absl::Status AddRunningStatistics(Graph& graph) {
  std::map<std::string, std::vector<Update>> updates;  // by variable
  WEFT_ASSIGN_OR_RETURN(const std::vector<NodeId> order, graph.TopologicalOrder());
  for (const NodeId id : order) {
    if (!Trains(graph.node(id))) continue;
    std::string variables[3];
    for (int i = 1; i < 3; ++i) {
      const Variable* variable = graph.VariableOf(graph.node(id).inputs[i + 2]);
      if (variable != nullptr && !variable->trainable) variables[i] = variable->name;
    }
    if (variables[1].empty() && variables[2].empty()) continue;
    const double momentum = graph.node(id).attributes.Float("momentum", 0.9f);
    graph.node(id).attributes.Set("momentum", 0.0f);
    for (int i = 1; i < 3; ++i) {
      if (variables[i].empty() && !HasOutput(graph.node(id), i)) continue;
      WEFT_ASSIGN_OR_RETURN(const ValueId statistic, BatchStatistic(graph, id, i, momentum));
      if (!variables[i].empty()) updates[variables[i]].push_back({id, statistic, momentum});
    }
  }
  for (const auto& [variable, of_nodes] : updates) {
    WEFT_RETURN_IF_ERROR(AddAverage(graph, variable, of_nodes));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status EnterTraining(Graph& graph, const std::vector<std::string>& patterns) {
  WEFT_RETURN_IF_ERROR(TurnOn(graph, patterns));
  FixInputs(graph, /*training=*/true);
  WEFT_RETURN_IF_ERROR(FreezeParts(graph));
  return AddRunningStatistics(graph);
}

absl::Status LeaveTraining(Graph& graph) {
  FixInputs(graph, /*training=*/false);
  for (const NodeId id : graph.node_ids()) {
    Node& node = graph.node(id);
    if (Trains(node)) WEFT_RETURN_IF_ERROR(Freeze(graph, id));
    if (IsDropout(node)) SetInput(node, kTrainingMode, kNoValue);
  }
  return absl::OkStatus();
}

}  // namespace weft
