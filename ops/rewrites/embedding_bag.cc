#include "ops/rewrites/embedding_bag.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "graph/graph_builder.h"
#include "graph/node_bodies.h"
#include "ops/rewrites/pattern.h"
#include "ops/rewrites/rewriter.h"

namespace weft {
namespace {

// The node that makes a value as its first output, if it is this operator; else null.
const Node* MakerOf(const Graph& graph, ValueId value, const std::string& op) {
  if (!value.valid()) return nullptr;
  const ValueDef& def = graph.value(value);
  if (def.source != ValueSource::kNode || def.output_index != 0) return nullptr;
  const Node& node = graph.node(def.producer);
  return node.domain.empty() && node.op == op ? &node : nullptr;
}

bool AreInts(const Graph& graph, const Node& node, size_t input,
             const std::vector<int64_t>& expected) {
  if (node.inputs.size() <= input || !node.inputs[input].valid()) return false;
  return KnownInts(graph, node.inputs[input]) == expected;
}

// What a value was made of by operators that keep its only element: scalars as vectors, other
// integer types.
ValueId WithoutViews(const Graph& graph, ValueId value) {
  for (const char* const op : {"Identity", "Cast", "Unsqueeze", "Squeeze", "Cast", "Unsqueeze"}) {
    const Node* const node = MakerOf(graph, value, op);
    if (node != nullptr) value = node->inputs[0];
  }
  return value;
}

// A body, and where its captured values come from.
struct LoopBody {
  const Graph& outer;
  const Node& loop;
  NodeBody body;

