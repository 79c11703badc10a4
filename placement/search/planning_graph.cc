#include "placement/search/planning_graph.h"

#include <algorithm>
#include <limits>
#include <set>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "graph/node_class.h"
#include "graph/op_schema.h"
#include "placement/cost/op_key.h"
#include "placement/graph_views/graph_node_view.h"
#include "placement/search/kernel_fusion.h"
#include "placement/search/local_node_view.h"
#include "placement/search/node_classes.h"
#include "placement/sharding/sharding_propagation.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

constexpr int kNoUnit = -1;

bool IsStep(const Node& node) { return !IsBoundary(node) && !IsForward(node) && !IsBackward(node); }

class PlanningGraphMaker {
 public:
  PlanningGraphMaker(const Graph& graph, const UnitLayout& layout, const CostModel& cost,
                     const PlanningOptions& options, ShardingDecisions shardings)
      : graph_(graph),
        layout_(layout),
        cost_(cost),
        options_(options),
        shardings_(std::move(shardings)),
        uses_(graph.BuildUses()),
        classes_(ClassifyNodes(graph, uses_)),
        unit_(graph.node_capacity(), kNoUnit),
        root_(graph.value_capacity()) {
    devices_.resize(cost.profile().devices.size(), -1);
    for (int worker = 0; worker < cost.num_workers(); ++worker) {
      int& representative = devices_[cost.profile().device_of[worker]];
      if (representative < 0) representative = worker;
    }
    result_.units.resize(layout.size());
    for (PlanningUnit& unit : result_.units) {
      for (std::vector<double>* seconds : {&unit.forward, &unit.backward, &unit.weight_gradient,
                                           &unit.accumulation, &unit.update}) {
        seconds->assign(devices_.size(), 0);
      }
    }
    result_.cuts.resize(layout.size() + 1);
  }

  absl::StatusOr<PlanningGraph> Run() {
    WEFT_ASSIGN_OR_RETURN(order_, graph_.TopologicalOrder());
    if (options_.fused_kernels) {
      WEFT_ASSIGN_OR_RETURN(fused_, FuseNodes(graph_, uses_));
    }
    PlaceForward();
    PlaceVariables();
    PlaceBackward();
    PlaceStep();
    FindAwaited();
    for (const NodeId id : order_) WEFT_RETURN_IF_ERROR(AddNode(graph_.node(id)));
    AddVariables();
    AddValues();
    return std::move(result_);
  }

 private:
  NodeId ProducerOf(ValueId value) const {
    return value.valid() ? graph_.value(value).producer : NodeId();
  }
  int UnitOf(NodeId id) const { return id.valid() ? unit_[id.value] : kNoUnit; }
  PlanningUnit& Unit(NodeId id) { return result_.units[unit_[id.value]]; }
  int64_t LocalBytes(ValueId value) const;
  void PlaceForward();
  void PlaceVariables();
  int HintOfBackward(const Node& node) const;
  void PlaceBackward();
  void PlaceStep();
  void FindAwaited();
  absl::Status AddNode(const Node& node);
  double FusedSeconds(const NodeView& view, const FusedNode& fused, int worker) const;
  absl::StatusOr<const std::vector<double>*> SecondsOf(const Node& node);
  void AddAccumulation(ValueId term);
  void AddConversions(const Node& node);
  void AddCollective(const Node& node, ValueId value, const AxisSharding& from,
                     const AxisSharding& to);
  void AddVariables();
  void AddValues();
  void AddCrossing(ValueId value, int producer);

  const Graph& graph_;
  const UnitLayout& layout_;
  const CostModel& cost_;
  const PlanningOptions& options_;
  const ShardingDecisions shardings_;
  const std::vector<std::vector<Graph::Use>> uses_;
  const std::vector<int> classes_;
  std::vector<int> devices_;  // a worker of each device; -1 = none
  std::vector<NodeId> order_;
  std::vector<int> unit_;  // by NodeId
  std::map<std::string, int> owner_;
  std::vector<bool> awaited_;     // by NodeId
  std::vector<FusedNode> fused_;  // by NodeId; empty: every node is a kernel
  std::vector<ValueId> root_;     // by ValueId: what it is the same bytes as
  absl::flat_hash_map<std::string, std::vector<double>> known_;
  absl::flat_hash_set<std::string> converted_;
  PlanningGraph result_;
};

