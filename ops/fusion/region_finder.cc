#include "ops/fusion/region_finder.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "graph/op_schema.h"

namespace weft {
namespace {

// What is known of a node before any region.
struct NodeFacts {
  FusedRole role = FusedRole::kNone;
  // The shape of its output, or of what it folds.
  Shape space;
};

// The shape of a tensor with elements.
std::optional<Shape> ShapeOf(const Graph& graph, ValueId id) {
  const ValueType& type = graph.value(id).type;
  if (type.kind != ValueKind::kTensor || type.dtype == DType::kInvalid) return std::nullopt;
  std::optional<Shape> shape = type.shape.ToConcrete();
  if (shape && shape->num_elements() == 0) return std::nullopt;
  return shape;
}

bool BroadcastsTo(const Shape& from, const Shape& to) {
  if (from.rank() > to.rank()) return false;
  for (int i = 0; i < from.rank(); ++i) {
    const int64_t size = from.dim(i);
    if (size != 1 && size != to.dim(to.rank() - from.rank() + i)) return false;
  }
  return true;
}

NodeFacts FactsOf(const Graph& graph, const FusionRules& rules, const Node& node) {
  const OpSchema* const schema = node.schema;
  if (schema == nullptr || schema->stateful() || schema->op_class() != OpClass::kCompute ||
      !schema->aliases().empty() || node.outputs.size() != 1 || !node.outputs[0].valid() ||
      node.inputs.empty()) {
    return {};
  }
  for (const auto& [name, attribute] : node.attributes.items()) {
    if (TypeOf(attribute) == AttributeType::kGraph) return {};
  }
  std::vector<std::optional<Shape>> inputs;
  for (const ValueId input : node.inputs) {
    inputs.emplace_back();
    // The axes of a reduction are a constant that may have no elements.
    if (!input.valid() || graph.value(input).source == ValueSource::kConstant) continue;
    inputs.back() = ShapeOf(graph, input);
    if (!inputs.back()) return {};
  }
  const std::optional<Shape> output = ShapeOf(graph, node.outputs[0]);
  if (!output) return {};
  const FusedRole role = rules.role_of(graph, node);
  if (role == FusedRole::kReduction) {
    // Of a constant there is nothing to be fused.
    return inputs[0] ? NodeFacts{role, *inputs[0]} : NodeFacts();
  }
  if (role == FusedRole::kNone) return {};
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (node.inputs[i].valid() && !inputs[i]) inputs[i] = ShapeOf(graph, node.inputs[i]);
    if (node.inputs[i].valid() && (!inputs[i] || !BroadcastsTo(*inputs[i], *output))) return {};
  }
  return {role, *output};
}

class RegionFinder {
 public:
  RegionFinder(const Graph& graph, const FusionRules& rules, const std::vector<int>& colors)
      : graph_(graph),
        rules_(rules),
        colors_(colors),
        uses_(graph.BuildUses()),
        facts_(graph.node_capacity()),
        place_(graph.node_capacity()),
        region_of_(graph.node_capacity(), kOutside),
        needed_(graph.value_capacity()) {
    for (const NodeId id : graph.node_ids()) {
      facts_[id.value] = FactsOf(graph, rules, graph.node(id));
      place_[id.value] = id.value;
    }
    for (const ValueId output : graph.outputs()) needed_[output.value] = true;
    for (const Variable& variable : graph.variables()) {
      if (variable.update.valid()) needed_[variable.update.value] = true;
    }
  }

  std::vector<Region> Find() {
    std::vector<Region> regions;
    for (const NodeId seed : graph_.node_ids()) {
      if (region_of_[seed.value] != kOutside) continue;
      if (facts_[seed.value].role != FusedRole::kElementwise) continue;
      const int number = static_cast<int>(regions.size());
      Region region = Grow(seed, number);
      if (region.nodes.size() < 2 || region.outputs.empty()) {
        for (const NodeId id : region.nodes) region_of_[id.value] = kOutside;
        continue;
      }
      for (const NodeId id : region.nodes) place_[id.value] = region.seat.value;
      regions.push_back(std::move(region));
    }
    return regions;
  }

 private:
  static constexpr int kOutside = -1;

  Region Grow(NodeId seed, int number) {
    std::vector<NodeId> nodes = {seed};
    region_of_[seed.value] = number;
    Region region = *Bounded(nodes, number);
    bool has_reduction = false;
    // A node that did not fit may fit when others have come, so all neighbours are tried again.
    bool grows = true;
    while (grows && static_cast<int>(region.nodes.size()) < rules_.max_nodes) {
      grows = false;
      for (const NodeId neighbour : Neighbours(region)) {
        const bool folds = facts_[neighbour.value].role == FusedRole::kReduction;
        if (!Fits(neighbour, seed, number) || (folds && has_reduction)) continue;
        nodes = region.nodes;
        nodes.insert(std::upper_bound(nodes.begin(), nodes.end(), neighbour), neighbour);
        region_of_[neighbour.value] = number;
        std::optional<Region> larger = Bounded(nodes, number);
        if (!larger) {
          region_of_[neighbour.value] = kOutside;
          continue;
        }
        region = *std::move(larger);
        has_reduction |= folds;
        grows = true;
        break;
      }
    }
    return region;
  }