  const Graph& graph() const { return *body.graph; }
  // The value of the outer graph that a value of the body is; none if it is made in the body.
  ValueId Outer(ValueId inner) const {
    const std::vector<ValueId>& inputs = graph().inputs();
    const auto found = std::find(inputs.begin(), inputs.end(), inner);
    const auto place = static_cast<int>(found - inputs.begin());
    if (found == inputs.end() || place < body.num_inputs()) return kNoValue;
    return loop.inputs[static_cast<size_t>(body.first_capture + place - body.num_inputs())];
  }
  // Whether an operand of a node of the body is these integers, made in the body or outside.
  bool IsInts(const Node& node, size_t input, const std::vector<int64_t>& expected) const {
    if (node.inputs.size() <= input || !node.inputs[input].valid()) return false;
    const ValueId captured = Outer(node.inputs[input]);
    return captured.valid() ? KnownInts(outer, captured) == expected
                            : KnownInts(graph(), node.inputs[input]) == expected;
  }
  // Whether a value is known to be true whenever it is looked at.
  bool IsTrue(ValueId inner) const {
    inner = WithoutViews(graph(), inner);
    const ValueId captured = Outer(inner);
    const auto number = captured.valid() ? UniformNumber(outer, WithoutViews(outer, captured))
                                         : UniformNumber(graph(), inner);
    return number.has_value() && *number != 0;
  }
};

// What the rounds of a Loop do, in values of the outer graph.
struct Bags {
  ValueId table, indices, starts, ends;
  std::string reduction;  // "ReduceSum", ...
};

// The captured vector of which round i takes element i; none if the value is something else.
ValueId ElementOfRound(const LoopBody& body, ValueId value) {
  const Node* const unsqueeze = MakerOf(body.graph(), value, "Unsqueeze");
  const Node* const gather =
      unsqueeze == nullptr ? nullptr : MakerOf(body.graph(), unsqueeze->inputs[0], "Gather");
  const bool is_round = gather != nullptr && gather->attributes.Int("axis", 0) == 0 &&
                        gather->inputs[1] == body.graph().inputs()[0];
  return is_round ? body.Outer(gather->inputs[0]) : kNoValue;
}

std::optional<Bags> BagsOf(const LoopBody& body) {
  const Graph& graph = body.graph();
  if (body.body.num_inputs() != 2 || graph.outputs().size() != 2) return std::nullopt;
  if (!body.IsTrue(graph.outputs()[0])) return std::nullopt;
  Bags bags;
  const Node* reduce = nullptr;
  for (const char* const op : {"ReduceSum", "ReduceMean", "ReduceMax"}) {
    reduce = reduce != nullptr ? reduce : MakerOf(graph, graph.outputs()[1], op);
  }
  if (reduce == nullptr || reduce->attributes.Int("keepdims", 1) != 0 ||
      !body.IsInts(*reduce, 1, {0})) {
    return std::nullopt;
  }
  bags.reduction = reduce->op;
  const Node* const gather = MakerOf(graph, reduce->inputs[0], "Gather");
  if (gather == nullptr || gather->attributes.Int("axis", 0) != 0) return std::nullopt;
  const Node* const slice = MakerOf(graph, gather->inputs[1], "Slice");
  if (slice == nullptr || !body.IsInts(*slice, 3, {0})) return std::nullopt;
  const bool has_step = slice->inputs.size() > 4 && slice->inputs[4].valid();
  if (has_step && !body.IsInts(*slice, 4, {1})) return std::nullopt;
  bags.table = body.Outer(gather->inputs[0]);
  bags.indices = body.Outer(slice->inputs[0]);
  if (!bags.indices.valid()) return std::nullopt;
  const SymbolicShape& indices = body.outer.value(bags.indices).type.shape;
  if (!indices.has_rank() || indices.rank() != 1) return std::nullopt;
  bags.starts = ElementOfRound(body, slice->inputs[1]);
  bags.ends = ElementOfRound(body, slice->inputs[2]);
  const bool is_whole =
      bags.table.valid() && bags.indices.valid() && bags.starts.valid() && bags.ends.valid();
  return is_whole ? std::optional<Bags>(std::move(bags)) : std::nullopt;
}

// ---- Bags of one length.

// The indices as [bags, length].
using Table = std::optional<ValueId>;

// The length of bags whose offsets are known to be 0, L, 2 L, ... up to the number of indices; 0:
// it is not so.
int64_t KnownLength(const Graph& graph, const Bags& bags) {
  const auto starts = KnownInts(graph, bags.starts);
  const auto ends = KnownInts(graph, bags.ends);
  if (!starts.has_value() || !ends.has_value() || ends->empty()) return 0;
  if (starts->size() < ends->size()) return 0;
  const int64_t length = ends->front();
  const int64_t indices = ElementsFrom(graph.value(bags.indices).type.shape, 0);
  const auto count = static_cast<int64_t>(ends->size());
  // Before products of the file's numbers are made.
  if (length < 1 || indices % count != 0 || indices / count != length) return 0;
  for (size_t i = 0; i < ends->size(); ++i) {
    const auto bag = static_cast<int64_t>(i);
    if ((*starts)[i] != bag * length || (*ends)[i] != (bag + 1) * length) return 0;
  }
  return length;
}

// Whether a scalar is the size of an axis of a value.
bool IsDimOf(const Graph& graph, ValueId scalar, ValueId value, int64_t axis) {
  const Node* const gather = MakerOf(graph, WithoutViews(graph, scalar), "Gather");
  if (gather == nullptr || !AreInts(graph, *gather, 1, {axis})) return false;
  const Node* const shape = MakerOf(graph, gather->inputs[0], "Shape");
  return shape != nullptr && shape->inputs[0] == value && shape->attributes.Int("start", 0) == 0;
}

// Whether a scalar is the number of elements of `table` [batch, length], by itself or as `flat`.
bool IsCountOf(const Graph& graph, ValueId scalar, ValueId table, ValueId flat) {
  scalar = WithoutViews(graph, scalar);
  if (const Node* const size = MakerOf(graph, scalar, "Size")) {
    return size->inputs[0] == table || size->inputs[0] == flat;
  }
  if (const Node* const product = MakerOf(graph, scalar, "ReduceProd")) {
    const Node* const shape = MakerOf(graph, WithoutViews(graph, product->inputs[0]), "Shape");
    const bool is_whole = product->inputs.size() < 2 || !product->inputs[1].valid() ||
                          AreInts(graph, *product, 1, {0});
    return is_whole && shape != nullptr && shape->inputs[0] == table;
  }
  if (const Node* const product = MakerOf(graph, scalar, "Mul")) {
    const auto is_length = [&](ValueId value) {
      const Dim& length = graph.value(table).type.shape.dim(1);
      return IsDimOf(graph, value, table, 1) ||
             KnownInts(graph, value) == std::vector<int64_t>{length.size()};
    };
    const ValueId a = product->inputs[0];
    const ValueId b = product->inputs[1];
    return (IsDimOf(graph, a, table, 0) && is_length(b)) ||
           (IsDimOf(graph, b, table, 0) && is_length(a));
  }
  return IsDimOf(graph, scalar, flat, 0);
}

// The vector of which `value` is the elements from `first` on, with `to_end` up to its end; none if
// it is no such Slice.
ValueId SliceFrom(const Graph& graph, ValueId value, int64_t first, bool to_end) {
  const Node* const slice = MakerOf(graph, value, "Slice");
  if (slice == nullptr || !AreInts(graph, *slice, 1, {first})) return kNoValue;
  const bool has_step = slice->inputs.size() > 4 && slice->inputs[4].valid();
  if (has_step && !AreInts(graph, *slice, 4, {1})) return kNoValue;
  const auto end = KnownInts(graph, slice->inputs[2]);
  const bool is_end =
      end.has_value() && end->size() == 1 && end->front() >= std::numeric_limits<int32_t>::max();
  return is_end || !to_end ? slice->inputs[0] : kNoValue;
}

// Offsets 0, L, 2 L, ... below the number of indices, which are a table [batch, L] laid out flat.
Table TableOfRange(const Graph& graph, const Bags& bags) {
  const Node* const flat = MakerOf(graph, bags.indices, "Reshape");
  if (flat == nullptr) return std::nullopt;
  const ValueId table = flat->inputs[0];
  const SymbolicShape& shape = graph.value(table).type.shape;
  if (!shape.has_rank() || shape.rank() != 2 || !shape.dim(1).is_known()) return std::nullopt;
  const SymbolicShape& flat_shape = graph.value(bags.indices).type.shape;
  if (!flat_shape.has_rank() || flat_shape.rank() != 1) return std::nullopt;
  // The exporter leaves the Slice from 0 on out.
  ValueId offsets = SliceFrom(graph, bags.starts, 0, /*to_end=*/false);
  if (!offsets.valid()) offsets = bags.starts;
  if (SliceFrom(graph, bags.ends, 1, /*to_end=*/true) != offsets) return std::nullopt;
  const Node* const concat = MakerOf(graph, offsets, "Concat");
  if (concat == nullptr || concat->inputs.size() != 2) return std::nullopt;
  const Node* const range = MakerOf(graph, WithoutViews(graph, concat->inputs[0]), "Range");
  const bool is_range = range != nullptr && AreInts(graph, *range, 0, {0}) &&
                        IsCountOf(graph, range->inputs[1], table, bags.indices) &&
                        (AreInts(graph, *range, 2, {shape.dim(1).size()}) ||
                         IsDimOf(graph, range->inputs[2], table, 1)) &&
                        IsCountOf(graph, concat->inputs[1], table, bags.indices);
  return is_range ? Table(table) : std::nullopt;
}

// Whether the Loop has a round for each bag.
bool HasRoundForEach(const Graph& graph, ValueId rounds, ValueId ends) {
  const auto known = KnownInts(graph, rounds);
  const auto bags = KnownInts(graph, ends);
  if (known.has_value() && bags.has_value()) {
    return known->size() == 1 && known->front() == static_cast<int64_t>(bags->size());
  }
  return IsDimOf(graph, rounds, ends, 0);
}

bool RewriteBag(Graph& graph, NodeId id) {
  const Node& loop = graph.node(id);
  const std::vector<NodeBody> bodies = BodiesOf(loop);
  const bool is_loop = loop.op == "Loop" && loop.domain.empty() && bodies.size() == 1 &&
                       loop.outputs.size() == 1 && loop.outputs[0].valid() &&
                       NumOwnInputs(loop) == 2 && loop.inputs[0].valid();
  if (!is_loop) return false;
  const ValueId go = loop.inputs[1];
  if (go.valid() && UniformNumber(graph, WithoutViews(graph, go)).value_or(0) == 0) return false;
  const auto bags = BagsOf({graph, loop, bodies.front()});
  if (!bags.has_value() || !HasRoundForEach(graph, loop.inputs[0], bags->ends)) return false;
  const int64_t length = KnownLength(graph, *bags);
  const Table table = length > 0 ? std::nullopt : TableOfRange(graph, *bags);
  if (length == 0 && !table.has_value()) return false;
  // The Loop becomes the reduction: it keeps its name and its output.
  Match match;
  match.nodes = {id};
  Rewriter rewriter(graph);
  return rewriter.Try([&] {
    GraphBuilder builder = rewriter.BuilderFor(match);
    ValueId indices = table.value_or(kNoValue);
    if (!table.has_value()) {
      indices = builder.Op("Reshape", {bags->indices, builder.Ints({-1, length})});
    }
    const ValueId rows = builder.Op("Gather", {bags->table, indices}, {{"axis", int64_t{0}}});
    const ValueId axes = builder.Ints({1});
    if (!builder.status().ok()) return false;
    return rewriter.Replace(match, {bags->reduction, {rows, axes}, {{"keepdims", int64_t{0}}}});
  });
}

}  // namespace

int RewriteEmbeddingBags(Graph& graph) {
  int count = 0;
  for (const NodeId id : graph.node_ids()) count += RewriteBag(graph, id) ? 1 : 0;
  return count;
}

}  // namespace weft
