#include "placement/partition/rank_partition.h"

#include <set>

#include "absl/strings/str_cat.h"
#include "graph/inference.h"
#include "graph/schedule/action_list.h"
#include "placement/graph_views/graph_node_view.h"
#include "placement/partition/gradient_reduction.h"
#include "placement/partition/local_graph.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

class RankPartitioner {
 public:
  RankPartitioner(const StepLayout& layout, RankId rank)
      : layout_(layout),
        plan_(*layout.plan),
        at_(plan_.mesh.CoordinateOf(rank)),
        own_(layout.split.OfReplica(plan_, at_.data)),
        sums_(layout, at_, own_) {
    partition_.rank = rank;
  }

  absl::StatusOr<Partition> Run() {
    FillHeader();
    WEFT_RETURN_IF_ERROR(BuildMicro());
    WEFT_RETURN_IF_ERROR(BuildEnd());
    WEFT_RETURN_IF_ERROR(BuildBegin());
    partition_.accumulations = std::move(sums_.accumulations());
    CollectVariables();
    CollectInputs();
    WEFT_ASSIGN_OR_RETURN(
        partition_.actions,
        MakeActions(plan_.schedule, plan_.mesh.pipeline, at_.pipeline,
                    static_cast<int>(own_.size()), layout_.shape.training, plan_.chunks));
    return std::move(partition_);
  }

 private:
  bool IsHere(const Node& node) const { return layout_.PlaceOf(node.stage) == at_.pipeline; }
  void FillHeader();
  absl::Status BuildMicro();
  absl::Status BuildMicroGraph(const SizedGraph& sized);
  absl::Status AddLateSends(LocalGraph& micro);
  absl::Status BuildEnd();
  absl::Status AddNodes(const std::vector<NodeId>& nodes, LocalGraph& end);
  absl::Status AddReport(ValueId report, LocalGraph& end);
  absl::Status AddUpdates(LocalGraph& end);
  absl::Status BuildBegin();
  void Keep(LocalGraph& local, Graph& graph);
  void CollectVariables();
  void CollectInputs();
  void AddFeed(const Graph& graph, ValueId input);

  const StepLayout& layout_;
  const Plan& plan_;
  const Mesh::Coordinate at_;
  const std::vector<MicroBatch> own_;
  GradientReducer sums_;
  Partition partition_;
};

void RankPartitioner::FillHeader() {
  partition_.mesh = plan_.mesh;
  partition_.training = layout_.shape.training;
  partition_.strict = plan_.strict;
  partition_.tf32 = plan_.tf32;
  partition_.host_ops = plan_.host_ops;
  partition_.uses_cudnn = plan_.uses_cudnn;
  partition_.fuses_nodes = plan_.fuses_nodes;
  partition_.commits = plan_.commits && layout_.shape.training;
  partition_.threads = plan_.ThreadsOf(partition_.rank);
  partition_.global_batch = layout_.shape.global_batch;
  partition_.total_micro_batches = layout_.split.total();
  partition_.micro_batches = own_;
}

void RankPartitioner::Keep(LocalGraph& local, Graph& graph) {
  partition_.channels.insert(partition_.channels.end(), local.channels().begin(),
                             local.channels().end());
  graph = std::move(local.graph());
}

// One graph per size that this rank has, in the order of first use.
absl::Status RankPartitioner::BuildMicro() {
  std::vector<int> graph_of_size(layout_.sizes.size(), -1);
  for (MicroBatch& micro_batch : partition_.micro_batches) {
    int& graph = graph_of_size[micro_batch.graph];
    if (graph < 0) {
      WEFT_RETURN_IF_ERROR(BuildMicroGraph(layout_.sizes[micro_batch.graph]));
      graph = static_cast<int>(partition_.micro.size()) - 1;
    }
    micro_batch.graph = graph;
  }
  return absl::OkStatus();
}