  // The producers of what the region reads, and the readers of what it gives.
  std::set<NodeId> Neighbours(const Region& region) const {
    std::set<NodeId> neighbours;
    const auto add = [&](NodeId id) {
      if (region_of_[id.value] == kOutside && facts_[id.value].role != FusedRole::kNone) {
        neighbours.insert(id);
      }
    };
    for (const ValueId input : region.inputs) {
      if (graph_.value(input).source == ValueSource::kNode) add(graph_.value(input).producer);
    }
    for (const ValueId output : region.outputs) {
      for (const Graph::Use& use : uses_[output.value]) add(use.node);
    }
    return neighbours;
  }

  bool Fits(NodeId id, NodeId seed, int number) const {
    const Node& node = graph_.node(id);
    const Node& first = graph_.node(seed);
    if (facts_[id.value].space != facts_[seed.value].space || node.phase != first.phase ||
        node.stage != first.stage ||
        (!colors_.empty() && colors_[id.value] != colors_[seed.value])) {
      return false;
    }
    // A reduction folds an operand that the region computes, and nobody in the region reads it.
    if (facts_[id.value].role == FusedRole::kReduction) {
      const ValueDef& folded = graph_.value(node.inputs[0]);
      if (folded.source != ValueSource::kNode || region_of_[folded.producer.value] != number) {
        return false;
      }
      const auto& uses = uses_[node.outputs[0].value];
      return std::none_of(uses.begin(), uses.end(), [&](const Graph::Use& use) {
        return region_of_[use.node.value] == number;
      });
    }
    return std::none_of(node.inputs.begin(), node.inputs.end(), [&](ValueId input) {
      if (!input.valid() || graph_.value(input).source != ValueSource::kNode) return false;
      const NodeId producer = graph_.value(input).producer;
      return region_of_[producer.value] == number &&
             facts_[producer.value].role == FusedRole::kReduction;
    });
  }

  // The region of these nodes, which are marked with its number; none without a seat, or where it
  // is too large.
  std::optional<Region> Bounded(const std::vector<NodeId>& nodes, int number) const {
    Region region;
    region.nodes = nodes;
    int after = -1;
    int before = std::numeric_limits<int>::max();
    std::set<ValueId> inputs;
    for (const NodeId id : nodes) {
      const Node& node = graph_.node(id);
      for (const ValueId input : node.inputs) {
        if (!input.valid()) continue;
        const ValueDef& value = graph_.value(input);
        if (value.source == ValueSource::kNode) {
          if (region_of_[value.producer.value] == number) continue;
          after = std::max(after, place_[value.producer.value]);
        }
        inputs.insert(input);
      }
      bool is_needed = needed_[node.outputs[0].value];
      for (const Graph::Use& use : uses_[node.outputs[0].value]) {
        if (region_of_[use.node.value] == number) continue;
        before = std::min(before, place_[use.node.value]);
        is_needed = true;
      }
      if (is_needed) region.outputs.push_back(node.outputs[0]);
      if (facts_[id.value].role == FusedRole::kReduction) region.folded = node.outputs[0];
    }
    for (const NodeId id : nodes) {
      if (id.value > after && id.value < before) region.seat = id;
    }
    region.inputs.assign(inputs.begin(), inputs.end());
    std::sort(region.outputs.begin(), region.outputs.end());
    if (!region.seat.valid() || static_cast<int>(region.inputs.size()) > rules_.max_inputs ||
        static_cast<int>(region.outputs.size()) > rules_.max_outputs) {
      return std::nullopt;
    }
    return region;
  }

  const Graph& graph_;
  const FusionRules& rules_;
  const std::vector<int>& colors_;
  const std::vector<std::vector<Graph::Use>> uses_;
  std::vector<NodeFacts> facts_;  // these by NodeId
  std::vector<int> place_;        // the id, or that of the seat of its region
  std::vector<int> region_of_;
  std::vector<bool> needed_;  // by ValueId: an output of the graph or an update
};

}  // namespace

absl::StatusOr<std::vector<Region>> FindRegions(const Graph& graph, const FusionRules& rules,
                                                const std::vector<int>& colors) {
  for (const NodeId id : graph.node_ids()) {
    for (const ValueId input : graph.node(id).inputs) {
      if (!input.valid() || graph.value(input).source != ValueSource::kNode) continue;
      if (graph.value(input).producer < id) continue;
      return absl::InternalError(absl::StrCat("regions are looked for in graph '", graph.name,
                                              "' whose node '", graph.node(id).name,
                                              "' comes before what it reads"));
    }
  }
  return RegionFinder(graph, rules, colors).Find();
}

}  // namespace weft
