#include "ops/rewrites/rewriter.h"

#include <set>
#include <utility>

#include "graph/node_inference.h"
#include "graph/op_schema.h"
#include "graph/schema_check.h"
#include "graph/schema_lookup.h"

namespace weft {
namespace {

// Whether a new type may take the place of an old one: nothing that is known of both differs.
bool MayReplace(const ValueType& old_type, const ValueType& new_type) {
  if (old_type.kind != new_type.kind || old_type.dtype != new_type.dtype) return false;
  if (!old_type.shape.has_rank()) return true;
  if (!new_type.shape.has_rank() || new_type.shape.rank() != old_type.shape.rank()) return false;
  for (int i = 0; i < old_type.shape.rank(); ++i) {
    const Dim& before = old_type.shape.dim(i);
    const Dim& after = new_type.shape.dim(i);
    if (before.is_known() && after.is_known() && before.size() != after.size()) return false;
  }
  return true;
}

bool FitsInPlace(const Graph& graph, const Node& node) {
  if (node.schema == nullptr || !node.schema->infer()) return false;
  if (!CheckNodeAgainstSchema(graph, node).ok()) return false;
  std::vector<InferredOutput> outputs;
  if (!RunShapeFunction(graph, node, outputs).ok() || outputs.empty()) return false;
  return MayReplace(graph.value(node.outputs[0]).type, outputs[0].type);
}

}  // namespace

Rewriter::Rewriter(Graph& graph)
    : graph_(graph), uses_(graph.BuildUses()), is_kept_(graph.value_capacity()) {
  for (const ValueId output : graph.outputs()) is_kept_[output.value] = true;
  for (const Variable& variable : graph.variables()) {
    if (variable.update.valid()) is_kept_[variable.update.value] = true;
  }
}

int Rewriter::rank(ValueId value) const {
  const SymbolicShape& shape = type(value).shape;
  return shape.has_rank() ? shape.rank() : -1;
}

bool Rewriter::IsPrivate(const Match& match) const {
  const std::set<NodeId> inside(match.nodes.begin(), match.nodes.end());
  for (const NodeId id : match.nodes) {
    if (id == match.root()) continue;
    for (const ValueId output : graph_.node(id).outputs) {
      if (!output.valid()) continue;
      const bool is_new = static_cast<size_t>(output.value) >= is_kept_.size();
      if (is_new || is_kept_[output.value]) return false;
      for (const Graph::Use& use : uses_[output.value]) {
        if (!inside.contains(use.node)) return false;
      }
    }
  }
  return true;
}

bool Rewriter::Replace(const Match& match, const Replacement& replacement) {
  Node& root = graph_.node(match.root());
  Node becomes = root;
  becomes.domain.clear();
  becomes.op = replacement.op;
  becomes.schema = FindOpSchema("", replacement.op);
  becomes.attributes = replacement.attributes;
  becomes.inputs = replacement.inputs;
  becomes.outputs.resize(1);
  if (!FitsInPlace(graph_, becomes)) return false;
  root = std::move(becomes);
  for (const NodeId id : match.nodes) {
    if (id != match.root()) graph_.RemoveNode(id);
  }
  return true;
}

GraphBuilder Rewriter::BuilderFor(const Match& match) {
  return weft::BuilderFor(graph_, graph_.node(match.root()));
}

bool Rewriter::Try(const std::function<bool()>& edit) {
  const int first_node = graph_.node_capacity();
  const int first_value = graph_.value_capacity();
  if (edit()) return true;
  // Readers go before what they read, and the constants last.
  for (int id = graph_.node_capacity() - 1; id >= first_node; --id) {
    if (graph_.is_live(NodeId(id))) graph_.RemoveNode(NodeId(id));
  }
  for (int id = graph_.value_capacity() - 1; id >= first_value; --id) {
    if (graph_.is_live(ValueId(id))) graph_.RemoveConstant(ValueId(id));
  }
  return false;
}

int64_t ElementsFrom(const SymbolicShape& shape, int axis) {
  if (!shape.has_rank()) return 0;
  int64_t elements = 1;
  for (int i = axis; i < shape.rank(); ++i) {
    if (!shape.dim(i).is_known()) return 0;
    // Sizes are what a file declares.
    if (__builtin_mul_overflow(elements, shape.dim(i).size(), &elements)) return 0;
  }
  return elements;
}

}  // namespace weft
