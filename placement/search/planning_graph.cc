#include "placement/search/planning_graph.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "graph/node_class.h"
#include "graph/op_schema.h"
#include "placement/graph_views/graph_node_view.h"
#include "placement/rules/step_order.h"
#include "placement/rules/step_skeleton.h"
#include "placement/search/local_node_view.h"
#include "placement/search/node_classes.h"
#include "placement/sharding/derived_shardings.h"
#include "placement/sharding/sharding_propagation.h"
#include "platform/status_macros.h"

// How a planning graph is made. Every node has its unit already, as Node::stage: PlaceInUnits asks
// the rules by which the partitioner finds stages. Then
//  1. each node adds its seconds to its unit: to the forward pass, to the backward pass that
//     earlier units wait for (FindAwaited) or to the rest of it, or to the update; nodes of one
//     class that are sharded alike are asked for once. With a tensor axis each change of a sharding
//     adds its collective.
//  2. variables lie on their owners, with their optimizer state.
//  3. values that other units read become transfers, and bytes on the cuts that they cross; what
//     the backward pass of a later time reads is kept on the first unit that reads it.
//  4. sums over micro-batches are listed in the order in which a step makes them.
namespace weft {
namespace {

bool IsStep(const Node& node) { return RoleOf(node) == NodeRole::kStep; }

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
    const NodeCostsRequest request = {graph_, uses_, cost_, options_.threads, options_.in_flight};
    if (options_.node_costs) {
      WEFT_ASSIGN_OR_RETURN(node_costs_, options_.node_costs(request));
    } else {
      node_costs_ = std::make_unique<ModelledNodeCosts>(request);
    }
    FindAwaited();
    for (const NodeId id : order_) WEFT_RETURN_IF_ERROR(AddNode(graph_.node(id)));
    AddVariables();
    AddValues();
    AddSums();
    result_.graph = &graph_;
    result_.shardings = std::move(shardings_);
    return std::move(result_);
  }

 private:
  NodeId ProducerOf(ValueId value) const {
    return value.valid() ? graph_.value(value).producer : NodeId();
  }
  int UnitOf(NodeId id) const { return graph_.node(id).stage.value; }
  int OwnerOf(const Variable& variable) const { return layout_.owners.at(variable.name); }
  PlanningUnit& Unit(NodeId id) { return result_.units[UnitOf(id)]; }
  int64_t LocalBytes(ValueId value) const;
  void FindAwaited();
  absl::Status AddNode(const Node& node);
  absl::StatusOr<const std::vector<double>*> SecondsOf(const Node& node);
  void AddAccumulation(ValueId term);
  void AddConversions(const Node& node);
  void AddCollective(const Node& node, ValueId value, const AxisSharding& from,
                     const AxisSharding& to);
  void AddVariables();
  void AddValues();
  void AddAliases();
  void AddKept();
  std::vector<int> OtherUnits(ValueId value, int unit) const;
  void AddTransfer(ValueId value, int unit, Phase made);
  void AddSums();

