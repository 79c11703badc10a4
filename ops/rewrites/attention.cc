// Scaled dot-product attention over heads, as exporters write it:
//   softmax(s q k^T + mask) v, with q, k and v as [batch, heads, length, size].
// The scale s is on the scores, on q, on k^T, or half of it on either. The mask may be missing.
//
// A row without any key, whose mask is minus infinity throughout, has a softmax of NaN, and so has
// the result. Attention gives zeros there, as the standard asks. So does a guarded form,
// Where(IsNaN(p), 0, p). A form without a guard keeps its NaN: the mask of such a row becomes NaN.
// Not looked after are rows that are NaN or minus infinity by q and k themselves, whose values are
// then not finite or too large, and in guarded forms a mask with NaN or plus infinity.
//
// For forward passes: the gradient of Attention computes the scores once more, so that a training
// step would rather keep the two products. Where a library computes both without a matrix of
// scores, training steps want those that it takes: without a mask, or with one that says what
// is_causal says.
#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ops/rewrites/rewriter.h"

namespace weft {
namespace {

// Masks that are looked at row by row, and those of all places of a graph.
constexpr int64_t kMaxMaskElements = int64_t{1} << 22;
constexpr int64_t kMaxMaskElementsInAll = int64_t{1} << 26;
// A score that is so much lower than another gives a probability of zero.
constexpr double kMaskedScore = -1e4;
// Libraries take heads of a multiple of so many elements.
constexpr int64_t kLibraryElements = 8;

// The value itself, or times a number.
Pattern MaybeScaled(const Pattern& value, const char* scale, const char* divisor) {
  return Pattern::OneOf({Pattern::Op("Mul", {value, Pattern::Scalar(scale)}),
                         Pattern::Op("Div", {value, Pattern::Scalar(divisor)}), value});
}

bool IsOverLastAxis(const Graph& graph, const Node& node) {
  const SymbolicShape& shape = graph.value(node.inputs[0]).type.shape;
  if (!shape.has_rank()) return false;
  const int64_t axis = node.attributes.Int("axis", -1);
  return axis == -1 || axis == shape.rank() - 1;
}

bool SwapsRows(const Graph&, const Node& node) {
  return node.attributes.Ints("perm") == std::vector<int64_t>{0, 2, 1};
}

// k^T, by one transposition, or by that of all heads laid out as one axis.
Pattern KeysPattern() {
  const Pattern k = Pattern::Value("k");
  const Pattern rows = Pattern::Op("Reshape", {k, Pattern::Value("shape of rows")}).As("rows");
  const Pattern by_rows = Pattern::Op(
      "Reshape", {Pattern::Op("Transpose", {rows}, SwapsRows), Pattern::Value("shape of keys")});
  return Pattern::OneOf({Pattern::Op("Transpose", {k}), by_rows}).As("keys");
}

Pattern AttentionPattern() {
  const Pattern keys = KeysPattern();
  // Without its optimizer, an exporter casts the scale to the type of the keys.
  const Pattern cast =
      Pattern::Op("CastLike", {Pattern::Scalar("scale of k"), Pattern::Value("keys")});
  const Pattern scaled_keys = Pattern::OneOf(
      {Pattern::Op("Mul", {keys, cast}), MaybeScaled(keys, "scale of k", "divisor of k")});
  const Pattern product = Pattern::Op(
      "MatMul", {MaybeScaled(Pattern::Value("q"), "scale of q", "divisor of q"), scaled_keys});
  const Pattern scores = MaybeScaled(product, "scale", "divisor");
  const Pattern biased =
      Pattern::OneOf({Pattern::Op("Add", {scores, Pattern::Value("mask")}), scores});
  const Pattern weights = Pattern::Op("Softmax", {biased}, IsOverLastAxis);
  const Pattern guarded = Pattern::Op("Where", {Pattern::Op("IsNaN", {weights.As("weights")}),
                                                Pattern::Number(0), weights.As("weights")});
  return Pattern::Op("MatMul", {Pattern::OneOf({guarded, weights}), Pattern::Value("v")});
}

double ScaleOfScores(const Match& match) {
  double scale = 1;
  for (const char* const name : {"scale of q", "scale of k", "scale"}) {
    const auto found = match.numbers.find(name);
    if (found != match.numbers.end()) scale *= found->second;
  }
  for (const char* const name : {"divisor of q", "divisor of k", "divisor"}) {
    const auto found = match.numbers.find(name);
    if (found != match.numbers.end()) scale /= found->second;
  }
  return scale;
}

// Of rank 4, with known heads and size.
bool HasHeads(const Rewriter& rewriter, ValueId value) {
  const SymbolicShape& shape = rewriter.type(value).shape;
  return rewriter.rank(value) == 4 && shape.dim(1).is_known() && shape.dim(3).is_known();
}

// Whether the mask has a number for each query and key, up to broadcasting over samples, heads and
// queries.
bool IsMask(const Rewriter& rewriter, ValueId mask, const Dim& keys) {
  const int rank = rewriter.rank(mask);
  return rank >= 2 && rank <= 4 && rewriter.type(mask).shape.dim(rank - 1) == keys;
}

// Whether the rows and their shapes are those of k [batch, heads, length, size] with its last two
// axes swapped.
bool IsSwapped(const Rewriter& rewriter, const Match& match) {
  const SymbolicShape& k = rewriter.type(match.value("k")).shape;
  const SymbolicShape& rows = rewriter.type(match.value("rows")).shape;
  const SymbolicShape& keys = rewriter.type(match.value("keys")).shape;
  if (rewriter.rank(match.value("k")) != 4 || rewriter.rank(match.value("rows")) != 3 ||
      rewriter.rank(match.value("keys")) != 4) {
    return false;
  }
  return rows.dim(1) == k.dim(2) && rows.dim(2) == k.dim(3) && keys.dim(0) == k.dim(0) &&
         keys.dim(1) == k.dim(1) && keys.dim(2) == k.dim(3) && keys.dim(3) == k.dim(2);
}

// What the transposition of keys says of k as [batch, heads, length, size]: the order of its axes,
// empty if it already is; nullopt if it is something else.
std::optional<std::vector<int64_t>> OrderOfKeys(const Rewriter& rewriter, const Match& match) {
  const Graph& graph = rewriter.graph();
  if (match.values.contains("rows")) {
    return IsSwapped(rewriter, match) ? std::optional<std::vector<int64_t>>(std::vector<int64_t>{})
                                      : std::nullopt;
  }
  const Node& transpose = graph.node(graph.value(match.value("keys")).producer);
  std::vector<int64_t> order = transpose.attributes.Ints("perm");
  if (order.size() != 4 || rewriter.rank(match.value("k")) != 4) return std::nullopt;
  std::swap(order[2], order[3]);
  if (order == std::vector<int64_t>{0, 1, 2, 3}) return std::vector<int64_t>{};
  return order;
}

// Whether a mask is known to leave a key to each row. What it looks at counts in `looked_at`.
bool LeavesKeys(const Graph& graph, ValueId mask, int64_t& looked_at) {
  const ValueDef& def = graph.value(mask);
  if (def.source != ValueSource::kConstant) return false;
  const Shape& shape = def.constant.shape();
  const int64_t keys = shape.rank() > 0 ? shape.dim(shape.rank() - 1) : 0;
  const int64_t elements = shape.num_elements();
  if (keys == 0 || elements > kMaxMaskElements || elements > kMaxMaskElementsInAll - looked_at) {
    return false;
  }
  looked_at += elements;
  const auto numbers = ToDoubles(def.constant);
  if (!numbers.ok()) return false;
  for (auto row = numbers->begin(); row != numbers->end(); row += keys) {
    const bool has_none = std::all_of(row, row + keys, [](double number) {
      return number == -std::numeric_limits<double>::infinity();
    });
    if (has_none) return false;
  }
  return true;
}

// Masks of forms without a guard; shared by all places that read them.
class UnguardedMasks {
 public:
  // The mask with NaN in the rows that are minus infinity throughout: mask + (m - m), with m the
  // largest of the row; the mask itself where no row is. None where that cannot be built.
  ValueId Of(Rewriter& rewriter, const Match& match, ValueId mask) {
    const auto [entry, is_new] = made_.try_emplace(mask);
    ValueId& made = entry->second;
    if (is_new && LeavesKeys(rewriter.graph(), mask, looked_at_)) made = mask;
    // That of a place that was given up is gone.
    if (made.valid() && rewriter.graph().is_live(made)) return made;
    GraphBuilder g = rewriter.BuilderFor(match);
    const ValueId largest = g.Op("ReduceMax", {mask, g.Ints({-1})});
    made = g.Op("Add", {mask, g.Op("Sub", {largest, largest})});
    return made;
  }

