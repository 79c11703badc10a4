#include "ops/rewrites/nested_values.h"

#include <algorithm>
#include <utility>

#include "ops/rewrites/pattern.h"

namespace weft {
namespace {

constexpr int64_t kMaxFactor = int64_t{1} << 40;
constexpr size_t kMaxSymbols = 16;

std::optional<SizeProduct> SizeOf(int64_t size) {
  if (size < 1 || size > kMaxFactor) return std::nullopt;
  return SizeProduct{size, {}};
}

std::optional<SizeProduct> SizeOf(const Dim& dim) {
  if (dim.is_known()) return SizeOf(dim.size());
  if (!dim.is_symbol()) return std::nullopt;
  return SizeProduct{1, {dim.symbol()}};
}

std::optional<SizeProduct> Times(const std::optional<SizeProduct>& a,
                                 const std::optional<SizeProduct>& b) {
  if (!a.has_value() || !b.has_value()) return std::nullopt;
  if (a->factor > kMaxFactor / b->factor) return std::nullopt;
  if (a->symbols.size() + b->symbols.size() > kMaxSymbols) return std::nullopt;
  SizeProduct product = *a;
  product.factor *= b->factor;
  product.symbols.insert(b->symbols.begin(), b->symbols.end());
  return product;
}

// The product of all dimensions, where each has a size or a name.
std::optional<SizeProduct> SizeOf(const SymbolicShape& shape) {
  if (!shape.has_rank()) return std::nullopt;
  std::optional<SizeProduct> product = SizeProduct();
  for (const Dim& dim : shape.dims()) product = Times(product, SizeOf(dim));
  return product;
}

// Unary operators that keep the elements of their first operand, or their number.
bool KeepsCount(const std::string& op) {
  return op == "Reshape" || op == "Squeeze" || op == "Unsqueeze" || op == "Flatten" ||
         op == "Cast" || op == "CastLike";
}

bool IsVector(const Place& place) {
  const SymbolicShape& shape = place.def().type.shape;
  return shape.has_rank() && shape.rank() == 1;
}

bool KeepsSizes(DType dtype) {
  return dtype == DType::kInvalid || dtype == DType::kInt32 || dtype == DType::kInt64 ||
         dtype == DType::kFloat32 || dtype == DType::kFloat64;
}

}  // namespace

std::optional<SizeProduct> Divided(const SizeProduct& size, int64_t length) {
  if (length < 1 || size.factor % length != 0) return std::nullopt;
  SizeProduct part = size;
  part.factor /= length;
  return part;
}

NestedValues::NestedValues(const Graph& graph) : root_{.graph = &graph} {}

const Scope* NestedValues::BodyOf(const Scope& scope, const Node& node, const std::string& name) {
  for (const NodeBody& body : BodiesOf(node)) {
    if (body.name != name) continue;
    std::unique_ptr<Scope>& entry = bodies_[body.graph];
    if (entry == nullptr) {
      entry = std::make_unique<Scope>(
          Scope{.graph = body.graph, .outer = &scope, .node = &node, .body = body});
    }
    return entry.get();
  }
  return nullptr;
}

const Node* NestedValues::MakerOf(const Place& place, int index) {
  if (!place.valid()) return nullptr;
  const ValueDef& def = place.def();
  if (def.source != ValueSource::kNode || def.output_index != index) return nullptr;
  const Node& node = place.scope->graph->node(def.producer);
  return node.domain.empty() ? &node : nullptr;
}

Place NestedValues::Input(const Place& place, const Node& node, size_t input) {
  if (node.inputs.size() <= input) return {};
  return {place.scope, node.inputs[input]};
}

Place NestedValues::Source(Place place) {
  while (place.valid() && MayGoOn()) {
    const ValueDef& def = place.def();
    if (def.source == ValueSource::kInput && place.scope->outer != nullptr) {
      const std::vector<ValueId>& inputs = place.scope->graph->inputs();
      const auto at = std::find(inputs.begin(), inputs.end(), place.value) - inputs.begin();
      const NodeBody& body = place.scope->body;
      if (at < body.num_inputs()) return place;
      const auto captured = static_cast<size_t>(body.first_capture + at - body.num_inputs());
      place = {place.scope->outer, place.scope->node->inputs[captured]};
      continue;
    }
    if (def.source != ValueSource::kNode) return place;
    const Node& node = place.scope->graph->node(def.producer);
    if (!node.domain.empty()) return place;
    if (node.op == "Identity") {
      place = Input(place, node, 0);
      continue;
    }
    if (node.op != "If") return place;
    const std::optional<bool> condition = FixedCondition(Input(place, node, 0));
    if (!condition.has_value()) return place;
    const Scope* const branch =
        BodyOf(*place.scope, node, *condition ? "then_branch" : "else_branch");
    if (branch == nullptr) return place;
    const std::vector<ValueId>& outputs = branch->graph->outputs();
    if (static_cast<size_t>(def.output_index) >= outputs.size()) return place;
    place = {branch, outputs[static_cast<size_t>(def.output_index)]};
  }
  return place;
}

Place NestedValues::ScalarSource(Place place) {
  while (true) {
    place = Source(place);
    const Node* const node = MakerOf(place);
    if (node == nullptr || !MayGoOn() || !KeepsCount(node->op) || node->inputs.empty()) break;
    if (!KeepsSizes(place.def().type.dtype)) break;
    const Place input = Input(place, *node, 0);
    if (!input.valid()) break;
    place = input;
  }
  return place;
}

std::optional<bool> NestedValues::FixedCondition(Place place) {
  if (!MayGoOn()) return std::nullopt;
  place = Source(place);
  if (!place.valid()) return std::nullopt;
  if (const auto number = UniformNumber(*place.scope->graph, place.value)) return *number != 0;
  const Node* const equal = MakerOf(place);
  if (equal == nullptr || equal->op != "Equal") return std::nullopt;
  const auto a = Int(Input(place, *equal, 0));
  const auto b = Int(Input(place, *equal, 1));
  if (!a.has_value() || !b.has_value()) return std::nullopt;
  return *a == *b;
}

std::optional<std::vector<int64_t>> NestedValues::Ints(Place place) {
  place = Source(place);
  return place.valid() ? KnownInts(*place.scope->graph, place.value) : std::nullopt;
}

std::optional<int64_t> NestedValues::Int(Place place) {
  const auto ints = Ints(ScalarSource(place));
  return ints.has_value() && ints->size() == 1 ? std::optional<int64_t>(ints->front())
                                               : std::nullopt;
}

bool NestedValues::AreInts(Place place, const std::vector<int64_t>& expected) {
  return Ints(place) == expected;
}

std::optional<SizeProduct> NestedValues::Elements(Place place) {
  if (!MayGoOn()) return std::nullopt;
  place = Source(place);
  if (!place.valid()) return std::nullopt;
  if (const auto size = SizeOf(place.def().type.shape)) return size;
  const Node* const node = MakerOf(place);
  if (node == nullptr) return std::nullopt;
  if (KeepsCount(node->op)) return Elements(Input(place, *node, 0));
  if (node->op == "Expand") {
    const Place shape = Source(Input(place, *node, 1));
    const Node* const of = MakerOf(shape);
    const bool is_one = Elements(Input(place, *node, 0)) == SizeProduct();
    if (!is_one || of == nullptr || of->op != "Shape") return std::nullopt;
    const bool is_whole = of->attributes.Int("start", 0) == 0 && !of->attributes.Has("end");
    return is_whole ? Elements(Input(shape, *of, 0)) : std::nullopt;
  }
  if (node->op == "Range") {
    const auto step = Int(Input(place, *node, 2));
    if (Int(Input(place, *node, 0)) != 0 || !step.has_value()) return std::nullopt;
    const auto limit = Scalar(Input(place, *node, 1));
    return limit.has_value() ? Divided(*limit, *step) : std::nullopt;
  }
  return std::nullopt;
}

std::optional<SizeProduct> NestedValues::Rows(Place place) {
  if (!MayGoOn()) return std::nullopt;
  place = Source(place);
  if (!place.valid()) return std::nullopt;
  const SymbolicShape& shape = place.def().type.shape;
  if (!shape.has_rank() || shape.rank() < 1) return std::nullopt;
  if (const auto size = SizeOf(shape.dim(0))) return size;
  if (shape.rank() == 1) return Elements(place);
  const Node* const node = MakerOf(place);
  if (node == nullptr) return std::nullopt;
  const Place first = Input(place, *node, 0);
  const Place second = Input(place, *node, 1);
  if (node->op == "Cast" || node->op == "CastLike") return Rows(first);
  if (node->op == "Gather" && node->attributes.Int("axis", 0) == 0) {
    return second.valid() && IsVector(second) ? Elements(second) : std::nullopt;
  }
  if (node->op == "Unsqueeze" && AreInts(second, {1}) && first.valid() && IsVector(first)) {
    return Elements(first);
  }
  if (node->op == "Mul") {
    const auto rows = Rows(first);
    return rows == Rows(second) ? rows : std::nullopt;
  }
  return std::nullopt;
}

std::optional<SizeProduct> NestedValues::Scalar(Place place) {
  if (!MayGoOn()) return std::nullopt;
  place = ScalarSource(place);
  if (!place.valid()) return std::nullopt;
  const ValueDef& def = place.def();
  if (def.elements.has_value() && def.elements->size() == 1) {
    if (const auto size = SizeOf(def.elements->front())) return size;
  }
  if (const auto known = Int(place)) return SizeOf(*known);
  const Node* const node = MakerOf(place);
  if (node == nullptr) return std::nullopt;
  const Place first = Input(place, *node, 0);
  if (node->op == "Mul") return Times(Scalar(first), Scalar(Input(place, *node, 1)));
  if (node->op == "Size") return Elements(first);
  if (node->op == "Shape") {
    const bool is_first = node->attributes.Int("start", 0) == 0 &&
                          (node->attributes.Int("end", 0) == 1 ||
                           (!node->attributes.Has("end") && first.valid() && IsVector(first)));
    return is_first ? Rows(first) : std::nullopt;
  }
  const Place shape = Source(first);
  const Node* const of = MakerOf(shape);
  if (of == nullptr || of->op != "Shape" || of->attributes.Int("start", 0) != 0) {
    return std::nullopt;
  }
  if (node->op == "Gather" && Int(Input(place, *node, 1)) == 0) return Rows(Input(shape, *of, 0));
  const bool is_whole = node->op == "ReduceProd" && !of->attributes.Has("end") &&
                        (!Input(place, *node, 1).valid() || AreInts(Input(place, *node, 1), {0}));
  return is_whole ? Elements(Input(shape, *of, 0)) : std::nullopt;
}

bool NestedValues::IsOnes(Place place) {
  while (MayGoOn()) {
    place = Source(place);
    if (!place.valid()) return false;
    if (UniformNumber(*place.scope->graph, place.value) == 1.0) return true;
    const Node* const node = MakerOf(place);
    if (node == nullptr || (!KeepsCount(node->op) && node->op != "Expand")) return false;
    place = Input(place, *node, 0);
  }
  return false;
}

}  // namespace weft
