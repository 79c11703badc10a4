// The part of LocalGraph that splits values over the data axis.
#include "absl/strings/str_cat.h"
#include "graph/node_description.h"
#include "placement/graph_views/graph_node_view.h"
#include "placement/partition/local_graph.h"
#include "platform/status_macros.h"

namespace weft {

const std::vector<bool>* LocalGraph::RowInputs(const Node& node) const {
  if (node.phase != Phase::kUpdate) return nullptr;
  const auto found = layout_.data.nodes.find(node.id);
  return found == layout_.data.nodes.end() ? nullptr : &found->second;
}

ValueType LocalGraph::RowsType(ValueId value, const AxisSharding& sharding) const {
  ValueType type = LocalType(value, sharding);
  type.shape = AxisSharding::Split(0).LocalShape(*type.shape.ToConcrete(), mesh().data, at_.data);
  return type;
}

void LocalGraph::BindRows(ValueId value, ValueId local) {
  rows_[value] = local;
  const AxisSharding& sharding = ShardingOf(value);
  // Rows of several blocks have no single place in the whole.
  if (sharding.is_split() && sharding.axis == 0 && sharding.blocks > 1) return;
  Place(local, value, sharding);
  std::optional<ShardSlice>& placement = graph_.value(local).placement;
  if (!placement.has_value()) {
    placement.emplace();
    placement->global_shape = ShapeOf(sized_.graph, value);
    placement->offset.assign(placement->global_shape.rank(), 0);
  }
  const int64_t rows = LocalType(value, sharding).shape.ToConcrete()->dim(0);
  placement->offset[0] += AxisSharding::ShardRange(rows, mesh().data, at_.data).first;
}

absl::StatusOr<ValueId> LocalGraph::GetRows(ValueId value, const AxisSharding& wanted,
                                            Phase phase) {
  const bool as_it_lies = wanted == ShardingOf(value);
  const Variable* variable = sized_.graph.VariableOf(value);
  const bool is_stored = variable != nullptr && layout_.HasRows(*variable);
  if (const auto it = rows_.find(value); it != rows_.end() && as_it_lies) return it->second;
  if (!as_it_lies && (is_stored || rows_.contains(value))) {
    return absl::UnimplementedError(
        absl::StrCat("zero=", layout_.plan->zero, ": '", global(value).name, "' lies as ",
                     ShardingOf(value).ToString(), " along the tensor axis, its update wants ",
                     wanted.ToString(), "; state that is split over both axes must not change"));
  }
  ValueId local;
  if (is_stored) {
    WEFT_ASSIGN_OR_RETURN(local, AddStoredVariable(*variable, RowsType(value, wanted)));
  } else {
    WEFT_ASSIGN_OR_RETURN(const ValueId whole, Get(value, wanted, phase));
    ConversionSite site = Site(phase, absl::StrCat(global(value).name, "@rows"), MeshAxis::kData);
    site.origin = global(value).origin;
    const Shape shape = *LocalType(value, wanted).shape.ToConcrete();
    WEFT_ASSIGN_OR_RETURN(local, ConvertSharding(site, {whole, shape, AxisSharding::Replicated()},
                                                 AxisSharding::Split(0)));
    if (!as_it_lies) return local;
  }
  graph_.value(local).origin = global(value).origin;
  BindRows(value, local);
  return local;
}

// All rows of what each replica has made its rows of.
absl::StatusOr<ValueId> LocalGraph::GatherRows(ValueId value) {
  ConversionSite site =
      Site(Phase::kUpdate, absl::StrCat(global(value).name, "@gathered"), MeshAxis::kData);
  site.origin = global(value).origin;
  const Shape shape = *LocalType(value, ShardingOf(value)).shape.ToConcrete();
  WEFT_ASSIGN_OR_RETURN(const ValueId whole,
                        ConvertSharding(site, {rows_.at(value), shape, AxisSharding::Split(0)},
                                        AxisSharding::Replicated()));
  graph_.value(whole).origin = global(value).origin;
  Place(whole, value, ShardingOf(value));
  Bind(value, whole);
  return whole;
}

absl::Status LocalGraph::GatherVariable(const Variable& variable) {
  WEFT_RETURN_IF_ERROR(GetRows(variable.value, ShardingOf(variable.value), Phase::kBegin).status());
  WEFT_ASSIGN_OR_RETURN(const ValueId whole, GatherRows(variable.value));
  graph_.AddOutput(whole);
  return absl::OkStatus();
}

absl::Status LocalGraph::BindOutputRows(const Node& node, NodeId local) {
  const NodeSharding& sharding = sized_.shardings.nodes[node.id.value];
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    const ValueId output = node.outputs[i];
    if (!output.valid()) continue;
    const ValueId made = graph_.node(local).outputs[i];
    const ValueType expected = RowsType(output, sharding.outputs[i]);
    if (graph_.value(made).type != expected || sharding.outputs[i] != ShardingOf(output)) {
      return absl::InternalError(
          absl::StrCat(DescribeNode(node), ": replica ", at_.data, " of ", mesh().data, " makes '",
                       global(output).name, "' as ", graph_.value(made).type.ToString(), ", ",
                       sharding.outputs[i].ToString(), " along the tensor axis; expected ",
                       expected.ToString(), ", ", ShardingOf(output).ToString()));
    }
    graph_.value(made).origin = global(output).origin;
    BindRows(output, made);
  }
  return absl::OkStatus();
}

}  // namespace weft