absl::Status RankPartitioner::BuildMicroGraph(const SizedGraph& sized) {
  LocalGraph micro(layout_, sized, sized.edges, at_);
  Phase phase = Phase::kForward;
  for (const NodeId id : sized.micro_nodes) {
    const Node& node = sized.graph.node(id);
    if (!IsHere(node)) continue;
    if (node.phase != phase) WEFT_RETURN_IF_ERROR(AddLateSends(micro));
    phase = node.phase;
    WEFT_RETURN_IF_ERROR(micro.AddNode(id));
  }
  if (phase == Phase::kForward) WEFT_RETURN_IF_ERROR(AddLateSends(micro));
  WEFT_RETURN_IF_ERROR(sums_.AddTerms(micro));
  partition_.micro.emplace_back();
  Keep(micro, partition_.micro.back());
  return absl::OkStatus();
}

// Forward values that an earlier stage reads in its backward pass travel then: it would not take
// them before.
absl::Status RankPartitioner::AddLateSends(LocalGraph& micro) {
  const SizedGraph& sized = micro.sized();
  std::set<ValueId> sent;
  for (const StageEdge& edge : sized.edges.all()) {
    const NodeId producer = sized.graph.value(edge.value).producer;
    const bool is_late =
        edge.phase == Phase::kBackward && sized.graph.node(producer).phase == Phase::kForward;
    if (!is_late || edge.from != at_.pipeline || !sent.insert(edge.value).second) continue;
    micro.set_stage(sized.graph.node(producer).stage);
    WEFT_RETURN_IF_ERROR(micro.AddSends(edge.value, Phase::kBackward));
  }
  return absl::OkStatus();
}

absl::Status RankPartitioner::AddNodes(const std::vector<NodeId>& nodes, LocalGraph& end) {
  for (const NodeId id : nodes) {
    if (IsHere(layout_.step().graph.node(id))) WEFT_RETURN_IF_ERROR(end.AddNode(id));
  }
  return absl::OkStatus();
}

// Every rank has every report, so that all see the same guard.
absl::Status RankPartitioner::AddReport(ValueId report, LocalGraph& end) {
  const std::string& name = layout_.step().graph.value(report).name;
  WEFT_ASSIGN_OR_RETURN(const ValueId local,
                        end.Get(report, AxisSharding::Replicated(), Phase::kUpdate));
  Graph& graph = end.graph();
  if (graph.value(local).name != name) {
    // A conversion has made it: the report's name goes to the whole value.
    if (const std::optional<ValueId> shard = graph.FindValue(name)) {
      graph.RenameValue(*shard, absl::StrCat(name, "@shard"));
    }
    graph.RenameValue(local, name);
  }
  graph.AddOutput(local);
  partition_.reports.push_back(name);
  return absl::OkStatus();
}

absl::Status RankPartitioner::AddUpdates(LocalGraph& end) {
  const SizedGraph& step = layout_.step();
  for (const Variable& variable : step.graph.variables()) {
    if (layout_.owner.at(variable.name) != at_.pipeline || !variable.update.valid()) continue;
    const AxisSharding& sharding = step.shardings.variables.at(variable.name);
    const auto get = layout_.HasRows(variable) ? &LocalGraph::GetRows : &LocalGraph::Get;
    WEFT_RETURN_IF_ERROR((end.*get)(variable.value, sharding, Phase::kUpdate).status());
    WEFT_ASSIGN_OR_RETURN(const ValueId update,
                          (end.*get)(variable.update, sharding, Phase::kUpdate));
    end.graph().SetVariableUpdate(variable.name, update);
  }
  return absl::OkStatus();
}

absl::Status RankPartitioner::BuildEnd() {
  LocalGraph end(layout_, layout_.step(), layout_.end_edges, at_);
  // What the guard needs comes first. Where that shares a bucket with the rest, it travels with it:
  // one message less.
  sums_.GroupSumsOf(end);
  WEFT_RETURN_IF_ERROR(sums_.AddFirstSums(end));
  WEFT_RETURN_IF_ERROR(AddNodes(layout_.guard_nodes, end));
  if (layout_.guard.valid()) {
    WEFT_RETURN_IF_ERROR(AddReport(layout_.guard, end));
    partition_.guard = layout_.step().graph.value(layout_.guard).name;
  }
  WEFT_RETURN_IF_ERROR(sums_.AddLaterSums(end));
  WEFT_RETURN_IF_ERROR(AddNodes(layout_.step_nodes, end));
  for (const ValueId report : layout_.reports) {
    if (report != layout_.guard) WEFT_RETURN_IF_ERROR(AddReport(report, end));
  }
  WEFT_RETURN_IF_ERROR(AddUpdates(end));
  Keep(end, partition_.end);
  return absl::OkStatus();
}

