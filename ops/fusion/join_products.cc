#include "ops/fusion/join_products.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "graph/op_schema.h"
#include "ops/fusion/region_finder.h"
#include "ops/fusion/region_replacer.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

std::map<DeviceKind, DeviceTakesProduct>& ProductTakersOfDevices() {
  static auto* const takers = new std::map<DeviceKind, DeviceTakesProduct>();
  return *takers;
}

bool IsOp(const Node& node, std::string_view domain, std::string_view op) {
  return node.domain == domain && node.op == op && node.outputs.size() == 1 &&
         node.outputs[0].valid();
}

bool IsProductNode(const Node& node) {
  return IsOp(node, "", "MatMul") || IsOp(node, "", "Gemm") || IsOp(node, kWeftDomain, "MatMul") ||
         IsOp(node, kWeftDomain, "MatMulReduceBatch");
}

bool IsTanhGelu(const Node& node) {
  return IsOp(node, "", "Gelu") && node.attributes.String("approximate", "none") == "tanh";
}

// Of one graph as it is.
class ProductMatcher {
 public:
  ProductMatcher(const Graph& graph, const std::vector<int>& colors)
      : graph_(graph), colors_(colors), uses_(graph.BuildUses()), needed_(graph.value_capacity()) {
    for (const ValueId output : graph.outputs()) needed_[output.value] = true;
    for (const Variable& variable : graph.variables()) {
      if (variable.update.valid()) needed_[variable.update.value] = true;
    }
  }

  // Sets of nodes with this product, the largest first; each has a seat.
  std::vector<Region> At(NodeId id) const {
    const Node& product = graph_.node(id);
    std::vector<Region> regions;
    if (!IsProductNode(product) || !HasPlainOperands(product)) return regions;
    std::vector<std::vector<NodeId>> sets = ChainsBehind(product);
    if (sets.empty()) sets = SumsBeside(product);
    for (const std::vector<NodeId>& nodes : sets) {
      if (std::optional<Region> region = RegionOf(nodes)) regions.push_back(*std::move(region));
    }
    return regions;
  }

 private:
  std::optional<Shape> ShapeOf(ValueId value) const {
    return graph_.value(value).type.shape.ToConcrete();
  }
  DType TypeOf(ValueId value) const { return graph_.value(value).type.dtype; }
  bool IsPrivate(ValueId value) const {
    return uses_[value.value].size() == 1 && !needed_[value.value];
  }
  // The one node that reads a value; null where others need it too.
  const Node* OnlyReader(ValueId value) const {
    return IsPrivate(value) ? &graph_.node(uses_[value.value].front().node) : nullptr;
  }

  // Two matrices of a type that has epilogues, with elements, whose product has several columns.
  bool HasPlainOperands(const Node& product) const {
    if (product.inputs.size() < 2) return false;
    const DType dtype = TypeOf(product.inputs[0]);
    if (dtype != DType::kFloat32 && dtype != DType::kFloat16 && dtype != DType::kBfloat16) {
      return false;
    }
    for (const ValueId value : {product.inputs[0], product.inputs[1], product.outputs[0]}) {
      const std::optional<Shape> shape = value.valid() ? ShapeOf(value) : std::nullopt;
      if (!shape || shape->rank() < 2 || shape->num_elements() == 0 || TypeOf(value) != dtype) {
        return false;
      }
      // It would become part of the body.
      const bool is_number =
          graph_.value(value).source == ValueSource::kConstant && shape->num_elements() == 1;
      if (is_number) return false;
    }
    return ShapeOf(product.outputs[0])->dims().back() > 1;
  }

  // A value of one row, with the columns of `like`.
  bool IsRowOf(ValueId value, ValueId like) const {
    const std::optional<Shape> row = value.valid() ? ShapeOf(value) : std::nullopt;
    const Shape of = *ShapeOf(like);
    return row && row->rank() >= 1 && row->rank() <= of.rank() &&
           row->dims().back() == of.dims().back() && row->num_elements() == row->dims().back() &&
           TypeOf(value) == TypeOf(like);
  }

  // What a product adds to its own result.
  enum class OwnAddend : uint8_t { kNone, kRow, kOther };
  OwnAddend AddendOf(const Node& product) const {
    const bool reads = product.op == "Gemm" && product.inputs.size() > 2 &&
                       product.inputs[2].valid() && product.attributes.Float("beta", 1.0f) != 0;
    if (!reads) return OwnAddend::kNone;
    return product.attributes.Float("beta", 1.0f) == 1 &&
                   IsRowOf(product.inputs[2], product.outputs[0])
               ? OwnAddend::kRow
               : OwnAddend::kOther;
  }

