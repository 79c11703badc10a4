// Rotary position embedding as transformers writes it, over heads x [batch, heads, length, size]:
//   x cos + concat(-x2, x1) sin, with x = (x1, x2) cut in the middle of its last axis.
// cos and sin [batch or 1, 1, length, size] must have equal halves, as they have where they are
// made of concat(f, f). RotaryEmbedding takes one half of them, [batch, length, size / 2]. No
// gradient of it flows to them: where they are learned, the form stays.
#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "graph/op_schema.h"
#include "ops/rewrites/rewriter.h"

namespace weft {
namespace {

// Constants that are compared half by half.
constexpr int64_t kMaxCacheElements = int64_t{1} << 22;

bool JoinsLastAxis(const Graph& graph, const Node& node) {
  const SymbolicShape& shape = graph.value(node.inputs[0]).type.shape;
  const int64_t axis = node.attributes.Int("axis", 0);
  return axis == -1 || (shape.has_rank() && axis == shape.rank() - 1);
}

// A part of x: a Slice with steps or without, or output `index` of a Split.
Pattern PartOf(const Pattern& x, const std::string& name, int index) {
  const Pattern starts = Pattern::Value(name + " starts");
  const Pattern ends = Pattern::Value(name + " ends");
  const Pattern axes = Pattern::Value(name + " axes");
  const Pattern steps = Pattern::Value(name + " steps");
  return Pattern::OneOf({Pattern::Op("Slice", {x, starts, ends, axes}),
                         Pattern::Op("Slice", {x, starts, ends, axes, steps}),
                         Pattern::Part("Split", index, {x}),
                         Pattern::Part("Split", index, {x, Pattern::Value("sizes")})})
      .As(name);
}

Pattern RotaryPattern() {
  const Pattern x = Pattern::Value("x");
  const Pattern turned =
      Pattern::Op("Concat", {Pattern::Op("Neg", {PartOf(x, "second", 1)}), PartOf(x, "first", 0)},
                  JoinsLastAxis);
  return Pattern::Op("Add", {Pattern::Op("Mul", {x, Pattern::Value("cos")}),
                             Pattern::Op("Mul", {turned, Pattern::Value("sin")})});
}

// Whether a Split cuts the last axis in two halves.
bool IsHalfOfSplit(const Rewriter& rewriter, const Node& split, int64_t size) {
  const int64_t last = rewriter.rank(split.inputs[0]) - 1;
  const int64_t axis = split.attributes.Int("axis", 0);
  if (split.outputs.size() != 2 || (axis != -1 && axis != last)) return false;
  for (const ValueId output : split.outputs) {
    if (!output.valid() || rewriter.rank(output) != last + 1) return false;
    if (!(rewriter.type(output).shape.dim(static_cast<int>(last)) == Dim(size / 2))) return false;
  }
  return true;
}

// Whether a part is the elements [begin, end) of the last axis; at the end of it, a larger end will
// do.
bool IsPart(const Rewriter& rewriter, const Match& match, const std::string& name, int64_t begin,
            int64_t end, int64_t size) {
  const Graph& graph = rewriter.graph();
  const Node& maker = graph.node(graph.value(match.value(name)).producer);
  if (maker.op == "Split") return IsHalfOfSplit(rewriter, maker, size);
  using Ints = std::optional<std::vector<int64_t>>;
  const auto known = [&](const char* what) -> Ints {
    const auto found = match.values.find(name + what);
    if (found == match.values.end()) return std::vector<int64_t>{1};  // no steps
    return KnownInts(graph, found->second);
  };
  const auto starts = known(" starts");
  const auto ends = known(" ends");
  const auto axes = known(" axes");
  const auto steps = known(" steps");
  for (const auto& list : {starts, ends, axes, steps}) {
    if (!list.has_value() || list->size() != 1) return false;
  }
  const int64_t last = rewriter.rank(match.value("x")) - 1;
  const int64_t stop = std::min(ends->front(), size);
  return starts->front() == begin && stop == end && steps->front() == 1 &&
         (axes->front() == -1 || axes->front() == last);
}

bool HasEqualHalves(const Tensor& tensor) {
  const int rank = tensor.shape().rank();
  if (rank < 1 || tensor.num_elements() > kMaxCacheElements) return false;
  const int64_t size = tensor.shape().dim(rank - 1);
  const auto numbers = ToDoubles(tensor);
  if (!numbers.ok() || size % 2 != 0) return false;
  for (int64_t row = 0; row < tensor.num_elements(); row += size) {
    const auto first = numbers->begin() + row;
    if (!std::equal(first, first + size / 2, first + size / 2)) return false;
  }
  return true;
}

// Whether both halves of a value's last axis are certain to be equal: it is made, element by
// element, of a Concat of one value with itself, or it is a constant.
bool HasEqualHalves(const Graph& graph, ValueId value) {
  constexpr int kMaxSteps = 16;
  for (int step = 0; step < kMaxSteps; ++step) {
    const ValueDef& def = graph.value(value);
    if (def.source == ValueSource::kConstant) return HasEqualHalves(def.constant);
    if (def.source != ValueSource::kNode) return false;
    const Node& node = graph.node(def.producer);
    if (!node.domain.empty()) return false;
    if (node.op == "Concat") {
      return node.inputs.size() == 2 && node.inputs[0] == node.inputs[1] &&
             JoinsLastAxis(graph, node);
    }
    const bool is_view = node.op == "Unsqueeze" || node.op == "Cast" || node.op == "Identity" ||
                         node.op == "Cos" || node.op == "Sin";
    const bool is_scaled = node.op == "Mul" && UniformNumber(graph, node.inputs[1]).has_value();
    if (!is_view && !is_scaled) return false;
    const SymbolicShape& before = graph.value(node.inputs[0]).type.shape;
    const SymbolicShape& after = def.type.shape;
    const bool keeps_last = before.has_rank() && after.has_rank() && before.rank() > 0 &&
                            before.dim(before.rank() - 1) == after.dim(after.rank() - 1);
    if (!keeps_last) return false;
    value = node.inputs[0];
  }
  return false;
}

// Whether a gradient of a value may be asked for: what trains, or an input of floating point, is an
// ancestor by nodes that gradients may pass, as AddGradients sees them.
bool MayWantGradient(const Graph& graph, ValueId value) {
  std::vector<bool> seen(static_cast<size_t>(graph.value_capacity()));
  std::vector<ValueId> stack = {value};
  while (!stack.empty()) {
    const ValueId id = stack.back();
    stack.pop_back();
    if (!id.valid() || seen[static_cast<size_t>(id.value)]) continue;
    seen[static_cast<size_t>(id.value)] = true;
    const ValueDef& def = graph.value(id);
    if (def.source == ValueSource::kInput && IsFloatingPoint(def.type.dtype)) return true;
    if (def.source != ValueSource::kNode) continue;
    const Node& node = graph.node(def.producer);
    if (node.schema != nullptr && node.schema->gradient_kind() == GradientKind::kNone) continue;
    stack.insert(stack.end(), node.inputs.begin(), node.inputs.end());
  }
  const std::vector<Variable>& variables = graph.variables();
  return std::any_of(variables.begin(), variables.end(), [&seen](const Variable& variable) {
    return variable.trainable && seen[static_cast<size_t>(variable.value.value)];
  });
}

// Halves of cosines and sines as RotaryEmbedding takes them; shared by all places that read them.
class Caches {
 public:
  // Of `value` for x; none where its shape is another.
  ValueId HalfOf(Rewriter& rewriter, const Match& match, ValueId value) {
    const ValueId x = match.value("x");
    const Dim batch = rewriter.type(x).shape.dim(0);
    const bool has_own_batch = rewriter.type(value).shape.dim(0) == batch;
    const int64_t half = rewriter.type(value).shape.dim(3).size() / 2;
    const std::string key = batch.ToString();
    ValueId& made = made_[{value, key}];
    // That of a place that was given up is gone.
    if (made.valid() && rewriter.graph().is_live(made)) return made;
    GraphBuilder g = rewriter.BuilderFor(match);
    const ValueId part = g.Op("Slice", {value, g.Ints({0}), g.Ints({half}), g.Ints({3})});
    ValueId cache = g.Op("Squeeze", {part, g.Ints({1})});
    if (!has_own_batch) {
      const auto dim = [&](int64_t axis) {
        return g.Op("Shape", {x}, {{"start", axis}, {"end", axis + 1}});
      };
      const ValueId whole =
          g.Op("Concat", {dim(0), dim(2), g.Ints({half})}, {{"axis", int64_t{0}}});
      cache = g.Op("Expand", {cache, whole});
    }
    made = g.status().ok() ? cache : kNoValue;
    return made;
  }