  const Graph& graph_;
  const UnitLayout& layout_;
  const CostModel& cost_;
  const PlanningOptions& options_;
  ShardingDecisions shardings_;
  const std::vector<std::vector<Graph::Use>> uses_;
  const std::vector<int> classes_;
  std::vector<int> devices_;  // a worker of each device; -1 = none
  std::vector<NodeId> order_;
  std::unique_ptr<NodeCosts> node_costs_;
  std::vector<bool> awaited_;  // by NodeId
  std::vector<ValueId> root_;  // by ValueId: what it is the same bytes as
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
        if (awaited_[use.node.value] || UnitOf(use.node) < UnitOf(*it)) {
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

// By device; the same for all nodes of a class that are split alike.
absl::StatusOr<const std::vector<double>*> PlanningGraphMaker::SecondsOf(const Node& node) {
  const NodeSharding& sharding = shardings_.nodes[node.id.value];
  std::string key = KeyOf(classes_[node.id.value], sharding) + node_costs_->Kind(node);
  const auto [entry, is_new] = known_.try_emplace(std::move(key));
  if (!is_new) return &entry->second;
  std::vector<double> seconds(devices_.size());
  const absl::StatusOr<GraphNodeView> view = GraphNodeView::Create(graph_, node);
  if (view.ok()) {  // what depends on data has no cost that is known ahead
    const LocalNodeView local(*view, sharding, options_.shards);
    for (size_t device = 0; device < devices_.size(); ++device) {
      if (devices_[device] < 0) continue;
      seconds[device] = node_costs_->Seconds(node, local, devices_[device]);
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
  const bool is_once = node_costs_->RunsOncePerStep(node);
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

void PlanningGraphMaker::AddAccumulation(ValueId term) {
  if (!term.valid() || !node_costs_->HasAccumulation()) return;
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
  std::map<std::string, std::pair<int, size_t>> parameters;  // the unit, and the place in it
  for (size_t i = 0; i < graph_.variables().size(); ++i) {
    const Variable& variable = graph_.variables()[i];
    if (!variable.slot_of.empty()) continue;
    PlannedVariable planned;
    planned.number = static_cast<int>(i);
    planned.parameter_bytes = LocalBytes(variable.value);
    planned.trainable = variable.trainable;
    const int unit = OwnerOf(variable);
    std::vector<PlannedVariable>& of_unit = result_.units[unit].variables;
    parameters[variable.name] = {unit, of_unit.size()};
    of_unit.push_back(planned);
  }
  for (const Variable& variable : graph_.variables()) {
    const auto parameter = parameters.find(variable.slot_of);
    if (parameter == parameters.end()) continue;
    const auto [unit, place] = parameter->second;
    result_.units[unit].variables[place].state_bytes += LocalBytes(variable.value);
  }
}

// Results that are the same bytes as an operand are kept once.
void PlanningGraphMaker::AddAliases() {
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
}

void PlanningGraphMaker::AddKept() {
  AddAliases();
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
      if (is_forward || is_data) kept[root].insert(UnitOf(id));
    }
  }
  for (const auto& [value, units] : kept) {
    result_.units[*units.begin()].kept_bytes += LocalBytes(value);
  }
}

void PlanningGraphMaker::AddValues() {
  for (const NodeId id : order_) {
    const Node& node = graph_.node(id);
    if (!RunsPerMicroBatch(node)) continue;
    for (const ValueId output : node.outputs) {
      if (output.valid()) AddTransfer(output, UnitOf(id), node.phase);
    }
  }
  for (const Variable& variable : graph_.variables()) {
    AddTransfer(variable.value, OwnerOf(variable), Phase::kBegin);
  }
  AddKept();
}

// Those of readers, ascending; of a micro-batch's value only readers of the micro-batch, for what
// sums it is where it is made.
std::vector<int> PlanningGraphMaker::OtherUnits(ValueId value, int unit) const {
  std::vector<int> units;
  for (const Graph::Use& use : uses_[value.value]) {
    if (IsBoundary(graph_.node(use.node)) || UnitOf(use.node) == unit) continue;
    units.push_back(UnitOf(use.node));
  }
  std::sort(units.begin(), units.end());
  units.erase(std::unique(units.begin(), units.end()), units.end());
  return units;
}

void PlanningGraphMaker::AddTransfer(ValueId value, int unit, Phase made) {
  std::vector<int> readers = OtherUnits(value, unit);
  if (readers.empty()) return;
  const int64_t bytes = LocalBytes(value);
  if (made != Phase::kBegin) {
    for (int cut = unit + 1; cut <= readers.back(); ++cut) result_.cuts[cut].forward_bytes += bytes;
    for (int cut = readers.front() + 1; cut <= unit; ++cut) {
      result_.cuts[cut].backward_bytes += bytes;
    }
  }
  result_.transfers.push_back({bytes, unit, made, std::move(readers)});
}

void PlanningGraphMaker::AddSums() {
  const std::vector<bool> of_guard = NodesOfGuard(graph_, GuardOf(graph_));
  std::vector<int> position(graph_.node_capacity());
  for (size_t i = 0; i < order_.size(); ++i) position[order_[i].value] = static_cast<int>(i);
  std::vector<std::pair<SumTurn, PlannedSum>> later;
  for (const NodeId id : order_) {
    const Node& node = graph_.node(id);
    if (!IsBoundary(node)) continue;
    const ValueId output = node.outputs[0];
    PlannedSum sum;
    sum.value = output;
    sum.unit = UnitOf(id);
    sum.bytes = LocalBytes(output);
    sum.dtype = graph_.value(output).type.dtype;
    sum.is_first = IsFirstSum(graph_, of_guard, id);
    sum.readers = OtherUnits(output, sum.unit);
    if (sum.is_first) {
      result_.sums.push_back(std::move(sum));
    } else {
      const SumTurn turn = {/*stage=*/0, position[ProducerOf(node.inputs[0]).value], id};
      later.push_back({turn, std::move(sum)});
    }
  }
  std::sort(later.begin(), later.end(),
            [](const auto& a, const auto& b) { return IsSummedBefore(a.first, b.first); });
  for (auto& [turn, sum] : later) result_.sums.push_back(std::move(sum));
}

struct LaidOutGraph {
  std::map<std::string, AxisSharding> hints;  // with those that follow
  std::shared_ptr<Graph> expanded;            // null: the graph itself
  ShardingDecisions shardings;
};

// As hints lay it, without those that follow from them.
absl::StatusOr<LaidOutGraph> LayOutAs(const Graph& graph, int shards,
                                      std::map<std::string, AxisSharding> hints) {
  LaidOutGraph result;
  PropagationOptions propagation;
  propagation.shards = shards;
  propagation.hints = std::move(hints);
  if (shards > 1) {
    result.expanded = std::make_shared<Graph>(graph.Clone());
    WEFT_RETURN_IF_ERROR(ExpandForHints(*result.expanded, propagation));
  }
  WEFT_ASSIGN_OR_RETURN(
      result.shardings,
      PropagateShardings(result.expanded != nullptr ? *result.expanded : graph, propagation));
  result.hints = std::move(propagation.hints);
  return result;
}

// As partitions will be: a completed plan has the shardings that follow from its hints.
absl::StatusOr<LaidOutGraph> LayOut(const Graph& graph, int shards,
                                    const std::map<std::string, AxisSharding>& hints) {
  WEFT_ASSIGN_OR_RETURN(LaidOutGraph given,
                        LayOutAs(graph, shards, ResolveShardings(graph, hints)));
  if (shards == 1 || given.hints.empty()) return given;
  std::map<std::string, AxisSharding> derived = given.hints;
  DeriveShardings(*given.expanded, shards, given.shardings, derived);
  if (derived == given.hints) return given;
  return LayOutAs(graph, shards, std::move(derived));
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
  WEFT_ASSIGN_OR_RETURN(LaidOutGraph laid_out,
                        LayOut(graph, options.shards, options.tensor_shardings));
  const Graph& expanded = laid_out.expanded != nullptr ? *laid_out.expanded : graph;
  WEFT_ASSIGN_OR_RETURN(
      PlanningGraph result,
      PlanningGraphMaker(expanded, layout, cost, options, std::move(laid_out.shardings)).Run());
  result.samples = samples;
  result.shards = options.shards;
  result.tensor_shardings = std::move(laid_out.hints);
  result.expanded = std::move(laid_out.expanded);
  return result;
}

}  // namespace weft
