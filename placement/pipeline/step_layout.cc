#include "placement/pipeline/step_layout.h"

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "graph/node_class.h"
#include "graph/node_description.h"
#include "graph/verifier.h"
#include "placement/graph_views/evaluation_step.h"
#include "placement/pipeline/recomputation.h"
#include "placement/pipeline/stage_assignment.h"
#include "placement/pipeline/whole_batch.h"
#include "placement/rules/stage_transfers.h"
#include "placement/rules/step_order.h"
#include "placement/rules/step_skeleton.h"
#include "placement/rules/sum_groups.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

// When the node's stage comes in a micro-batch: forward from stage to stage, then back.
std::pair<Phase, int> TurnOf(const Node& node) {
  const bool is_forward = node.phase == Phase::kForward;
  return {node.phase, is_forward ? node.stage.value : -node.stage.value};
}

// The shapes of all data inputs for `samples` samples.
absl::StatusOr<Specialization> ShapesFor(const Graph& graph, int64_t samples) {
  Specialization specialization;
  for (const ValueId id : graph.inputs()) {
    const ValueDef& input = graph.value(id);
    if (graph.input_role(id) != InputRole::kData) continue;
    Shape shape({samples});
    bool concrete = input.type.shape.has_rank() && input.type.shape.rank() >= 1;
    for (int axis = 1; concrete && axis < input.type.shape.rank(); ++axis) {
      concrete = input.type.shape.dim(axis).is_known();
      if (concrete) shape.AddDim(input.type.shape.dim(axis).size());
    }
    if (!concrete) {
      return absl::InvalidArgumentError(
          absl::StrCat("data input '", input.name, "' is ", input.type.ToString(),
                       "; every axis but the first, which counts the samples, must have a size"));
    }
    specialization.input_shapes[input.name] = shape;
  }
  return specialization;
}

// What runs again lies as it did.
void CopyShardings(const RecomputedNode& node, SizedGraph& sized) {
  const Graph& graph = sized.graph;
  sized.shardings.nodes.resize(graph.node_capacity());
  sized.shardings.values.resize(graph.value_capacity());
  sized.shardings.nodes[node.copy.value] = sized.shardings.nodes[node.original.value];
  const std::vector<ValueId>& from = graph.node(node.original).outputs;
  const std::vector<ValueId>& to = graph.node(node.copy).outputs;
  for (size_t i = 0; i < to.size(); ++i) {
    if (to[i].valid()) sized.shardings.values[to[i].value] = sized.shardings.values[from[i].value];
  }
}

class StepPlanner {
 public:
  StepPlanner(const Plan& plan, const StepShape& shape, NodeEvaluator& evaluator)
      : evaluator_(evaluator) {
    layout_.plan = &plan;
    layout_.shape = shape;
  }

  absl::StatusOr<StepLayout> Run(const Graph& graph) {
    WEFT_RETURN_IF_ERROR(Prepare(graph));
    for (const int64_t samples : layout_.split.sizes) WEFT_RETURN_IF_ERROR(AddSize(samples));
    WEFT_RETURN_IF_ERROR(FindReports());
    OrderStep();
    AddBeginEdges();
    AddEndEdges();
    WEFT_RETURN_IF_ERROR(ShardData());
    NumberChannels();
    return std::move(layout_);
  }

 private:
  const Plan& plan() const { return *layout_.plan; }
  absl::Status Prepare(const Graph& graph);
  absl::Status AddSize(int64_t samples);
  absl::Status OrderMicroNodes(SizedGraph& sized);
  PropagationOptions Options() const;
  absl::Status AddMicroEdges(SizedGraph& sized) const;
  absl::StatusOr<Phase> PhaseOfEdge(const SizedGraph& sized, ValueId value, int from, int to) const;
  absl::Status FindReports();
  void OrderStep();
  void AddBeginEdges();
  void AddEndEdges();
  void AddEndEdge(ValueId value, int to);
  absl::Status ShardData();
  void NumberChannels();