int64_t PlanningGraphMaker::LocalBytes(ValueId value) const {
  const AxisSharding& sharding = shardings_.values[value.value];
  const Shape shape = ShapeOf(graph_, value);
  const bool split = sharding.is_split() && sharding.Validate(shape).ok();
  const Shape local = split ? sharding.LocalShape(shape, options_.shards, 0) : shape;
  return DTypeBytes(graph_.value(value).type.dtype, local.num_elements());
}

void PlanningGraphMaker::PlaceForward() {
  for (const NodeId id : order_) {
    const Node& node = graph_.node(id);
    if (!IsForward(node)) continue;
    unit_[id.value] = layout_.Find(node.name);
    if (unit_[id.value] != kNoUnit) continue;
    for (const ValueId input : node.inputs) {
      unit_[id.value] = std::max(unit_[id.value], UnitOf(ProducerOf(input)));
    }
  }
  for (auto it = order_.rbegin(); it != order_.rend(); ++it) {
    if (!IsForward(graph_.node(*it)) || unit_[it->value] != kNoUnit) continue;
    int earliest = layout_.size();
    for (const ValueId output : graph_.node(*it).outputs) {
      if (!output.valid()) continue;
      for (const Graph::Use& use : uses_[output.value]) {
        if (IsForward(graph_.node(use.node))) earliest = std::min(earliest, UnitOf(use.node));
      }
    }
    unit_[it->value] = std::min(earliest, layout_.size() - 1);
  }
}

void PlanningGraphMaker::PlaceVariables() {
  for (const Variable& variable : graph_.variables()) {
    int earliest = layout_.size();
    for (const Graph::Use& use : uses_[variable.value.value]) {
      if (IsForward(graph_.node(use.node))) earliest = std::min(earliest, UnitOf(use.node));
    }
    owner_[variable.name] = earliest == layout_.size() ? 0 : earliest;
  }
  for (const Variable& variable : graph_.variables()) {
    const auto owner = owner_.find(variable.slot_of);
    if (owner != owner_.end()) owner_[variable.name] = owner->second;
  }
}

int PlanningGraphMaker::HintOfBackward(const Node& node) const {
  if (const auto forward = graph_.FindNode(node.origin.forward_node)) {
    if (IsForward(graph_.node(*forward))) return unit_[forward->value];
  }
  if (const int unit = layout_.Find(node.origin.forward_node); unit != kNoUnit) return unit;
  if (const auto owner = owner_.find(node.origin.logical_value); owner != owner_.end()) {
    return owner->second;
  }
  if (const auto value = graph_.FindValue(node.origin.logical_value)) {
    const NodeId producer = ProducerOf(*value);
    if (producer.valid() && IsForward(graph_.node(producer))) return unit_[producer.value];
  }
  return kNoUnit;
}

void PlanningGraphMaker::PlaceBackward() {
  for (const NodeId id : order_) {
    const Node& node = graph_.node(id);
    if (!IsBackward(node)) continue;
    int unit = HintOfBackward(node);
    for (const ValueId input : node.inputs) {
      const NodeId producer = ProducerOf(input);
      if (!producer.valid() || !IsBackward(graph_.node(producer))) continue;
      const int other = unit_[producer.value];
      if (other != kNoUnit) unit = unit == kNoUnit ? other : std::min(unit, other);
    }
    unit_[id.value] = unit;
  }
  for (auto it = order_.rbegin(); it != order_.rend(); ++it) {
    if (!IsBackward(graph_.node(*it)) || unit_[it->value] != kNoUnit) continue;
    int latest = 0;
    for (const ValueId output : graph_.node(*it).outputs) {
      if (!output.valid()) continue;
      for (const Graph::Use& use : uses_[output.value]) latest = std::max(latest, UnitOf(use.node));
    }
    unit_[it->value] = latest;
  }
}

// Sums are where their input is made; updates where the variable is that they name, else where what
// they read is.
void PlanningGraphMaker::PlaceStep() {
  for (const NodeId id : order_) {
    const Node& node = graph_.node(id);
    if (unit_[id.value] != kNoUnit) continue;
    const auto owner = owner_.find(node.origin.logical_value);
    int unit = IsStep(node) && owner != owner_.end() ? owner->second : kNoUnit;
    for (const ValueId input : node.inputs) {
      if (unit == kNoUnit) unit = UnitOf(ProducerOf(input));
    }
    unit_[id.value] = unit == kNoUnit ? layout_.size() - 1 : unit;
  }
}

