// LocalGraph: builds one graph of one rank from the global one. Internal to placement/.
#ifndef WEFT_PLACEMENT_PARTITION_LOCAL_GRAPH_H_
#define WEFT_PLACEMENT_PARTITION_LOCAL_GRAPH_H_

#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "absl/status/statusor.h"
#include "graph/graph.h"
#include "graph/partition.h"
#include "placement/conversions/conversion.h"
#include "placement/pipeline/step_layout.h"

namespace weft {

// Nodes are added in an order in which producers come first; that order is the order of ids and so
// the order in which the rank runs them. Inputs, constants, variables, receives and conversions
// appear when they are first read. Borrows the layout.
class LocalGraph {
 public:
  // `edges` are those that reach this graph from other stages (of micro-batches, or of the step).
  LocalGraph(const StepLayout& layout, const SizedGraph& sized, const StageEdges& edges,
             Mesh::Coordinate at);

  // This rank's part of a global value, lying as `wanted`; `phase` is that of the reader.
  absl::StatusOr<ValueId> Get(ValueId value, const AxisSharding& wanted, Phase phase);
  // This replica's rows of that part (layout.data).
  absl::StatusOr<ValueId> GetRows(ValueId value, const AxisSharding& wanted, Phase phase);
  // Says which local value is this replica's rows of a global one.
  void BindRows(ValueId value, ValueId local);
  // In the begin graph: all rows of a variable of this stage that is stored in rows, as an output
  // for the other graphs.
  absl::Status GatherVariable(const Variable& variable);
  // Adds this rank's shard of a node, then the sends of what it makes that belong to its phase.
  absl::Status AddNode(NodeId id);
  // What is added from now on besides nodes of the graph (receives, sends, conversions) belongs to
  // this stage; AddNode sets it to the node's. At first the rank's place on the pipeline axis.
  void set_stage(StageId stage) { stage_ = stage; }
  StageId stage() const { return stage_; }
  // Says which local value is this rank's part of a global one.
  void Bind(ValueId value, ValueId local) { bound_[value] = local; }
  // Adds the sends of `value` to other stages that run in `phase`.
  absl::Status AddSends(ValueId value, Phase phase);

  // Receives a value that another stage sends to this graph, if it has not been yet.
  absl::StatusOr<ValueId> Fetch(ValueId value);

  // The type of this rank's part.
  ValueType LocalType(ValueId value, const AxisSharding& sharding) const;
  // Notes in `local` where it lies in the global tensor.
  void Place(ValueId local, ValueId value, const AxisSharding& sharding);
  Shape LocalShape(const Shape& global, const AxisSharding& sharding) const;
  const AxisSharding& ShardingOf(ValueId value) const {
    return sized_.shardings.values[value.value];
  }
  // Where conversions and collectives of this rank stand.
  ConversionSite Site(Phase phase, const std::string& name, MeshAxis axis = MeshAxis::kTensor);

  Graph& graph() { return graph_; }
  const SizedGraph& sized() const { return sized_; }
  std::vector<Channel>& channels() { return channels_; }

 private:
  const Mesh& mesh() const { return layout_.plan->mesh; }
  const ValueDef& global(ValueId value) const { return sized_.graph.value(value); }
  absl::StatusOr<ValueId> Base(ValueId value);
  absl::StatusOr<ValueId> AddShardedConstant(ValueId value, const AxisSharding& wanted);
  absl::StatusOr<ValueId> Convert(ValueId value, const AxisSharding& from, const AxisSharding& to,
                                  Phase phase, ValueId local);
  absl::StatusOr<ValueId> AddVariable(ValueId value);
  absl::StatusOr<ValueId> AddStoredVariable(const Variable& variable, const ValueType& type);
  absl::StatusOr<ValueId> GatherRows(ValueId value);
  ValueType RowsType(ValueId value, const AxisSharding& sharding) const;
  absl::StatusOr<ValueId> Input(const Node& node, int index);
  void BecomeAllReduce(Graph::NodeSpec& spec) const;
  // Null unless each replica runs the node for its rows only.
  const std::vector<bool>* RowInputs(const Node& node) const;
  absl::Status BindOutputRows(const Node& node, NodeId local);
  absl::StatusOr<ValueId> AddReceive(ValueId value);
  Channel ChannelOf(const StageEdge& edge) const;
  absl::Status BindOutputs(const Node& node, NodeId local);

  const StepLayout& layout_;
  const SizedGraph& sized_;
  const StageEdges& edges_;
  const Mesh::Coordinate at_;
  StageId stage_;
  Graph graph_;
  std::vector<Channel> channels_;
  std::map<ValueId, ValueId> bound_;
  std::map<ValueId, ValueId> rows_;
  std::map<std::tuple<ValueId, AxisSharding::Kind, int, int64_t>, ValueId> converted_;
};

}  // namespace weft

#endif  // WEFT_PLACEMENT_PARTITION_LOCAL_GRAPH_H_