  NodeEvaluator& evaluator_;
  Graph logical_;
  RecomputedSegments recomputed_;
  std::set<std::string> over_replicas_;  // nodes (whole_batch.h)
  // Of sizes[0].graph before nodes that run again were added: the order of the step region, and
  // with it what shares a bucket, does not depend on recomputation.
  std::vector<NodeId> step_order_;
  StepLayout layout_;
};

absl::Status StepPlanner::Prepare(const Graph& graph) {
  VerifyOptions options;
  options.training = true;
  WEFT_RETURN_IF_ERROR(VerifyGraph(graph, options));
  if (const std::vector<std::string> names = ValueInputsOf(graph); !names.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("the values of the inputs ",
                                                   absl::StrJoin(names, ", "),
                                                   " decide shapes; fix them before partitioning"));
  }
  WEFT_ASSIGN_OR_RETURN(layout_.split,
                        SplitBatch(layout_.shape.global_batch, plan().micro_batches));
  // Of an evaluation too: it takes running statistics, but what pairs samples it must not cut.
  if (plan().whole_batch) WEFT_RETURN_IF_ERROR(CheckOneMicroBatchEach(layout_.split, plan()));
  logical_ = graph.Clone();
  if (!layout_.shape.training) WEFT_RETURN_IF_ERROR(KeepEvaluation(logical_));
  if (plan().mesh.tensor > 1 && layout_.shape.training) {
    WEFT_RETURN_IF_ERROR(CheckShardingHints(graph, plan().tensor_shardings));
  }
  WEFT_ASSIGN_OR_RETURN(layout_.owner, AssignStages(logical_, plan()));
  for (auto& [name, owner] : layout_.owner) owner = layout_.PlaceOf(StageId(owner));
  if (plan().whole_batch && layout_.shape.training && layout_.split.total() > 1) {
    WEFT_ASSIGN_OR_RETURN(over_replicas_,
                          NodesOverReplicas(logical_, layout_.split.sizes.front(), evaluator_));
  }
  if (layout_.shape.training && !plan().recompute.empty()) {
    WEFT_ASSIGN_OR_RETURN(recomputed_, FindRecomputedSegments(logical_, plan()));
  }
  return absl::OkStatus();
}

PropagationOptions StepPlanner::Options() const {
  PropagationOptions options;
  options.shards = plan().mesh.tensor;
  options.hints = plan().tensor_shardings;
  if (!layout_.sizes.empty()) options.accumulated = layout_.step().shardings.accumulated;
  return options;
}

absl::Status StepPlanner::AddSize(int64_t samples) {
  WEFT_ASSIGN_OR_RETURN(const Specialization shapes, ShapesFor(logical_, samples));
  SizedGraph sized;
  sized.samples = samples;
  WEFT_ASSIGN_OR_RETURN(sized.graph, Specialize(logical_, shapes, evaluator_));
  if (!over_replicas_.empty()) {
    const BatchPart part = {samples, layout_.shape.global_batch, layout_.split.total()};
    WEFT_RETURN_IF_ERROR(ComputeOverReplicas(sized.graph, over_replicas_, part));
  }
  const PropagationOptions options = Options();
  if (options.shards > 1) WEFT_RETURN_IF_ERROR(ExpandForHints(sized.graph, options));
  WEFT_ASSIGN_OR_RETURN(sized.shardings, PropagateShardings(sized.graph, options));
  WEFT_RETURN_IF_ERROR(OrderMicroNodes(sized));
  WEFT_RETURN_IF_ERROR(AddMicroEdges(sized));
  layout_.sizes.push_back(std::move(sized));
  return absl::OkStatus();
}