 private:
  std::map<ValueId, ValueId> made_;
  int64_t looked_at_ = 0;
};

// Masks that let query i attend the keys 0 to i and no others, as is_causal does.
class CausalMasks {
 public:
  bool Has(const Graph& graph, ValueId mask) {
    const auto [entry, is_new] = known_.try_emplace(mask, false);
    if (is_new) entry->second = IsCausal(FixedTensorOf(graph, mask));
    return entry->second;
  }

 private:
  // False where the tensor is not valid: the graph computes it, or somebody may change it.
  bool IsCausal(const Tensor& mask) {
    if (!mask.valid() || mask.shape().rank() < 2) return false;
    const Shape& shape = mask.shape();
    const int64_t rows = shape.dim(shape.rank() - 1);
    const int64_t elements = shape.num_elements();
    const bool is_square = shape.dim(shape.rank() - 2) == rows && elements == rows * rows;
    if (!is_square || elements > kMaxMaskElementsInAll - looked_at_) return false;
    looked_at_ += elements;
    const auto numbers = ToDoubles(mask);
    if (!numbers.ok()) return false;
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t column = 0; column < rows; ++column) {
        const double number = (*numbers)[static_cast<size_t>(row * rows + column)];
        if (column <= row ? number != 0 : !(number <= kMaskedScore)) return false;
      }
    }
    return true;
  }