// Backward nodes that a backward node of an earlier unit depends on.
void PlanningGraphMaker::FindAwaited() {
  awaited_.assign(graph_.node_capacity(), false);
  for (auto it = order_.rbegin(); it != order_.rend(); ++it) {
    const Node& node = graph_.node(*it);
    if (!IsBackward(node)) continue;
    for (const ValueId output : node.outputs) {
      if (!output.valid()) continue;
      for (const Graph::Use& use : uses_[output.value]) {
        if (!IsBackward(graph_.node(use.node))) continue;
        if (awaited_[use.node.value] || UnitOf(use.node) < unit_[it->value]) {
          awaited_[it->value] = true;
        }
      }
    }
  }
}

std::string KeyOf(int node_class, const NodeSharding& sharding) {
  std::string key = std::to_string(node_class);
  for (const auto* list : {&sharding.inputs, &sharding.outputs}) {
    key.push_back('|');
    for (const AxisSharding& s : *list) {
      key.push_back(static_cast<char>('a' + static_cast<int>(s.kind)));
      if (s.is_split())
        key.append(std::to_string(s.axis)).append(".").append(std::to_string(s.blocks));
    }
  }
  return key;
}

// Of a node whose kernel is another one's too, without what it then neither reads nor writes.
double PlanningGraphMaker::FusedSeconds(const NodeView& view, const FusedNode& fused,
                                        int worker) const {
  if (fused.is_free) return 0;
  if (fused == FusedNode()) {
    return cost_.NodeSeconds(view, worker, options_.threads[worker], options_.in_flight);
  }
  Cost cost = CostOf(view);
  DType computed = view.num_outputs() > 0 ? view.OutputDType(0) : DType::kFloat32;
  for (int i = view.num_inputs() - 1; i >= 0; --i) {
    if (IsFloatingPoint(view.InputDType(i))) computed = view.InputDType(i);
  }
  const OpFamily family = FamilyOf(cost, computed);
  const auto bytes = [](DType dtype, const Shape& shape) {
    return static_cast<double>(DTypeBytes(dtype, shape.num_elements()));
  };
  for (int i = 0; i < view.num_inputs(); ++i) {
    const bool skipped = i < 64 && (fused.unread >> i & 1) != 0;
    if (skipped) cost.bytes -= bytes(view.InputDType(i), view.InputShape(i));
  }
  for (int i = 0; i < view.num_outputs(); ++i) {
    const bool skipped = i < 64 && (fused.unwritten >> i & 1) != 0;
    if (skipped) cost.bytes -= bytes(view.OutputDType(i), view.OutputShape(i));
  }
  cost.bytes = std::max(0.0, cost.bytes);
  return cost_.WorkSeconds(cost, family, computed, worker, options_.threads[worker]) +
         (fused.joins ? 0 : cost_.node_seconds(worker));
}

// By device; the same for all nodes of a class that are split and fused alike.
absl::StatusOr<const std::vector<double>*> PlanningGraphMaker::SecondsOf(const Node& node) {
  const NodeSharding& sharding = shardings_.nodes[node.id.value];
  const FusedNode fused = fused_.empty() ? FusedNode() : fused_[node.id.value];
  std::string key = KeyOf(classes_[node.id.value], sharding);
  if (!(fused == FusedNode())) {
    absl::StrAppend(&key, "f", fused.unread, ".", fused.unwritten, ".", fused.joins, fused.is_free);
  }
  const auto [entry, is_new] = known_.try_emplace(std::move(key));
  if (!is_new) return &entry->second;
  std::vector<double> seconds(devices_.size());
  const absl::StatusOr<GraphNodeView> view = GraphNodeView::Create(graph_, node);
  if (view.ok()) {  // what depends on data has no cost that is known ahead
    const LocalNodeView local(*view, sharding, options_.shards);
    for (size_t device = 0; device < devices_.size(); ++device) {
      if (devices_[device] < 0) continue;
      seconds[device] = FusedSeconds(local, fused, devices_[device]);
    }
  }
  entry->second = std::move(seconds);
  return &entry->second;
}

