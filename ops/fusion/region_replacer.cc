#include "ops/fusion/region_replacer.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "ops/fusion/fused_node.h"

namespace weft {
namespace {

// A number that kernels may write into their text: one element, finite, and exact in double.
bool IsNumber(const ValueDef& value) {
  if (value.source != ValueSource::kConstant || value.constant.num_elements() != 1) return false;
  const absl::StatusOr<Tensor> wide = CastTensor(value.constant, DType::kFloat64);
  if (!wide.ok()) return false;
  const double number = wide->data<double>()[0];
  return std::isfinite(number) && (IsFloatingPoint(value.type.dtype) || std::abs(number) < 0x1p53);
}

// The constants that a reduction has besides what it folds: its axes.
std::set<ValueId> AxesOf(const Graph& graph, const Region& region) {
  std::set<ValueId> axes;
  if (!region.folded.valid()) return axes;
  const Node& reduction = graph.node(graph.value(region.folded).producer);
  for (size_t i = 1; i < reduction.inputs.size(); ++i) {
    const ValueId input = reduction.inputs[i];
    if (!input.valid() || graph.value(input).source != ValueSource::kConstant) continue;
    axes.insert(input);
  }
  return axes;
}

class RegionBody {
 public:
  RegionBody(const Graph& graph, const Region& region) : graph_(graph) {
    body_->name = graph.node(region.seat).name;
    const std::set<ValueId> axes = AxesOf(graph, region);
    for (const ValueId id : region.inputs) {
      const ValueDef& value = graph.value(id);
      if (axes.contains(id) || IsNumber(value)) {
        inside_[id] = body_->AddConstant(value.name, value.constant);
      } else {
        operands_.push_back(id);
      }
    }
  }

  // What the body reads of the graph, in order of ids.
  std::vector<ValueId>& operands() { return operands_; }

  // `inputs`: the operands, in the order of the fused node, and omitted ones.
  std::shared_ptr<Graph> Make(const Region& region, const std::vector<ValueId>& inputs) {
    for (const ValueId id : inputs) {
      if (!id.valid()) continue;
      inside_[id] = body_->AddInput(graph_.value(id).name, graph_.value(id).type);
    }
    for (const NodeId id : region.nodes) AddPart(graph_.node(id));
    for (const ValueId id : region.outputs) body_->AddOutput(inside_.at(id));
    return body_;
  }

 private:
  void AddPart(const Node& node) {
    Graph::NodeSpec spec;
    spec.name = node.name;
    spec.domain = node.domain;
    spec.op = node.op;
    spec.attributes = node.attributes;
    spec.phase = node.phase;
    spec.stage = node.stage;
    spec.origin = node.origin;
    for (const ValueId input : node.inputs) {
      spec.inputs.push_back(input.valid() ? inside_.at(input) : kNoValue);
    }
    spec.outputs = {graph_.value(node.outputs[0]).name};
    const NodeId part = body_->AddNode(std::move(spec));
    // A schema that no registry has comes along.
    body_->node(part).schema = node.schema;
    const ValueId output = body_->node(part).outputs[0];
    body_->value(output).type = graph_.value(node.outputs[0]).type;
    body_->value(output).placement = graph_.value(node.outputs[0]).placement;
    inside_[node.outputs[0]] = output;
  }

  const Graph& graph_;
  std::shared_ptr<Graph> body_ = std::make_shared<Graph>();
  std::map<ValueId, ValueId> inside_;
  std::vector<ValueId> operands_;
};

}  // namespace

RegionReplacer::RegionReplacer(Graph& graph) : graph_(graph), uses_(graph.BuildUses()) {
  for (const ValueId output : graph.outputs()) kept_.insert(output);
  for (const Variable& variable : graph.variables()) {
    if (variable.update.valid()) updated_[variable.update] = variable.value;
  }
}

std::shared_ptr<Graph> RegionReplacer::BodyOf(const Region& region) const {
  RegionBody body(graph_, region);
  const std::vector<ValueId> inputs = body.operands();
  return body.Make(region, inputs);
}

void RegionReplacer::Fuse(const Region& region) {
  RegionBody body(graph_, region);
  const std::vector<ValueId> inputs = InOrder(region, body.operands());
  const std::shared_ptr<Graph> parts = body.Make(region, inputs);
  Node& seat = ReplaceParts(region);
  seat.op = kFusedOp;
  seat.schema = &FusedSchema();
  seat.attributes = {{kFusedBody, parts}};
  seat.inputs = inputs;
}

void RegionReplacer::JoinProduct(const Region& region, std::shared_ptr<Graph> body) {
  const std::vector<ValueId> inputs = RegionBody(graph_, region).operands();
  Node& seat = ReplaceParts(region);
  seat.op = kJoinedProductOp;
  seat.schema = &JoinedProductSchema();
  seat.attributes = {{kFusedBody, std::move(body)}};
  seat.inputs = inputs;
}

Node& RegionReplacer::ReplaceParts(const Region& region) {
  Node& seat = graph_.node(region.seat);
  // What nobody needs any more goes with one of the other nodes.
  Node& other = graph_.node(region.nodes[region.nodes[0] == region.seat ? 1 : 0]);
  for (const NodeId id : region.nodes) {
    Node& node = graph_.node(id);
    const ValueId output = node.outputs[0];
    const bool stays = std::binary_search(region.outputs.begin(), region.outputs.end(), output);
    if (stays) {
      node.outputs[0] = kNoValue;
    } else if (id == region.seat) {
      other.outputs.push_back(output);
    }
  }
  seat.domain = std::string(kWeftDomain);
  seat.outputs = region.outputs;
  for (size_t i = 0; i < region.outputs.size(); ++i) {
    ValueDef& output = graph_.value(region.outputs[i]);
    output.producer = region.seat;
    output.output_index = static_cast<int>(i);
  }
  for (const NodeId id : region.nodes) {
    if (id != region.seat) graph_.RemoveNode(id);
  }
  return seat;
}

// First those that outputs may be written over.
std::vector<ValueId> RegionReplacer::InOrder(const Region& region,
                                             std::vector<ValueId> operands) const {
  const std::set<NodeId> nodes(region.nodes.begin(), region.nodes.end());
  std::vector<ValueId> inputs;
  for (size_t i = 0; i < region.outputs.size() && i < kFusedInPlace; ++i) {
    const auto found = std::find_if(operands.begin(), operands.end(), [&](ValueId operand) {
      return region.outputs[i] != region.folded && MayWriteOver(operand, region.outputs[i], nodes);
    });
    inputs.push_back(found == operands.end() ? kNoValue : *found);
    if (found != operands.end()) operands.erase(found);
  }
  inputs.insert(inputs.end(), operands.begin(), operands.end());
  return inputs;
}

// Each element of the output is computed by whoever reads the operand's at the same place, and
// nobody else reads the operand. Whether it dies there, and may be written at all, the lowering
// decides.
bool RegionReplacer::MayWriteOver(ValueId operand, ValueId output,
                                  const std::set<NodeId>& nodes) const {
  const ValueDef& from = graph_.value(operand);
  const ValueDef& to = graph_.value(output);
  if (from.type.dtype != to.type.dtype || from.type.shape != to.type.shape) return false;
  const auto updated = updated_.find(output);
  if (updated != updated_.end()) return updated->second == operand;
  if (from.source != ValueSource::kNode || kept_.contains(operand)) return false;
  const auto& uses = uses_[operand.value];
  return std::all_of(uses.begin(), uses.end(),
                     [&](const Graph::Use& use) { return nodes.contains(use.node); });
}

}  // namespace weft
