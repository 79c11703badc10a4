#include "onnx_import/parameters/forward_walk.h"

#include <algorithm>
#include <set>

namespace weft {
namespace {

constexpr int kMaxVisited = 4096;
constexpr size_t kMaxEffectiveUses = 64;
constexpr int kMaxBack = 64;

}  // namespace

bool IsOp(const Node& node, std::string_view op) { return node.domain.empty() && node.op == op; }

bool IsOneOf(const Node& node, const std::vector<std::string_view>& ops) {
  return node.domain.empty() && std::find(ops.begin(), ops.end(), node.op) != ops.end();
}

bool PassesOn(const Node& node, int input) {
  static const auto* const ops = new std::vector<std::string_view>{
      "Identity", "Cast",   "CastLike", "Transpose", "Reshape", "Unsqueeze", "Squeeze",
      "Flatten",  "Expand", "Slice",    "Tile",      "Split",   "Dropout"};
  return input == 0 && IsOneOf(node, *ops);
}

ForwardWalk::ForwardWalk(const Graph& graph)
    : graph_(graph), uses_(graph.BuildUses()), is_output_(graph.value_capacity()) {
  for (const ValueId output : graph.outputs()) is_output_[output.value] = true;
}

bool ForwardWalk::AllEndAt(ValueId value, const Test& follow, const Test& accept) const {
  std::set<ValueId> seen = {value};
  std::vector<ValueId> stack = {value};
  bool is_accepted = false;
  int visited = 0;
  while (!stack.empty()) {
    const ValueId next = stack.back();
    stack.pop_back();
    if (is_output_[next.value]) return false;
    for (const Graph::Use& use : uses_[next.value]) {
      const Node& node = graph_.node(use.node);
      if (++visited > kMaxVisited) return false;
      if (accept(node, use.input_index)) {
        is_accepted = true;
        continue;
      }
      if (!follow(node, use.input_index)) return false;
      for (const ValueId output : node.outputs) {
        if (output.valid() && seen.insert(output).second) stack.push_back(output);
      }
    }
  }
  return is_accepted;
}

std::vector<ForwardWalk::Use> ForwardWalk::EffectiveUses(ValueId value) const {
  std::vector<Use> ends;
  std::set<ValueId> seen = {value};
  std::vector<ValueId> queue = {value};
  for (size_t i = 0; i < queue.size() && i < kMaxEffectiveUses; ++i) {
    const ValueId next = queue[i];
    for (const Graph::Use& use : uses_[next.value]) {
      const Node& node = graph_.node(use.node);
      if (!PassesOn(node, use.input_index)) {
        if (ends.size() < kMaxEffectiveUses) ends.push_back({&node, use.input_index});
        continue;
      }
      for (const ValueId output : node.outputs) {
        if (output.valid() && seen.insert(output).second) queue.push_back(output);
      }
    }
  }
  return ends;
}

const Node* ForwardWalk::MakerOf(ValueId value) const {
  for (int i = 0; i < kMaxBack && value.valid(); ++i) {
    if (graph_.value(value).source != ValueSource::kNode) return nullptr;
    const Node& node = graph_.node(graph_.value(value).producer);
    if (!PassesOn(node, 0) || node.inputs.empty()) return &node;
    value = node.inputs.front();
  }
  return nullptr;
}

ValueId ForwardWalk::OtherOperand(const Node& node, int input) {
  if (node.inputs.size() != 2 || input > 1) return kNoValue;
  return node.inputs[1 - input];
}

}  // namespace weft