 private:
  std::map<std::pair<ValueId, std::string>, ValueId> made_;
};

// Whether cosines or sines are one row for each position, up to broadcasting over samples.
bool IsCacheOf(const Rewriter& rewriter, ValueId value, const SymbolicShape& x) {
  const SymbolicShape& shape = rewriter.type(value).shape;
  if (rewriter.rank(value) != 4) return false;
  const bool fits_batch = shape.dim(0) == x.dim(0) || shape.dim(0) == Dim(1);
  return fits_batch && shape.dim(1) == Dim(1) && shape.dim(2) == x.dim(2) &&
         shape.dim(3) == x.dim(3);
}

bool ToRotaryEmbedding(Rewriter& rewriter, const Match& match, Caches& caches) {
  const ValueId x = match.value("x");
  const SymbolicShape shape = rewriter.type(x).shape;
  if (rewriter.rank(x) != 4 || !shape.dim(3).is_known()) return false;
  const int64_t size = shape.dim(3).size();
  if (size < 2 || size % 2 != 0 || !IsPart(rewriter, match, "first", 0, size / 2, size) ||
      !IsPart(rewriter, match, "second", size / 2, size, size)) {
    return false;
  }
  std::vector<ValueId> inputs = {x};
  for (const char* const name : {"cos", "sin"}) {
    const ValueId value = match.value(name);
    if (!IsCacheOf(rewriter, value, shape)) return false;
    if (!HasEqualHalves(rewriter.graph(), value)) return false;
    if (MayWantGradient(rewriter.graph(), value)) return false;
  }
  for (const char* const name : {"cos", "sin"}) {
    inputs.push_back(caches.HalfOf(rewriter, match, match.value(name)));
    if (!inputs.back().valid()) return false;
  }
  return rewriter.Replace(match, {"RotaryEmbedding", std::move(inputs), {}});
}

}  // namespace

std::vector<Rewrite> RotaryRewrites() {
  const auto caches = std::make_shared<Caches>();
  return {{"rotary_embedding", RotaryPattern(), [caches](Rewriter& rewriter, const Match& match) {
             return ToRotaryEmbedding(rewriter, match, *caches);
           }}};
}

}  // namespace weft