absl::Status StepPlanner::OrderMicroNodes(SizedGraph& sized) {
  WEFT_ASSIGN_OR_RETURN(const std::vector<NodeId> order, sized.graph.TopologicalOrder());
  if (layout_.sizes.empty()) step_order_ = order;
  for (const Phase phase : {Phase::kForward, Phase::kBackward}) {
    for (const NodeId id : order) {
      const Node& node = sized.graph.node(id);
      if (RunsPerMicroBatch(node) && node.phase == phase) sized.micro_nodes.push_back(id);
    }
  }
  std::stable_sort(sized.micro_nodes.begin(), sized.micro_nodes.end(), [&](NodeId a, NodeId b) {
    return TurnOf(sized.graph.node(a)) < TurnOf(sized.graph.node(b));
  });
  if (recomputed_.empty()) return absl::OkStatus();
  WEFT_ASSIGN_OR_RETURN(const std::vector<RecomputedNode> copies,
                        AddRecomputation(sized.graph, recomputed_));
  for (const RecomputedNode& node : copies) CopyShardings(node, sized);
  sized.micro_nodes = PlaceRecomputed(sized.graph, sized.micro_nodes, copies);
  return absl::OkStatus();
}

absl::StatusOr<Phase> StepPlanner::PhaseOfEdge(const SizedGraph& sized, ValueId value, int from,
                                               int to) const {
  const Node& producer = sized.graph.node(sized.graph.value(value).producer);
  const auto phase = PhaseOfTransfer(producer.phase == Phase::kForward, from, to);
  if (phase.has_value()) return *phase;
  return absl::InvalidArgumentError(
      absl::StrCat("'", sized.graph.value(value).name, "', made by ", DescribeNode(producer),
                   " in the backward pass on stage ", from, ", is read on the later stage ", to,
                   "; the backward pass goes from late stages to early ones"));
}

absl::Status StepPlanner::AddMicroEdges(SizedGraph& sized) const {
  for (const NodeId id : sized.micro_nodes) {
    const Node& node = sized.graph.node(id);
    for (const ValueId input : node.inputs) {
      if (!input.valid() || sized.graph.value(input).source != ValueSource::kNode) continue;
      const Node& producer = sized.graph.node(sized.graph.value(input).producer);
      if (!RunsPerMicroBatch(producer)) {
        return absl::InvalidArgumentError(
            absl::StrCat(DescribeNode(node), " runs per micro-batch but reads '",
                         sized.graph.value(input).name, "', which is made once per step"));
      }
      if (producer.stage == node.stage) continue;
      WEFT_ASSIGN_OR_RETURN(const Phase phase,
                            PhaseOfEdge(sized, input, producer.stage.value, node.stage.value));
      const int from = layout_.PlaceOf(producer.stage);
      const int to = layout_.PlaceOf(node.stage);
      if (from != to) sized.edges.Add(input, from, to, {phase, node.stage.value});
    }
  }
  return absl::OkStatus();
}

absl::Status StepPlanner::FindReports() {
  const Graph& graph = layout_.step().graph;
  for (const ValueId id : graph.outputs()) {
    const ValueDef& value = graph.value(id);
    const bool is_step =
        value.source == ValueSource::kNode && !RunsPerMicroBatch(graph.node(value.producer));
    if (!is_step) {
      return absl::InvalidArgumentError(
          absl::StrCat("graph output '", value.name,
                       "' is no value of the step; a value of a micro-batch becomes one through "
                       "Accumulate"));
    }
    if (std::find(layout_.reports.begin(), layout_.reports.end(), id) == layout_.reports.end()) {
      layout_.reports.push_back(id);
    }
  }
  if (layout_.shape.training) layout_.guard = GuardOf(graph);
  return absl::OkStatus();
}

// By NodeId: the update of a variable depends on it.
std::vector<bool> NodesOfUpdates(const Graph& graph) {
  std::vector<bool> found(graph.node_capacity());
  std::vector<ValueId> pending;
  for (const Variable& variable : graph.variables()) pending.push_back(variable.update);
  while (!pending.empty()) {
    const ValueId value = pending.back();
    pending.pop_back();
    if (!value.valid() || graph.value(value).source != ValueSource::kNode) continue;
    const NodeId producer = graph.value(value).producer;
    if (found[producer.value]) continue;
    found[producer.value] = true;
    const std::vector<ValueId>& inputs = graph.node(producer).inputs;
    pending.insert(pending.end(), inputs.begin(), inputs.end());
  }
  return found;
}

