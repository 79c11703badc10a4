#include "placement/partition/local_graph.h"

#include "absl/strings/str_cat.h"
#include "graph/inference.h"
#include "graph/node_class.h"
#include "graph/node_description.h"
#include "placement/graph_views/graph_node_view.h"
#include "placement/sharding/node_localizer.h"
#include "placement/sharding/tensor_shard.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

// Of the input that the begin graph feeds with all rows.
std::string GatheredName(const Variable& variable) {
  return absl::StrCat(variable.name, "@gathered");
}

}  // namespace

LocalGraph::LocalGraph(const StepLayout& layout, const SizedGraph& sized, const StageEdges& edges,
                       Mesh::Coordinate at)
    : layout_(layout), sized_(sized), edges_(edges), at_(at), stage_(at.pipeline) {
  graph_.name = sized.graph.name;
  graph_.opsets = sized.graph.opsets;
}

Shape LocalGraph::LocalShape(const Shape& global, const AxisSharding& sharding) const {
  return sharding.is_split() ? sharding.LocalShape(global, mesh().tensor, at_.tensor) : global;
}

ValueType LocalGraph::LocalType(ValueId value, const AxisSharding& sharding) const {
  ValueType type = global(value).type;
  type.shape = LocalShape(ShapeOf(sized_.graph, value), sharding);
  return type;
}

void LocalGraph::Place(ValueId local, ValueId value, const AxisSharding& sharding) {
  if (!sharding.is_split()) return;
  ShardSlice placement;
  placement.global_shape = ShapeOf(sized_.graph, value);
  placement.offset.assign(placement.global_shape.rank(), 0);
  const int64_t rest = placement.global_shape.dim(sharding.axis) / sharding.blocks;
  placement.offset[sharding.axis] = AxisSharding::ShardRange(rest, mesh().tensor, at_.tensor).first;
  graph_.value(local).placement = std::move(placement);
}

ConversionSite LocalGraph::Site(Phase phase, const std::string& name, MeshAxis axis) {
  ConversionSite site;
  site.graph = &graph_;
  site.axis = axis;
  site.phase = phase;
  site.stage = stage_;
  site.name = name;
  site.index = axis == MeshAxis::kData ? at_.data : at_.tensor;
  const std::vector<RankId> group = mesh().Group(mesh().RankOf(at_), axis);
  for (const RankId rank : group) site.group.push_back(rank.value);
  site.hosts = layout_.plan->HostsOf(group);
  return site;
}

absl::StatusOr<ValueId> LocalGraph::Get(ValueId value, const AxisSharding& wanted, Phase phase) {
  if (global(value).source == ValueSource::kConstant && wanted.is_split()) {
    return AddShardedConstant(value, wanted);
  }
  WEFT_ASSIGN_OR_RETURN(const ValueId base, Base(value));
  return Convert(value, ShardingOf(value), wanted, phase, base);
}

absl::StatusOr<ValueId> LocalGraph::Convert(ValueId value, const AxisSharding& from,
                                            const AxisSharding& to, Phase phase, ValueId local) {
  if (from == to) return local;
  const auto key = std::make_tuple(value, to.kind, to.axis, to.blocks);
  if (const auto it = converted_.find(key); it != converted_.end()) return it->second;
  ConversionSite site = Site(phase, absl::StrCat(global(value).name, "@", to.ToString()));
  site.origin = global(value).origin;
  WEFT_ASSIGN_OR_RETURN(const ValueId converted,
                        ConvertSharding(site, {local, ShapeOf(sized_.graph, value), from}, to));
  Place(converted, value, to);
  converted_[key] = converted;
  return converted;
}

absl::StatusOr<ValueId> LocalGraph::AddShardedConstant(ValueId value, const AxisSharding& wanted) {
  const auto key = std::make_tuple(value, wanted.kind, wanted.axis, wanted.blocks);
  if (const auto it = converted_.find(key); it != converted_.end()) return it->second;
  WEFT_ASSIGN_OR_RETURN(Tensor shard,
                        ShardOfTensor(global(value).constant, wanted, mesh().tensor, at_.tensor));
  const std::string name = absl::StrCat(global(value).name, "@", wanted.ToString());
  const ValueId local = graph_.AddConstant(name, std::move(shard));
  Place(local, value, wanted);
  converted_[key] = local;
  return local;
}