  // Of the nodes behind a product, the longest first; empty where nothing follows that could be
  // joined.
  std::vector<std::vector<NodeId>> ChainsBehind(const Node& product) const {
    std::vector<std::vector<NodeId>> chains;
    const OwnAddend own = AddendOf(product);
    if (own == OwnAddend::kOther) return chains;
    ValueId z = product.outputs[0];
    std::vector<NodeId> nodes = {product.id};
    const auto add = [&](const Node& node) {
      nodes.push_back(node.id);
      z = node.outputs[0];
      chains.insert(chains.begin(), nodes);
    };
    const Node* reader = OnlyReader(z);
    if (own == OwnAddend::kNone && reader != nullptr && IsGradientOfGelu(*reader, z)) {
      add(*reader);
      return chains;
    }
    if (own == OwnAddend::kNone && reader != nullptr && IsBiasOf(*reader, z)) {
      add(*reader);
      reader = OnlyReader(z);
    }
    if (const Node* const gelu = GeluOf(z)) {
      add(*gelu);
    } else if (reader != nullptr && IsMatrixAddedTo(*reader, z)) {
      add(*reader);
    }
    return chains;
  }

  bool IsBiasOf(const Node& node, ValueId z) const {
    if (!IsOp(node, "", "Add") || node.inputs.size() != 2) return false;
    const ValueId other = node.inputs[node.inputs[0] == z ? 1 : 0];
    return other != z && IsRowOf(other, z) && SameType(node.outputs[0], z);
  }

  bool IsMatrixAddedTo(const Node& node, ValueId z) const {
    if (!IsOp(node, "", "Add") || node.inputs.size() != 2) return false;
    const ValueId other = node.inputs[node.inputs[0] == z ? 1 : 0];
    const bool is_number = graph_.value(other).source == ValueSource::kConstant &&
                           graph_.value(other).constant.num_elements() == 1;
    return other != z && SameType(other, z) && SameType(node.outputs[0], z) && !is_number;
  }

  // dZ of a product and of Z.
  bool IsGradientOfGelu(const Node& node, ValueId product) const {
    return IsOp(node, kWeftDomain, "TanhGeluGrad") && node.inputs[0] == product &&
           node.inputs[1] != product && SameType(node.inputs[1], product) && HasAuxColumns(product);
  }

  // The Gelu of Z. Where anything else needs Z, it has to lie as the library writes it.
  const Node* GeluOf(ValueId z) const {
    const Node* found = nullptr;
    for (const Graph::Use& use : uses_[z.value]) {
      const Node& node = graph_.node(use.node);
      if (!IsTanhGelu(node)) continue;
      if (found != nullptr) return nullptr;
      found = &node;
    }
    return found != nullptr && (IsPrivate(z) || HasAuxColumns(z)) ? found : nullptr;
  }

  bool HasAuxColumns(ValueId value) const {
    return ShapeOf(value)->dims().back() % kProductAuxColumns == 0;
  }
  bool SameType(ValueId a, ValueId b) const {
    return TypeOf(a) == TypeOf(b) && graph_.value(a).type.shape == graph_.value(b).type.shape;
  }

  // A product of all rows of two values, with what sums the rows of one of them.
  std::vector<std::vector<NodeId>> SumsBeside(const Node& product) const {
    if (AddendOf(product) != OwnAddend::kNone || !MultipliesRows(product)) return {};
    std::vector<std::vector<NodeId>> sets;
    // A bias is that of the second operand, or of the first where the weight is stored [out, in].
    for (const ValueId operand : {product.inputs[1], product.inputs[0]}) {
      for (const Graph::Use& use : uses_[operand.value]) {
        if (use.input_index != 0 || !SumsRows(graph_.node(use.node))) continue;
        std::vector<NodeId> nodes = {product.id, use.node};
        std::sort(nodes.begin(), nodes.end());
        sets.push_back(std::move(nodes));
      }
    }
    return sets;
  }

  // X^T Y over all rows of both: k is the rows.
  bool MultipliesRows(const Node& product) const {
    const Shape a = *ShapeOf(product.inputs[0]), b = *ShapeOf(product.inputs[1]);
    if (a.dims().back() < 2 || b.dims().back() < 2 || product.inputs[0] == product.inputs[1]) {
      return false;
    }
    if (product.op == "MatMulReduceBatch") return true;
    const bool turns_a = product.attributes.Int("transA", 0) != 0;
    const bool turns_b = product.attributes.Int("transB", 0) != 0;
    return a.rank() == 2 && b.rank() == 2 && turns_a && !turns_b &&
           product.attributes.Float("alpha", 1.0f) == 1;
  }