void StepPlanner::OrderStep() {
  const Graph& graph = layout_.step().graph;
  const std::vector<NodeId>& micro_nodes = layout_.step().micro_nodes;
  std::vector<int> position(graph.node_capacity(), -1);  // in the micro-batch
  for (size_t i = 0; i < micro_nodes.size(); ++i) {
    position[micro_nodes[i].value] = static_cast<int>(i);
  }
  const std::vector<bool> of_guard = NodesOfGuard(graph, layout_.guard);
  std::vector<SumTurn> later;
  for (const NodeId id : step_order_) {
    const Node& node = graph.node(id);
    const NodeRole role = RoleOf(node);
    if (role == NodeRole::kStep) {
      (of_guard[id.value] ? layout_.guard_nodes : layout_.step_nodes).push_back(id);
    } else if (role == NodeRole::kBoundary && IsFirstSum(graph, of_guard, id)) {
      layout_.first_sums.push_back(id);
    } else if (role == NodeRole::kBoundary) {
      const NodeId producer = graph.value(node.inputs[0]).producer;
      later.push_back({graph.node(producer).stage.value, position[producer.value], id});
    }
  }
  std::sort(later.begin(), later.end(), IsSummedBefore);
  const std::vector<bool> of_updates = NodesOfUpdates(graph);
  for (const SumTurn& turn : later) {
    layout_.later_sums.push_back(turn.sum);
    const bool is_report = layout_.shape.training && !of_updates[turn.sum.value];
    if (is_report) layout_.report_sums.insert(turn.sum);
  }
}

// Variables that a stage reads and another one owns.
void StepPlanner::AddBeginEdges() {
  const auto add = [this](const SizedGraph& sized, ValueId value, int to) {
    if (!value.valid() || sized.graph.value(value).source != ValueSource::kVariable) return;
    const int from = layout_.HomeOf(sized, value);
    if (from == to) return;
    // Ids of variables' values differ between the sizes' graphs: the first graph's are used.
    const std::optional<ValueId> id = layout_.step().graph.FindValue(sized.graph.value(value).name);
    if (id.has_value()) layout_.begin_edges.Add(*id, from, to, {Phase::kBegin, to});
  };
  for (const SizedGraph& sized : layout_.sizes) {
    for (const NodeId id : sized.graph.node_ids()) {
      const Node& node = sized.graph.node(id);
      for (const ValueId input : node.inputs) add(sized, input, layout_.PlaceOf(node.stage));
    }
  }
  for (const Variable& variable : layout_.step().graph.variables()) {
    add(layout_.step(), variable.update, layout_.owner.at(variable.name));
  }
}

void StepPlanner::AddEndEdge(ValueId value, int to) {
  if (!value.valid() || layout_.step().graph.value(value).source != ValueSource::kNode) return;
  const int from = layout_.HomeOf(layout_.step(), value);
  if (from != to) layout_.end_edges.Add(value, from, to, {Phase::kUpdate, to});
}

void StepPlanner::AddEndEdges() {
  const Graph& graph = layout_.step().graph;
  for (const std::vector<NodeId>* nodes : {&layout_.guard_nodes, &layout_.step_nodes}) {
    for (const NodeId id : *nodes) {
      for (const ValueId input : graph.node(id).inputs) {
        AddEndEdge(input, layout_.PlaceOf(graph.node(id).stage));
      }
    }
  }
  for (const ValueId report : layout_.reports) {
    for (int place = 0; place < plan().mesh.pipeline; ++place) AddEndEdge(report, place);
  }
  for (const Variable& variable : graph.variables()) {
    AddEndEdge(variable.update, layout_.owner.at(variable.name));
  }
}