// This rank's part of the value as it lies at its home.
absl::StatusOr<ValueId> LocalGraph::Base(ValueId value) {
  if (const auto it = bound_.find(value); it != bound_.end()) return it->second;
  if (rows_.contains(value) && global(value).source == ValueSource::kNode) {
    return GatherRows(value);
  }
  const ValueDef& def = global(value);
  ValueId local;
  switch (def.source) {
    case ValueSource::kConstant:
      local = graph_.AddConstant(def.name, def.constant);
      break;
    case ValueSource::kInput:
      local = graph_.AddInput(def.name, def.type, sized_.graph.input_role(value));
      break;
    case ValueSource::kVariable: {
      WEFT_ASSIGN_OR_RETURN(local, AddVariable(value));
      break;
    }
    case ValueSource::kNode: {
      WEFT_ASSIGN_OR_RETURN(local, AddReceive(value));
      break;
    }
  }
  graph_.value(local).origin = def.origin;
  Place(local, value, ShardingOf(value));
  bound_[value] = local;
  return local;
}

// A variable of this stage, or what the begin graph fetched of another stage's.
absl::StatusOr<ValueId> LocalGraph::AddVariable(ValueId value) {
  const Variable& variable = *sized_.graph.VariableOf(value);
  const ValueType type = LocalType(value, ShardingOf(value));
  if (layout_.owner.at(variable.name) != at_.pipeline) {
    return graph_.AddInput(global(value).name, type, InputRole::kStep);
  }
  if (!layout_.HasRows(variable)) return AddStoredVariable(variable, type);
  // The begin graph gathers it.
  return graph_.AddInput(GatheredName(variable), type, InputRole::kStep);
}

// A variable that this rank stores with `type`.
absl::StatusOr<ValueId> LocalGraph::AddStoredVariable(const Variable& variable,
                                                      const ValueType& type) {
  const ValueId local = graph_.AddVariable(variable.name, type, Tensor(), variable.trainable);
  graph_.mutable_variables().back().slot_of = variable.slot_of;
  if (graph_.value(local).name == variable.name) return local;
  return absl::InternalError(
      absl::StrCat("the name of variable '", variable.name, "' is taken by another value"));
}

Channel LocalGraph::ChannelOf(const StageEdge& edge) const {
  const ValueDef& def = global(edge.value);
  Mesh::Coordinate from = at_;
  Mesh::Coordinate to = at_;
  from.pipeline = edge.from;
  to.pipeline = edge.to;
  Channel channel;
  channel.id = ChannelId(edge.first_channel + at_.data * mesh().tensor + at_.tensor);
  channel.from = mesh().RankOf(from);
  channel.to = mesh().RankOf(to);
  channel.value = def.name;
  channel.dtype = def.type.dtype;
  channel.shape = LocalShape(ShapeOf(sized_.graph, edge.value), ShardingOf(edge.value));
  channel.per_micro_batch = edge.phase == Phase::kForward || edge.phase == Phase::kBackward;
  return channel;
}

absl::StatusOr<ValueId> LocalGraph::AddReceive(ValueId value) {
  const StageEdge* edge = edges_.Find(value, at_.pipeline);
  if (edge == nullptr) {
    return absl::InternalError(absl::StrCat("stage ", at_.pipeline, " reads '", global(value).name,
                                            "' before it is made, and no other stage sends it"));
  }
  const Channel channel = ChannelOf(*edge);
  Graph::NodeSpec spec;
  spec.name = absl::StrCat("receive/", channel.value);
  spec.domain = std::string(kWeftDomain);
  spec.op = "Recv";
  spec.attributes.Set("channel", int64_t{channel.id.value});
  spec.attributes.Set("dtype", static_cast<int64_t>(channel.dtype));
  spec.attributes.Set(
      "shape", std::vector<int64_t>(channel.shape.dims().begin(), channel.shape.dims().end()));
  spec.outputs = {channel.value};
  spec.phase = edge->phase;
  spec.stage = stage_;
  spec.origin = global(value).origin;
  const NodeId node = graph_.AddNode(std::move(spec));
  WEFT_RETURN_IF_ERROR(InferNode(graph_, node));
  channels_.push_back(channel);
  return graph_.node(node).outputs[0];
}

absl::StatusOr<ValueId> LocalGraph::Fetch(ValueId value) {
  if (const auto it = bound_.find(value); it != bound_.end()) return it->second;
  WEFT_ASSIGN_OR_RETURN(const ValueId local, AddReceive(value));
  Place(local, value, ShardingOf(value));
  bound_[value] = local;
  return local;
}

absl::Status LocalGraph::AddSends(ValueId value, Phase phase) {
  for (const StageEdge* edge : edges_.From(value)) {
    if (edge->from != at_.pipeline || edge->phase != phase) continue;
    const Channel channel = ChannelOf(*edge);
    WEFT_ASSIGN_OR_RETURN(const ValueId local, Base(value));
    Graph::NodeSpec spec;
    spec.name = absl::StrCat("send/", channel.value, "/stage", edge->to);
    spec.domain = std::string(kWeftDomain);
    spec.op = "Send";
    spec.attributes.Set("channel", int64_t{channel.id.value});
    spec.inputs = {local};
    spec.phase = phase;
    spec.stage = stage_;
    spec.origin = global(value).origin;
    graph_.AddNode(std::move(spec));
    channels_.push_back(channel);
  }
  return absl::OkStatus();
}