  // Sums all axes of its input but the last.
  bool SumsRows(const Node& node) const {
    const bool to_shape = IsOp(node, kWeftDomain, "SumToShape");
    if ((!to_shape && !IsOp(node, "", "ReduceSum")) || node.inputs.size() != 2 ||
        !node.inputs[1].valid() || graph_.value(node.inputs[1]).source != ValueSource::kConstant) {
      return false;
    }
    const std::optional<Shape> from = ShapeOf(node.inputs[0]), to = ShapeOf(node.outputs[0]);
    if (!from || !to || to->rank() < 1 || to->num_elements() != from->dims().back() ||
        TypeOf(node.outputs[0]) != TypeOf(node.inputs[0])) {
      return false;
    }
    if (to_shape) return to->dims().back() == from->dims().back();
    const Tensor& axes = graph_.value(node.inputs[1]).constant;
    if (axes.dtype() != DType::kInt64 || axes.num_elements() != from->rank() - 1) return false;
    const auto data = axes.data<int64_t>();
    return std::none_of(data.begin(), data.end(),
                        [&](int64_t axis) { return axis == -1 || axis == from->rank() - 1; });
  }

  // Nodes of one phase, stage and color, and the place for the node that they become.
  std::optional<Region> RegionOf(const std::vector<NodeId>& nodes) const {
    Region region;
    region.nodes = nodes;
    const Node& first = graph_.node(nodes[0]);
    std::set<ValueId> inputs;
    int after = -1;
    int before = std::numeric_limits<int>::max();
    for (const NodeId id : nodes) {
      const Node& node = graph_.node(id);
      if (node.phase != first.phase || node.stage != first.stage) return std::nullopt;
      if (!colors_.empty() && colors_[id.value] != colors_[first.id.value]) return std::nullopt;
      for (const ValueId input : node.inputs) {
        if (!input.valid()) continue;
        const ValueDef& value = graph_.value(input);
        if (value.source == ValueSource::kNode) {
          if (std::find(nodes.begin(), nodes.end(), value.producer) != nodes.end()) continue;
          after = std::max(after, value.producer.value);
        }
        inputs.insert(input);
      }
      bool is_needed = needed_[node.outputs[0].value];
      for (const Graph::Use& use : uses_[node.outputs[0].value]) {
        if (std::find(nodes.begin(), nodes.end(), use.node) != nodes.end()) continue;
        before = std::min(before, use.node.value);
        is_needed = true;
      }
      if (is_needed) region.outputs.push_back(node.outputs[0]);
      if (!IsProductNode(node) && SumsRows(node)) region.folded = node.outputs[0];
    }
    for (const NodeId id : nodes) {
      if (id.value > after && id.value < before) region.seat = id;
    }
    region.inputs.assign(inputs.begin(), inputs.end());
    std::sort(region.outputs.begin(), region.outputs.end());
    if (!region.seat.valid() || region.outputs.empty()) return std::nullopt;
    return region;
  }

  const Graph& graph_;
  const std::vector<int>& colors_;
  const std::vector<std::vector<Graph::Use>> uses_;
  std::vector<bool> needed_;  // by ValueId: an output of the graph or an update
};

}  // namespace

absl::StatusOr<FusionCounts> JoinProducts(Graph& graph, const TakesProduct& takes,
                                          const std::vector<int>& colors) {
  FusionCounts counts;
  std::optional<ProductMatcher> matcher;
  for (const NodeId id : graph.node_ids()) {
    if (!graph.is_live(id) || !IsProductNode(graph.node(id))) continue;
    if (!matcher) matcher.emplace(graph, colors);
    for (const Region& region : matcher->At(id)) {
      RegionReplacer replacer(graph);
      const std::shared_ptr<Graph> body = replacer.BodyOf(region);
      WEFT_ASSIGN_OR_RETURN(const bool taken, takes(*body));
      if (!taken) continue;
      replacer.JoinProduct(region, body);
      counts.nodes += static_cast<int>(region.nodes.size());
      ++counts.regions;
      matcher.reset();
      break;
    }
  }
  return counts;
}

DeviceTakesProduct FindProductTaker(DeviceKind device) {
  const auto found = ProductTakersOfDevices().find(device);
  return found == ProductTakersOfDevices().end() ? nullptr : found->second;
}

bool RegisterProductTaker(DeviceKind device, DeviceTakesProduct takes) {
  ProductTakersOfDevices()[device] = takes;
  return true;
}

}  // namespace weft