absl::Status PlanningGraphMaker::AddNode(const Node& node) {
  if (options_.shards > 1) AddConversions(node);
  if (IsBoundary(node)) {
    for (const ValueId term : node.inputs) AddAccumulation(term);
    return absl::OkStatus();
  }
  WEFT_ASSIGN_OR_RETURN(const std::vector<double>* const seconds, SecondsOf(node));
  PlanningUnit& unit = Unit(node.id);
  const bool is_once = !fused_.empty() && fused_[node.id.value].is_once;
  std::vector<double>& sum = IsForward(node) && !is_once ? unit.forward
                             : !IsBackward(node)         ? unit.update
                             : awaited_[node.id.value]   ? unit.backward
                                                         : unit.weight_gradient;
  for (size_t device = 0; device < sum.size(); ++device) sum[device] += (*seconds)[device];
  if (IsStep(node)) return absl::OkStatus();
  int64_t transient = 0;
  for (const auto* values : {&node.inputs, &node.outputs}) {
    for (const ValueId value : *values) {
      if (!value.valid() || graph_.value(value).source == ValueSource::kVariable) continue;
      if (graph_.value(value).source != ValueSource::kConstant) transient += LocalBytes(value);
    }
  }
  unit.transient_bytes = std::max(unit.transient_bytes, transient);
  return absl::OkStatus();
}

// Fused kernels add where they multiply.
void PlanningGraphMaker::AddAccumulation(ValueId term) {
  if (!term.valid() || options_.fused_kernels) return;
  const NodeId producer = ProducerOf(term);
  if (!producer.valid()) return;
  const DType dtype = graph_.value(term).type.dtype;
  const auto bytes = static_cast<double>(LocalBytes(term));
  const Cost sum{bytes / static_cast<double>(std::max<int64_t>(1, DTypeBytes(dtype, 1))),
                 3 * bytes};
  std::vector<double>& seconds = Unit(producer).accumulation;
  for (size_t device = 0; device < devices_.size(); ++device) {
    const int worker = devices_[device];
    if (worker < 0) continue;
    seconds[device] += cost_.node_seconds(worker) + cost_.WorkSeconds(sum, dtype, worker, 1);
  }
}

void PlanningGraphMaker::AddConversions(const Node& node) {
  const NodeSharding& sharding = shardings_.nodes[node.id.value];
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    const ValueId input = node.inputs[i];
    if (!input.valid() || graph_.value(input).source == ValueSource::kConstant) continue;
    AddCollective(node, input, shardings_.values[input.value], sharding.inputs[i]);
  }
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    const ValueId output = node.outputs[i];
    if (!output.valid() || IsBoundary(node)) continue;
    AddCollective(node, output, sharding.outputs[i], shardings_.values[output.value]);
  }
}

// A value is converted once on a rank, however many read it so.
void PlanningGraphMaker::AddCollective(const Node& node, ValueId value, const AxisSharding& from,
                                       const AxisSharding& to) {
  const std::optional<CollectiveKind> kind = CollectiveOfConversion(from, to);
  if (!kind.has_value() || IsStep(node)) return;
  const std::string key = std::to_string(value.value) + to.ToString();
  if (!converted_.insert(key).second) return;
  PlanningUnit& unit = Unit(node.id);
  const CollectiveUse use = {*kind, BytesOf(graph_, value)};
  ++(IsForward(node) ? unit.forward_collectives : unit.backward_collectives)[use];
}

void PlanningGraphMaker::AddVariables() {
  std::map<std::string, PlannedVariable*> parameters;
  for (PlanningUnit& unit : result_.units) unit.variables.reserve(graph_.variables().size());
  for (const Variable& variable : graph_.variables()) {
    if (!variable.slot_of.empty()) continue;
    PlannedVariable planned;
    planned.parameter_bytes = LocalBytes(variable.value);
    planned.trainable = variable.trainable;
    const Shape shape = ShapeOf(graph_, variable.value);
    const AxisSharding& how = shardings_.values[variable.value.value];
    if (variable.trainable && shape.rank() > 0) {
      planned.rows = how.is_split() && how.Validate(shape).ok()
                         ? how.LocalShape(shape, options_.shards, options_.shards - 1).dim(0)
                         : shape.dim(0);
    }
    std::vector<PlannedVariable>& of_unit = result_.units[owner_[variable.name]].variables;
    of_unit.push_back(planned);
    parameters[variable.name] = &of_unit.back();
  }
  for (const Variable& variable : graph_.variables()) {
    const auto parameter = parameters.find(variable.slot_of);
    if (parameter == parameters.end()) continue;
    parameter->second->state_bytes += LocalBytes(variable.value);
  }
  for (PlanningUnit& unit : result_.units) unit.variables.shrink_to_fit();
}