absl::Status StepPlanner::ShardData() {
  const SizedGraph& step = layout_.step();
  const VariableShardings& variables = step.shardings.variables;
  layout_.data = layout_.shape.training ? FindDataShardings(step.graph, plan(), variables)
                                        : FindStoredShardings(step.graph, plan(), variables);
  for (const auto& [id, by_rows] : layout_.data.nodes) {
    const Node& node = step.graph.node(id);
    for (const ValueId input : node.inputs) {
      if (!input.valid() || step.graph.value(input).source != ValueSource::kVariable) continue;
      if (layout_.HomeOf(step, input) == layout_.PlaceOf(node.stage)) continue;
      return absl::InvalidArgumentError(absl::StrCat(
          "zero=", plan().zero, ": ", DescribeNode(node), " on place ", layout_.PlaceOf(node.stage),
          " of the pipeline updates '", step.graph.value(input).name, "' of place ",
          layout_.HomeOf(step, input), "; both must be on one place"));
    }
  }
  if (layout_.data.nodes.empty()) return absl::OkStatus();
  const RowReaders readers(step.graph, step.shardings);
  ExtendToInputs(readers, layout_.data);
  const DataAxis axis = DataAxisOf(plan());
  if (!ScattersSums(axis)) return absl::OkStatus();
  for (const NodeId sum : layout_.later_sums) {
    const ValueId output = step.graph.node(sum).outputs[0];
    const SumUse use = {/*is_first=*/false, readers.ReadRowsOnly(output, layout_.data),
                        !layout_.end_edges.From(output).empty()};
    if (IsScattered(axis, use)) layout_.scattered_sums.insert(sum);
  }
  return absl::OkStatus();
}

void StepPlanner::NumberChannels() {
  const int per_edge = plan().mesh.data * plan().mesh.tensor;
  int next = layout_.begin_edges.NumberChannels(0, per_edge);
  for (SizedGraph& sized : layout_.sizes) next = sized.edges.NumberChannels(next, per_edge);
  layout_.end_edges.NumberChannels(next, per_edge);
}

}  // namespace

void StageEdges::Add(ValueId value, int from, int to, const StageRead& read) {
  const auto [it, is_new] = index_.try_emplace({value, to}, edges_.size());
  if (!is_new) {
    StageEdge& edge = edges_[it->second];
    const StageRead first = FirstRead({edge.phase, edge.stage}, read);
    edge.phase = first.phase;
    edge.stage = first.stage;
    return;
  }
  edges_.push_back({value, from, to, read.phase, read.stage, 0});
}

const StageEdge* StageEdges::Find(ValueId value, int to) const {
  const auto it = index_.find({value, to});
  return it == index_.end() ? nullptr : &edges_[it->second];
}

std::vector<const StageEdge*> StageEdges::From(ValueId value) const {
  std::vector<const StageEdge*> found;
  for (auto it = index_.lower_bound({value, -1}); it != index_.end() && it->first.first == value;
       ++it) {
    found.push_back(&edges_[it->second]);
  }
  return found;
}

int StageEdges::NumberChannels(int first, int per_edge) {
  for (StageEdge& edge : edges_) {
    edge.first_channel = first;
    first += per_edge;
  }
  return first;
}

bool StepLayout::HasRows(const Variable& variable) const {
  if (!variable.slot_of.empty()) return data.parameters.contains(variable.slot_of);
  return plan->zero == 3 && data.parameters.contains(variable.name);
}

int StepLayout::HomeOf(const SizedGraph& sized, ValueId value) const {
  const ValueDef& def = sized.graph.value(value);
  switch (def.source) {
    case ValueSource::kNode:
      return PlaceOf(sized.graph.node(def.producer).stage);
    case ValueSource::kVariable:
      return owner.at(sized.graph.VariableOf(value)->name);
    default:
      return -1;
  }
}

absl::StatusOr<StepLayout> LayOutStep(const Graph& graph, const Plan& plan, const StepShape& shape,
                                      NodeEvaluator& evaluator) {
  return StepPlanner(plan, shape, evaluator).Run(graph);
}

}  // namespace weft
