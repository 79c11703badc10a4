// Global value numbering in topological order: a node that computes what an earlier one computes
// gives its uses to that one.
#include <algorithm>
#include <bit>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/hash/hash.h"
#include "graph/op_schema.h"
#include "graph/passes/pass.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

// Constants up to this size are compared; larger equal ones are rare, and reading them is not free.
constexpr size_t kMaxComparedBytes = size_t{64} << 10;

size_t HashOf(int64_t value) { return absl::HashOf(value); }
size_t HashOf(float value) { return absl::HashOf(std::bit_cast<uint32_t>(value)); }
size_t HashOf(const std::string& value) { return absl::HashOf(value); }
size_t HashOf(const std::shared_ptr<Graph>& value) { return absl::HashOf(value.get()); }
size_t HashOf(const Tensor& value) {
  const size_t header = absl::HashOf(static_cast<int>(value.dtype()), value.shape());
  if (!value.is_on_host() || value.bytes() == 0 || value.bytes() > kMaxComparedBytes) return header;
  const auto* bytes = static_cast<const char*>(value.raw_data());
  return absl::HashOf(header, absl::string_view(bytes, value.bytes()));
}
template <typename T>
size_t HashOf(const std::vector<T>& values) {
  size_t hash = values.size();
  for (const T& value : values) hash = absl::HashOf(hash, HashOf(value));
  return hash;
}

size_t HashOf(const Node& node) {
  size_t hash = absl::HashOf(node.domain, node.op, static_cast<int>(node.phase), node.stage);
  for (const ValueId input : node.inputs) hash = absl::HashOf(hash, input);
  for (const auto& [name, attribute] : node.attributes.items()) {
    const size_t value = std::visit([](const auto& v) { return HashOf(v); }, attribute);
    hash = absl::HashOf(hash, name, value);
  }
  return hash;
}

// True if `kept` computes every output that `merged` computes.
bool Covers(const Node& kept, const Node& merged) {
  if (kept.outputs.size() < merged.outputs.size()) return false;
  for (size_t i = 0; i < merged.outputs.size(); ++i) {
    if (merged.outputs[i].valid() && !kept.outputs[i].valid()) return false;
  }
  return true;
}

bool Same(const Node& a, const Node& b) {
  return a.op == b.op && a.domain == b.domain && a.phase == b.phase && a.stage == b.stage &&
         a.inputs == b.inputs && a.attributes.Equals(b.attributes);
}

class Merger {
 public:
  explicit Merger(Graph& graph) : graph_(graph), replacement_(graph.value_capacity()) {
    is_output_.resize(graph.value_capacity());
    for (const ValueId output : graph.outputs()) is_output_[output.value] = true;
  }

  absl::StatusOr<bool> Run() {
    WEFT_ASSIGN_OR_RETURN(const std::vector<NodeId> order, graph_.TopologicalOrder());
    MergeConstants();
    for (const NodeId id : order) VisitNode(id);
    if (!changed_) return false;
    graph_.ReplaceUses(replacement_);
    for (const NodeId id : merged_nodes_) graph_.RemoveNode(id);
    for (const ValueId id : merged_constants_) graph_.RemoveConstant(id);
    return true;
  }

 private:
  // Integers only (shape arithmetic): two equal float constants may be two parameters that training
  // will pull apart.
  bool MayMergeConstant(const ValueDef& value) const {
    return value.source == ValueSource::kConstant && !is_output_[value.id.value] &&
           (IsInteger(value.constant.dtype()) || value.constant.dtype() == DType::kBool) &&
           value.constant.is_on_host() && value.constant.bytes() <= kMaxComparedBytes;
  }

  void MergeConstants() {
    absl::flat_hash_map<size_t, std::vector<ValueId>> seen;
    for (const ValueId id : graph_.value_ids()) {
      const ValueDef& value = graph_.value(id);
      if (!MayMergeConstant(value)) continue;
      std::vector<ValueId>& candidates = seen[HashOf(value.constant)];
      const auto same = std::ranges::find_if(candidates, [&](ValueId other) {
        return BitwiseEqual(graph_.value(other).constant, value.constant);
      });
      if (same == candidates.end()) {
        candidates.push_back(id);
        continue;
      }
      replacement_[id.value] = *same;
      merged_constants_.push_back(id);
      changed_ = true;
    }
  }

  bool MayMerge(const Node& node) const {
    if (node.schema == nullptr || node.schema->stateful() || node.outputs.empty() ||
        node.schema->op_class() != OpClass::kCompute) {
      return false;
    }
    // Graph outputs keep their names.
    return std::ranges::none_of(node.outputs,
                                [this](ValueId id) { return id.valid() && is_output_[id.value]; });
  }

  void VisitNode(NodeId id) {
    Node& node = graph_.node(id);
    for (ValueId& input : node.inputs) {
      if (input.valid() && replacement_[input.value].valid()) input = replacement_[input.value];
    }
    if (node.schema == nullptr || node.schema->stateful()) return;
    std::vector<NodeId>& candidates = nodes_[HashOf(node)];
    if (MayMerge(node)) {
      for (const NodeId other : candidates) {
        const Node& kept = graph_.node(other);
        if (!Same(kept, node) || !Covers(kept, node)) continue;
        Merge(kept, node);
        return;
      }
    }
    candidates.push_back(id);
  }

  void Merge(const Node& kept, const Node& merged) {
    for (size_t i = 0; i < merged.outputs.size(); ++i) {
      if (merged.outputs[i].valid()) replacement_[merged.outputs[i].value] = kept.outputs[i];
    }
    merged_nodes_.push_back(merged.id);
    changed_ = true;
  }

  Graph& graph_;
  std::vector<ValueId> replacement_;  // by ValueId
  std::vector<bool> is_output_;       // by ValueId: of the graph
  absl::flat_hash_map<size_t, std::vector<NodeId>> nodes_;
  std::vector<NodeId> merged_nodes_;
  std::vector<ValueId> merged_constants_;
  bool changed_ = false;
};

class MergeCommonSubexpressionsPass final : public Pass {
 public:
  std::string_view name() const override { return "merge_common_subexpressions"; }
  absl::StatusOr<bool> Run(Graph& graph) override { return Merger(graph).Run(); }
};

}  // namespace

std::unique_ptr<Pass> NewMergeCommonSubexpressionsPass() {
  return std::make_unique<MergeCommonSubexpressionsPass>();
}

}  // namespace weft