  std::map<ValueId, bool> known_;
  int64_t looked_at_ = 0;
};

// Whether the operands of a match are those of Attention. Products broadcast samples and heads;
// attention shares heads in its own way.
bool FitsAttention(const Rewriter& rewriter, const Match& match) {
  if (!HasHeads(rewriter, match.value("q")) || !HasHeads(rewriter, match.value("v"))) return false;
  const SymbolicShape& keys = rewriter.type(match.value("keys")).shape;
  const SymbolicShape& q = rewriter.type(match.value("q")).shape;
  const SymbolicShape& v = rewriter.type(match.value("v")).shape;
  const bool fits = keys.has_rank() && keys.dim(0) == q.dim(0) && keys.dim(1) == q.dim(1) &&
                    v.dim(0) == q.dim(0) && v.dim(1) == q.dim(1);
  if (!fits) return false;
  const auto mask = match.values.find("mask");
  return mask == match.values.end() || IsMask(rewriter, mask->second, keys.dim(3));
}

// k as [batch, heads, length, size], from what OrderOfKeys says; kNoValue where that cannot be
// built.
ValueId OrderedKeys(Rewriter& rewriter, const Match& match, const std::vector<int64_t>& order) {
  const ValueId k = match.value("k");
  if (order.empty()) return k;
  return rewriter.BuilderFor(match).Op("Transpose", {k}, {{"perm", order}});
}

bool ToAttention(Rewriter& rewriter, const Match& match, UnguardedMasks& unguarded) {
  const auto order = OrderOfKeys(rewriter, match);
  if (!order.has_value() || !FitsAttention(rewriter, match)) return false;
  const ValueId k = OrderedKeys(rewriter, match, *order);
  if (!k.valid()) return false;
  std::vector<ValueId> inputs = {match.value("q"), k, match.value("v")};
  if (const auto mask = match.values.find("mask"); mask != match.values.end()) {
    const bool is_guarded = match.values.contains("weights");
    inputs.push_back(is_guarded ? mask->second : unguarded.Of(rewriter, match, mask->second));
    if (!inputs.back().valid()) return false;
  }
  return rewriter.Replace(
      match,
      {"Attention", std::move(inputs), {{"scale", static_cast<float>(ScaleOfScores(match))}}});
}

bool HasLibraryHeads(const Rewriter& rewriter, ValueId value) {
  const ValueType& type = rewriter.type(value);
  return type.dtype == DType::kFloat32 && type.shape.dim(3).size() % kLibraryElements == 0;
}

bool ToLibraryAttention(Rewriter& rewriter, const Match& match, CausalMasks& causal) {
  const auto order = OrderOfKeys(rewriter, match);
  if (!order.has_value() || !FitsAttention(rewriter, match)) return false;
  const ValueId q = match.value("q"), v = match.value("v");
  if (!HasLibraryHeads(rewriter, q) || !HasLibraryHeads(rewriter, v)) return false;
  const auto mask = match.values.find("mask");
  const bool has_mask = mask != match.values.end();
  if (has_mask) {
    const Dim& keys = rewriter.type(match.value("keys")).shape.dim(3);
    const bool is_square = keys.is_known() && rewriter.type(q).shape.dim(2) == keys;
    if (!is_square || !causal.Has(rewriter.graph(), mask->second)) return false;
  }
  const ValueId k = OrderedKeys(rewriter, match, *order);
  if (!k.valid()) return false;
  return rewriter.Replace(match, {"Attention",
                                  {q, k, v},
                                  {{"scale", static_cast<float>(ScaleOfScores(match))},
                                   {"is_causal", int64_t{has_mask}}}});
}

}  // namespace

std::vector<Rewrite> AttentionRewrites() {
  const auto unguarded = std::make_shared<UnguardedMasks>();
  return {{"attention", AttentionPattern(), [unguarded](Rewriter& rewriter, const Match& match) {
             return ToAttention(rewriter, match, *unguarded);
           }}};
}

std::vector<Rewrite> LibraryAttentionRewrites() {
  const auto causal = std::make_shared<CausalMasks>();
  return {{"attention", AttentionPattern(), [causal](Rewriter& rewriter, const Match& match) {
             return ToLibraryAttention(rewriter, match, *causal);
           }}};
}

}  // namespace weft