absl::Status LocalGraph::AddNode(NodeId id) {
  const Node& node = sized_.graph.node(id);
  const NodeSharding& sharding = sized_.shardings.nodes[id.value];
  set_stage(node.stage);
  WEFT_ASSIGN_OR_RETURN(const GraphNodeView view, GraphNodeView::Create(sized_.graph, node));
  WEFT_ASSIGN_OR_RETURN(LocalizedNode localized,
                        LocalizeNode(view, sharding, mesh().tensor, at_.tensor));
  Graph::NodeSpec spec;
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    ValueId local = kNoValue;
    if (const auto it = localized.constants.find(static_cast<int>(i));
        it != localized.constants.end()) {
      local = graph_.AddConstant(absl::StrCat(node.name, "/shard_input", i), it->second);
    } else if (node.inputs[i].valid()) {
      WEFT_ASSIGN_OR_RETURN(local, Input(node, static_cast<int>(i)));
    }
    spec.inputs.push_back(local);
  }
  spec.name = node.name;
  spec.domain = node.domain;
  spec.op = node.op;
  spec.attributes = std::move(localized.attributes);
  spec.phase = node.phase;
  spec.stage = node.stage;
  spec.origin = node.origin;
  spec.keep_empty_outputs = true;
  for (const ValueId output : node.outputs) {
    spec.outputs.push_back(output.valid() ? global(output).name : "");
  }
  if (KindOf(node) == CommunicationKind::kReplicaSum) BecomeAllReduce(spec);
  const NodeId local = graph_.AddNode(std::move(spec));
  WEFT_RETURN_IF_ERROR(InferNode(graph_, local));
  return RowInputs(node) != nullptr ? BindOutputRows(node, local) : BindOutputs(node, local);
}

// Over the replicas that have a micro-batch: of a short last batch, some may have none.
void LocalGraph::BecomeAllReduce(Graph::NodeSpec& spec) const {
  std::vector<RankId> ranks;
  for (int replica = 0; replica < mesh().data; ++replica) {
    if (layout_.split.OfReplica(*layout_.plan, replica).empty()) continue;
    Mesh::Coordinate member = at_;
    member.data = replica;
    ranks.push_back(mesh().RankOf(member));
  }
  std::vector<int64_t> group;
  for (const RankId rank : ranks) group.push_back(rank.value);
  spec.op = "AllReduce";
  spec.attributes.Set("axis", std::string(MeshAxisName(MeshAxis::kData)));
  spec.attributes.Set("group", std::move(group));
  spec.attributes.Set("algorithm", std::string("auto"));
  const std::vector<int64_t> hosts = layout_.plan->HostsOf(ranks);
  if (!hosts.empty()) spec.attributes.Set("hosts", hosts);
}

absl::StatusOr<ValueId> LocalGraph::Input(const Node& node, int index) {
  const AxisSharding& wanted = sized_.shardings.nodes[node.id.value].inputs[index];
  const std::vector<bool>* by_rows = RowInputs(node);
  if (by_rows != nullptr && (*by_rows)[index]) {
    return GetRows(node.inputs[index], wanted, node.phase);
  }
  return Get(node.inputs[index], wanted, node.phase);
}

// Checks the inferred local shapes against the sharding, converts where the plan hints another
// one, and sends.
absl::Status LocalGraph::BindOutputs(const Node& node, NodeId local) {
  const NodeSharding& sharding = sized_.shardings.nodes[node.id.value];
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    const ValueId output = node.outputs[i];
    if (!output.valid()) continue;
    ValueId made = graph_.node(local).outputs[i];
    const ValueType expected = LocalType(output, sharding.outputs[i]);
    if (graph_.value(made).type != expected) {
      return absl::InternalError(
          absl::StrCat(DescribeNode(node), ": shard ", at_.tensor, " of ", mesh().tensor,
                       " makes '", global(output).name, "' as ", graph_.value(made).type.ToString(),
                       ", but ", global(output).type.ToString(), " as ",
                       sharding.outputs[i].ToString(), " is ", expected.ToString()));
    }
    graph_.value(made).origin = global(output).origin;
    Place(made, output, sharding.outputs[i]);
    const AxisSharding& hinted = ShardingOf(output);
    if (hinted != sharding.outputs[i]) {
      graph_.RenameValue(made,
                         absl::StrCat(global(output).name, "@", sharding.outputs[i].ToString()));
      WEFT_ASSIGN_OR_RETURN(made, Convert(output, sharding.outputs[i], hinted, node.phase, made));
      graph_.RenameValue(made, global(output).name);
    }
    Bind(output, made);
    WEFT_RETURN_IF_ERROR(AddSends(output, node.phase));
  }
  return absl::OkStatus();
}

}  // namespace weft
