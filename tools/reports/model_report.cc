#include "tools/reports/model_report.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "executor/lowering/node_context.h"
#include "graph/expansion.h"
#include "graph/inference.h"
#include "graph/node_bodies.h"
#include "graph/node_description.h"
#include "graph/op_schema.h"
#include "ops/node_runner.h"
#include "ops/op_support.h"
#include "platform/status_macros.h"
#include "platform/text/nearest_name.h"

namespace weft {
namespace {

Ability RunsOnCpu(const Node& node) {
  if (node.schema == nullptr) return Ability::kNo;
  return RunsNode(node) || node.schema->expand() != nullptr ? Ability::kYes : Ability::kNo;
}

Ability Trains(const Node& node) {
  if (node.schema == nullptr) return Ability::kNo;
  switch (TrainSupportOf(*node.schema)) {
    case TrainSupport::kRule:
    case TrainSupport::kExpanded:
      return Ability::kYes;
    case TrainSupport::kNone:
      return Ability::kNotNeeded;
    case TrainSupport::kNo:
      return Ability::kNo;
  }
  return Ability::kNo;
}

Ability CanShard(const Node& node) {
  return node.schema != nullptr && Shards(*node.schema) ? Ability::kYes : Ability::kNo;
}

std::vector<OpRow> OpTable(const Graph& graph, const std::map<std::string, double>& flops) {
  std::map<std::string, OpRow> rows;
  for (const NodeId id : graph.node_ids()) {
    const Node& node = graph.node(id);
    OpRow& row = rows[FullOpName(node)];
    ++row.count;
    row.runs = RunsOnCpu(node);
    row.trains = Trains(node);
    row.shards = CanShard(node);
  }
  std::vector<OpRow> table;
  for (auto& [op, row] : rows) {
    row.op = op;
    if (const auto found = flops.find(op); found != flops.end()) row.flops = found->second;
    table.push_back(std::move(row));
  }
  std::stable_sort(table.begin(), table.end(),
                   [](const OpRow& a, const OpRow& b) { return a.count > b.count; });
  return table;
}

// By node id: whether a trainable variable can change what the node computes.
absl::StatusOr<std::vector<bool>> NodesBehindParameters(const Graph& graph) {
  std::vector<bool> reached_value(graph.value_capacity());
  std::vector<bool> reached_node(graph.node_capacity());
  for (const Variable& variable : graph.variables()) {
    if (variable.trainable) reached_value[variable.value.value] = true;
  }
  WEFT_ASSIGN_OR_RETURN(const std::vector<NodeId> order, graph.TopologicalOrder());
  for (const NodeId id : order) {
    const Node& node = graph.node(id);
    for (const ValueId input : node.inputs) {
      if (input.valid() && reached_value[input.value]) reached_node[id.value] = true;
    }
    if (!reached_node[id.value] || Trains(node) == Ability::kNotNeeded) continue;
    for (const ValueId output : node.outputs) {
      if (output.valid()) reached_value[output.value] = true;
    }
  }
  return reached_node;
}

std::string UnknownOperatorText(const Graph& graph, const Node& node) {
  const auto opset = graph.opsets.find("");
  const int64_t newest = KnownOpsets().newest;
  const bool is_later =
      node.domain.empty() && opset != graph.opsets.end() && opset->second > newest;
  return absl::StrCat("unknown operator",
                      is_later ? absl::StrCat(" (of operator set ", opset->second, "? ",
                                              KnownOpsets().oldest, " to ", newest, " are known)")
                               : "",
                      DidYouMean(node));
}

// Of what runs: functions without a kernel count as their expansions, bodies included.
absl::Status FindProblems(const Graph& model, ModelReport& report) {
  Graph graph = model.Clone();
  std::vector<absl::Status> refusals;
  WEFT_RETURN_IF_ERROR(ExpandFunctions(graph, RunsNode, &refusals).status());
  WEFT_ASSIGN_OR_RETURN(const std::vector<bool> behind_parameters, NodesBehindParameters(graph));
  for (const NodeId id : graph.node_ids()) {
    const Node& node = graph.node(id);
    const std::string op = FullOpName(node);
    if (node.schema == nullptr) {
      report.cannot_run.push_back({node.name, op, UnknownOperatorText(model, node)});
    } else if (RunsOnCpu(node) == Ability::kNo) {
      report.cannot_run.push_back({node.name, op, "no kernel for the CPU"});
    }
    if (node.schema != nullptr && Trains(node) == Ability::kNo && behind_parameters[id.value]) {
      report.cannot_train.push_back({node.name, op, "no gradient rule"});
    }
    for (const NodeBody& body : BodiesOf(node)) {
      WEFT_RETURN_IF_ERROR(FindProblems(*body.graph, report));
    }
  }
  return absl::OkStatus();
}

// The sizes to count with: those given, and 1 for every other symbolic dimension of an input.
absl::StatusOr<std::map<std::string, int64_t>> BindDimensions(
    const Graph& graph, const std::map<std::string, int64_t>& given) {
  std::map<std::string, int64_t> sizes;
  for (const ValueId id : graph.inputs()) {
    const SymbolicShape& shape = graph.value(id).type.shape;
    if (!shape.has_rank()) continue;
    for (const Dim& dim : shape.dims()) {
      if (dim.is_symbol()) sizes[dim.symbol()] = 1;
    }
  }
  for (const auto& [name, size] : given) {
    const auto found = sizes.find(name);
    if (found == sizes.end()) {
      std::vector<std::string> known;
      for (const auto& [symbol, unused] : sizes) known.push_back(symbol);
      return absl::InvalidArgumentError(
          absl::StrCat("no input has a dimension called '", name, "'", DidYouMean(name, known)));
    }
    found->second = size;
  }
  return sizes;
}

// FLOPs by op of one forward pass with these sizes.
absl::StatusOr<std::map<std::string, double>> CountFlops(
    const Graph& graph, const std::map<std::string, int64_t>& sizes) {
  Specialization specialization;
  for (const ValueId id : graph.inputs()) {
    const ValueDef& input = graph.value(id);
    if (!input.type.shape.has_rank()) {
      return absl::InvalidArgumentError(
          absl::StrCat("input '", input.name, "' has an unknown rank"));
    }
    const SymbolicShape bound = input.type.shape.Bind(sizes);
    Shape shape;
    for (const Dim& dim : bound.dims()) {
      shape.AddDim(dim.is_known() ? dim.size() : 1);
    }
    specialization.input_shapes[input.name] = shape;
  }
  WEFT_ASSIGN_OR_RETURN(const Graph concrete,
                        Specialize(graph, specialization, CpuNodeEvaluator()));
  NodeContext::Settings settings;
  // Nothing runs: schemas count operations, which are the same on every device.
  settings.device = &CpuDevice();
  std::map<std::string, double> flops;
  for (const NodeId id : concrete.node_ids()) {
    const Node& node = concrete.node(id);
    WEFT_ASSIGN_OR_RETURN(const NodeContext view, NodeContext::Create(concrete, node, settings));
    double cost = 0;
    if (node.schema != nullptr && node.schema->cost()) {
      cost = node.schema->cost()(view).flops;
    } else if (view.HasOutput(0)) {
      cost = static_cast<double>(view.OutputShape(0).num_elements());
    }
    flops[FullOpName(node)] += cost;
  }
  return flops;
}

}  // namespace

std::string_view AbilityName(Ability ability) {
  switch (ability) {
    case Ability::kYes:
      return "yes";
    case Ability::kNotNeeded:
      return "-";
    case Ability::kNo:
      return "no";
  }
  return "";
}

std::string UnknownOpsetText(const ImportedModel& model) {
  if (model.unknown_opset == 0) return "";
  const KnownVersions known = KnownOpsets();
  return absl::StrCat("the model is written for operator set ", model.unknown_opset, ", and ",
                      known.oldest, " to ", known.newest,
                      " are known: each operator is taken in its form of ", known.newest);
}

absl::StatusOr<std::vector<NodeProblem>> NodesThatCannotRun(const Graph& model) {
  ModelReport report;
  WEFT_RETURN_IF_ERROR(FindProblems(model, report));
  return std::move(report.cannot_run);
}

absl::StatusOr<ModelReport> DescribeModel(ImportedModel& model, const ModelReportOptions& options) {
  ModelReport report;
  WEFT_ASSIGN_OR_RETURN(report.parameters, MarkTrainable(model, options.trainable));
  for (const ParameterDecision& decision : report.parameters) {
    if (!decision.trainable) continue;
    const auto shape = decision.type.shape.ToConcrete();
    report.trainable_elements += shape ? shape->num_elements() : 0;
  }
  WEFT_RETURN_IF_ERROR(FindProblems(model.graph, report));
  WEFT_ASSIGN_OR_RETURN(report.dimensions, BindDimensions(model.graph, options.dimensions));
  const auto flops = CountFlops(model.graph, report.dimensions);
  if (flops.ok()) {
    for (const auto& [op, count] : *flops) report.flops += count;
  } else {
    report.flops_unknown = std::string(flops.status().message());
  }
  report.ops = OpTable(model.graph, flops.ok() ? *flops : std::map<std::string, double>{});
  return report;
}

}  // namespace weft