// What all replicas of this stage gather comes first, and all sends come before all receives: two
// stages that fetch from each other do not wait in a circle.
absl::Status RankPartitioner::BuildBegin() {
  LocalGraph begin(layout_, layout_.step(), layout_.begin_edges, at_);
  for (const Variable& variable : layout_.step().graph.variables()) {
    if (layout_.owner.at(variable.name) == at_.pipeline && variable.slot_of.empty() &&
        layout_.HasRows(variable)) {
      WEFT_RETURN_IF_ERROR(begin.GatherVariable(variable));
    }
  }
  std::set<ValueId> sent;
  for (const StageEdge& edge : layout_.begin_edges.all()) {
    if (edge.from != at_.pipeline || !sent.insert(edge.value).second) continue;
    WEFT_RETURN_IF_ERROR(begin.AddSends(edge.value, Phase::kBegin));
  }
  for (const StageEdge& edge : layout_.begin_edges.all()) {
    if (edge.to != at_.pipeline) continue;
    WEFT_ASSIGN_OR_RETURN(const ValueId fetched, begin.Fetch(edge.value));
    begin.graph().AddOutput(fetched);
  }
  Keep(begin, partition_.begin);
  return absl::OkStatus();
}

void RankPartitioner::CollectVariables() {
  std::set<std::string> used;
  std::vector<const Graph*> graphs = {&partition_.begin, &partition_.end};
  for (const Graph& graph : partition_.micro) graphs.push_back(&graph);
  for (const Graph* graph : graphs) {
    for (const Variable& variable : graph->variables()) used.insert(variable.name);
  }
  const SizedGraph& step = layout_.step();
  for (const Variable& variable : step.graph.variables()) {
    if (!used.contains(variable.name)) continue;
    VariableShard shard;
    shard.name = variable.name;
    shard.dtype = step.graph.value(variable.value).type.dtype;
    shard.global_shape = ShapeOf(step.graph, variable.value);
    shard.tensor_sharding = step.shardings.variables.at(variable.name);
    shard.local_shape =
        shard.tensor_sharding.LocalShape(shard.global_shape, plan_.mesh.tensor, at_.tensor);
    shard.tensor_shards = plan_.mesh.tensor;
    shard.tensor_index = at_.tensor;
    if (layout_.HasRows(variable)) {
      shard.data_shards = plan_.mesh.data;
      shard.data_index = at_.data;
      shard.local_shape =
          AxisSharding::Split(0).LocalShape(shard.local_shape, shard.data_shards, shard.data_index);
    }
    shard.trainable = variable.trainable;
    shard.slot_of = variable.slot_of;
    shard.is_primary = (at_.data == 0 || shard.data_shards > 1) &&
                       (at_.tensor == 0 || shard.tensor_sharding.is_split());
    partition_.variables.push_back(std::move(shard));
  }
}

void RankPartitioner::AddFeed(const Graph& graph, ValueId input) {
  const ValueDef& value = graph.value(input);
  // Only inputs of the logical graph come from outside; others come from sums and from `begin`.
  const std::optional<ValueId> logical = layout_.step().graph.FindValue(value.name);
  if (!logical.has_value() || layout_.step().graph.value(*logical).source != ValueSource::kInput) {
    return;
  }
  for (const FeedInput& feed : partition_.inputs) {
    if (feed.name == value.name) return;
  }
  FeedInput feed;
  feed.name = value.name;
  feed.role = graph.input_role(input);
  feed.dtype = value.type.dtype;
  const Shape shape = ShapeOf(graph, input);
  const bool is_data = feed.role == InputRole::kData;
  feed.sample_shape = is_data ? Shape(shape.dims().subspan(1)) : shape;
  partition_.inputs.push_back(std::move(feed));
}

void RankPartitioner::CollectInputs() {
  for (const Graph& graph : partition_.micro) {
    for (const ValueId input : graph.inputs()) AddFeed(graph, input);
  }
  for (const ValueId input : partition_.end.inputs()) AddFeed(partition_.end, input);
}

}  // namespace

absl::StatusOr<Partition> BuildRankPartition(const StepLayout& layout, RankId rank) {
  return RankPartitioner(layout, rank).Run();
}

}  // namespace weft