// Results that are the same bytes as an operand are kept once.
void PlanningGraphMaker::AddValues() {
  for (int i = 0; i < graph_.value_capacity(); ++i) root_[i] = ValueId(i);
  for (const NodeId id : order_) {
    const Node& node = graph_.node(id);
    if (node.schema == nullptr) continue;
    for (const auto& [input, output] : node.schema->aliases()) {
      if (input >= static_cast<int>(node.inputs.size()) || !node.inputs[input].valid()) continue;
      if (output >= static_cast<int>(node.outputs.size()) || !node.outputs[output].valid()) {
        continue;
      }
      root_[node.outputs[output].value] = root_[node.inputs[input].value];
    }
  }
  for (const NodeId id : order_) {
    const Node& node = graph_.node(id);
    if (IsStep(node) || IsBoundary(node)) continue;
    for (const ValueId output : node.outputs) {
      if (!output.valid()) continue;
      AddCrossing(output, unit_[id.value]);
    }
  }
  std::map<ValueId, std::set<int>> kept;  // units whose backward pass reads it, by root
  for (const NodeId id : order_) {
    const Node& node = graph_.node(id);
    if (!IsBackward(node)) continue;
    for (const ValueId input : node.inputs) {
      if (!input.valid()) continue;
      const ValueId root = root_[input.value];
      const NodeId producer = ProducerOf(root);
      const bool is_forward = producer.valid() && IsForward(graph_.node(producer));
      const bool is_data = graph_.value(root).source == ValueSource::kInput;
      if (is_forward || is_data) kept[root].insert(unit_[id.value]);
    }
  }
  for (const auto& [value, units] : kept) {
    result_.units[*units.begin()].kept_bytes += LocalBytes(value);
  }
}

void PlanningGraphMaker::AddCrossing(ValueId value, int producer) {
  int first = producer;
  int last = producer;
  for (const Graph::Use& use : uses_[value.value]) {
    const Node& reader = graph_.node(use.node);
    if (IsStep(reader) || IsBoundary(reader)) continue;
    first = std::min(first, unit_[use.node.value]);
    last = std::max(last, unit_[use.node.value]);
  }
  const int64_t bytes = LocalBytes(value);
  for (int cut = producer + 1; cut <= last; ++cut) {
    result_.cuts[cut].forward_bytes += bytes;
    ++result_.cuts[cut].forward_values;
  }
  for (int cut = first + 1; cut <= producer; ++cut) {
    result_.cuts[cut].backward_bytes += bytes;
    ++result_.cuts[cut].backward_values;
  }
}

}  // namespace

double PlanningGraph::Seconds(int device) const {
  double seconds = 0;
  for (const PlanningUnit& unit : units) {
    seconds += unit.forward[device] + unit.backward[device] + unit.weight_gradient[device];
  }
  return seconds;
}

absl::StatusOr<PlanningGraph> MakePlanningGraph(const Graph& graph, int64_t samples,
                                                const UnitLayout& layout, const CostModel& cost,
                                                const PlanningOptions& options) {
  PropagationOptions propagation;
  propagation.shards = options.shards;
  propagation.hints = options.tensor_shardings;
  std::optional<Graph> expanded;
  if (options.shards > 1) {
    expanded = graph.Clone();
    WEFT_RETURN_IF_ERROR(ExpandForHints(*expanded, propagation));
  }
  const Graph& laid_out = expanded.has_value() ? *expanded : graph;
  WEFT_ASSIGN_OR_RETURN(ShardingDecisions shardings, PropagateShardings(laid_out, propagation));
  WEFT_ASSIGN_OR_RETURN(
      PlanningGraph result,
      PlanningGraphMaker(laid_out, layout, cost, options, std::move(shardings)).Run());
  result.samples = samples;
  result.shards = options.shards;
  result.tensor_shardings = options.tensor_shardings;
  return result;
}

}  // namespace weft
