// The gradient of Attention: the node runs again for its probabilities P, so that no matrix of
// queries and keys lives from the forward pass to the backward pass, and masks, windows and lengths
// need not be known here: where they forbid, P is zero and nothing flows.
//
//   S = scale Q K^T, C = softcap(S), P = softmax(C + bias), Y = P V
//   dV = P^T dY, dP = dY V^T, dC = P (dP - rowsum(dP P)), dQ = scale dS K, dK = scale dS^T Q
//
// Query heads that share a head of keys are rows of one matrix: their gradients add up by
// themselves.
#include "ops/defs/attention/attention_gradient.h"

#include <cmath>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "graph/graph_builder.h"
#include "ops/defs/attention/attention_operands.h"
#include "ops/defs/rules/gradients.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

// What the output of scores holds.
enum ScoresMode { kRaw, kCapped, kBiased, kProbabilities };

Attributes Transposed(bool a, bool b) { return {{"transA", int64_t{a}}, {"transB", int64_t{b}}}; }

class AttentionGradientBuilder {
 public:
  explicit AttentionGradientBuilder(GradientContext& context)
      : context_(context), g_(context.builder()) {}

  absl::Status Build() {
    WEFT_RETURN_IF_ERROR(ReadSizes());
    AddForward();
    WEFT_RETURN_IF_ERROR(g_.status());
    const ValueId dy = context_.OutputGradient(kY);
    if (dy.valid() && (!g_.type(dy).shape.has_rank() ||
                       g_.type(dy).shape.rank() != ShapeOfInput(kQuery).rank())) {
      return absl::UnimplementedError(
          absl::StrCat("node '", context_.node().name, "': the gradient of Attention needs the ",
                       "shape of its output's gradient, not ", g_.type(dy).shape.ToString()));
    }
    if (dy.valid()) dy_ = Grouped(packed_ ? Apart(dy, q_heads_) : dy, value_size_);
    SetValueGradient();
    const bool needs_scores =
        context_.NeedsInputGradient(kQuery) || context_.NeedsInputGradient(kKey) ||
        context_.NeedsInputGradient(kPastKey) || context_.NeedsInputGradient(kMask);
    if (needs_scores) SetScoresGradients();
    return g_.status();
  }

 private:
  const Attributes& attributes() const { return context_.node().attributes; }
  const SymbolicShape& ShapeOfInput(int i) const { return g_.type(context_.Input(i)).shape; }

  absl::Status ReadSizes() {
    for (const int i : {kQuery, kKey, kValue}) {
      const SymbolicShape& shape = ShapeOfInput(i);
      const bool fits = shape.has_rank() && (shape.rank() == 3 || shape.rank() == 4);
      if (fits && shape.dim(shape.rank() - 1).is_known() &&
          (shape.rank() == 3 || shape.dim(1).is_known())) {
        continue;
      }
      return absl::UnimplementedError(
          absl::StrCat("node '", context_.node().name, "': the gradient of Attention needs the ",
                       "heads and sizes of its operands, but input ", i, " is ", shape.ToString()));
    }
    packed_ = ShapeOfInput(kQuery).rank() == 3;
    const auto heads = [&](int i, const char* name) {
      return packed_ ? attributes().Int(name, 1) : ShapeOfInput(i).dim(1).size();
    };
    const auto size = [&](int i, int64_t of) {
      return packed_ ? ShapeOfInput(i).dim(2).size() / of : ShapeOfInput(i).dim(3).size();
    };
    q_heads_ = heads(kQuery, "q_num_heads");
    kv_heads_ = heads(kKey, "kv_num_heads");
    key_size_ = size(kQuery, q_heads_);
    value_size_ = size(kValue, kv_heads_);
    dtype_ = g_.type(context_.Input(kQuery)).dtype;
    scale_ = attributes().Has("scale") ? attributes().Float("scale", 1)
                                       : 1 / std::sqrt(static_cast<double>(key_size_));
    return absl::OkStatus();
  }

  // The node again, for probabilities, and for keys and values that have a past; heads apart.
  void AddForward() {
    Attributes again = attributes();
    again.Set("qk_matmul_output_mode", int64_t{kProbabilities});
    const bool has_past = context_.Input(kPastKey).valid();
    const std::vector<ValueId> forward = g_.Ops("", "Attention", context_.node().inputs,
                                                std::move(again), {true, has_past, has_past, true});
    if (!g_.status().ok()) return;
    const auto heads_apart = [&](int present, int now) {
      if (has_past) return forward[present];
      const ValueId value = context_.Input(now);
      return packed_ ? Apart(value, kv_heads_) : value;
    };
    keys_ = heads_apart(kPresentKey, kKey);
    values_ = As(dtype_, heads_apart(kPresentValue, kValue));
    probabilities_ = Grouped(forward[kScores], std::nullopt);
    queries_ = context_.Input(kQuery);
    if (packed_) queries_ = Apart(queries_, q_heads_);
    queries_ = Grouped(queries_, key_size_);
  }

  ValueId As(DType dtype, ValueId value) {
    if (g_.type(value).dtype == dtype) return value;
    return g_.Op("Cast", {value}, {{"to", static_cast<int64_t>(dtype)}});
  }

  // [batch, length, heads * size] -> [batch, heads, length, size]
  ValueId Apart(ValueId value, int64_t heads) {
    if (!g_.status().ok()) return kNoValue;
    const int64_t size = g_.type(value).shape.dim(2).size() / heads;
    const ValueId apart = g_.Op("Reshape", {value, g_.Ints({0, 0, heads, size})});
    return g_.Op("Transpose", {apart}, {{"perm", std::vector<int64_t>{0, 2, 1, 3}}});
  }
  // And back.
  ValueId Packed(ValueId value, int64_t heads, int64_t size) {
    const ValueId rows = g_.Op("Transpose", {value}, {{"perm", std::vector<int64_t>{0, 2, 1, 3}}});
    return g_.Op("Reshape", {rows, g_.Ints({0, 0, heads * size})});
  }
  bool is_shared() const { return q_heads_ != kv_heads_; }

  // [batch, q_heads, queries, size] -> [batch, kv_heads, rows, size]. `size` may be unknown: the
  // number of keys.
  ValueId Grouped(ValueId value, std::optional<int64_t> size) {
    if (!is_shared() || !g_.status().ok()) return value;
    return g_.Op("Reshape", {value, Rows(value, kv_heads_, size)});
  }
  ValueId Ungrouped(ValueId value, ValueId like, std::optional<int64_t> size) {
    if (!is_shared() || !g_.status().ok()) return value;
    const Dim& queries = g_.type(like).shape.dim(2);
    if (queries.is_known() && size.has_value()) {
      return g_.Op("Reshape", {value, g_.Ints({0, q_heads_, queries.size(), *size})});
    }
    return g_.Op("Reshape", {value, ShapeOf(g_, like)});
  }
  ValueId Rows(ValueId value, int64_t heads, std::optional<int64_t> size) {
    const SymbolicShape& shape = g_.type(value).shape;
    const Dim& queries = shape.dim(2);
    const Dim& last = shape.dim(3);
    if (!size.has_value() && last.is_known()) size = last.size();
    const int64_t group = q_heads_ / kv_heads_;
    if (queries.is_known()) {
      // Of the last axis, at most one size may be left open.
      return g_.Ints({0, heads, group * queries.size(), size.value_or(-1)});
    }
    if (size.has_value()) return g_.Ints({0, heads, -1, *size});
    const ValueId keys = g_.Op("Shape", {value}, {{"start", int64_t{3}}});
    return g_.Op("Concat", {g_.Ints({0, heads, -1}), keys}, {{"axis", int64_t{0}}});
  }

  ValueId Sum(ValueId a, ValueId b) {
    if (!a.valid()) return b;
    if (!b.valid()) return a;
    return g_.Op("Add", {a, b});
  }
  ValueId Scaled(ValueId value, double factor) {
    return g_.Op("Mul", {value, g_.Scalar(g_.type(value).dtype, factor)});
  }

  // Sets the gradients of the past and the new part of keys or values [batch, heads, total, size].
  void SetJoined(ValueId gradient, int past, int now, int64_t size) {
    if (!gradient.valid()) return;
    ValueId own = gradient;
    if (context_.Input(past).valid()) {
      const ValueId border =
          g_.Op("Shape", {context_.Input(past)}, {{"start", int64_t{2}}, {"end", int64_t{3}}});
      const ValueId axes = g_.Ints({2});
      if (context_.NeedsInputGradient(past)) {
        context_.SetInputGradient(past, g_.Op("Slice", {gradient, g_.Ints({0}), border, axes}));
      }
      own = g_.Op("Slice", {gradient, border, g_.Ints({INT64_MAX}), axes});
    }
    if (!context_.NeedsInputGradient(now)) return;
    context_.SetInputGradient(now, packed_ ? Packed(own, kv_heads_, size) : own);
  }

  void SetValueGradient() {
    if (!context_.NeedsInputGradient(kValue) && !context_.NeedsInputGradient(kPastValue)) return;
    const DType dtype = g_.type(context_.Input(kValue)).dtype;
    ValueId dv;
    if (dy_.valid()) {
      dv = As(dtype, g_.WeftOp("MatMul", {probabilities_, dy_}, Transposed(true, false)));
    }
    SetJoined(Sum(dv, context_.OutputGradient(kPresentValue)), kPastValue, kValue, value_size_);
  }

  // The gradient that arrives at the scores, when they are what `mode` says.
  ValueId ArrivingAt(ScoresMode mode) {
    const ValueId arriving = context_.OutputGradient(kScores);
    if (!arriving.valid() || attributes().Int("qk_matmul_output_mode", 0) != mode) return kNoValue;
    return Grouped(arriving, std::nullopt);
  }

  void SetScoresGradients() {
    ValueId d =
        dy_.valid() ? g_.WeftOp("MatMul", {dy_, values_}, Transposed(false, true)) : kNoValue;
    d = Sum(d, ArrivingAt(kProbabilities));
    if (d.valid()) {
      d = g_.WeftOp("SoftmaxGrad", {d, probabilities_}, {{"axis", int64_t{-1}}});
    }
    d = Sum(d, ArrivingAt(kBiased));
    if (d.valid() && context_.NeedsInputGradient(kMask)) SetMaskGradient(d);
    d = Sum(d, ArrivingAt(kCapped));
    const double cap = attributes().Float("softcap", 0);
    if (d.valid() && cap > 0) {
      const ValueId raw = g_.WeftOp("MatMul", {queries_, keys_}, Transposed(false, true));
      const ValueId bent = g_.Op("Tanh", {Scaled(raw, scale_ / cap)});
      const ValueId slope = g_.Op("Sub", {g_.Scalar(dtype_, 1), g_.Op("Mul", {bent, bent})});
      d = g_.Op("Mul", {d, slope});
    }
    d = Sum(d, ArrivingAt(kRaw));
    ValueId dk;
    if (d.valid()) {
      if (context_.NeedsInputGradient(kQuery)) SetQueryGradient(d);
      dk = Scaled(g_.WeftOp("MatMul", {d, queries_}, Transposed(true, false)), scale_);
    }
    if (!context_.NeedsInputGradient(kKey) && !context_.NeedsInputGradient(kPastKey)) return;
    SetJoined(Sum(dk, context_.OutputGradient(kPresentKey)), kPastKey, kKey, key_size_);
  }

  void SetQueryGradient(ValueId d) {
    ValueId dq = Scaled(g_.WeftOp("MatMul", {d, keys_}, Transposed(false, false)), scale_);
    const ValueId q = context_.Input(kQuery);
    if (packed_) {
      const Dim& queries = ShapeOfInput(kQuery).dim(1);
      if (is_shared()) {
        const int64_t rows = queries.is_known() ? queries.size() : -1;
        dq = g_.Op("Reshape", {dq, g_.Ints({0, q_heads_, rows, key_size_})});
      }
      dq = Packed(dq, q_heads_, key_size_);
    } else {
      dq = Ungrouped(dq, q, key_size_);
    }
    context_.SetInputGradient(kQuery, dq);
  }

  // A mask may be shorter than the keys: those beyond its end are not attended.
  void SetMaskGradient(ValueId d) {
    const ValueId mask = context_.Input(kMask);
    if (is_shared()) {
      const ValueId scores = g_.Op("Shape", {probabilities_});
      const ValueId keys = g_.Op("Slice", {scores, g_.Ints({3}), g_.Ints({4})});
      const ValueId batch = g_.Op("Slice", {scores, g_.Ints({0}), g_.Ints({1})});
      const ValueId q_shape = ShapeOf(g_, context_.Input(kQuery));
      const int64_t at = packed_ ? 1 : 2;
      const ValueId queries = g_.Op("Slice", {q_shape, g_.Ints({at}), g_.Ints({at + 1})});
      const ValueId heads = g_.Ints({q_heads_});
      d = g_.Op("Reshape",
                {d, g_.Op("Concat", {batch, heads, queries, keys}, {{"axis", int64_t{0}}})});
    }
    const SymbolicShape& shape = g_.type(mask).shape;
    const SymbolicShape& from = g_.type(d).shape;
    const bool ranked = shape.has_rank() && shape.rank() > 0 && from.has_rank();
    if (ranked && shape.dim(shape.rank() - 1).is_known()) {
      const int64_t columns = shape.dim(shape.rank() - 1).size();
      const bool whole = columns == 1 || (from.dim(3).is_known() && from.dim(3).size() == columns);
      if (!whole) d = g_.Op("Slice", {d, g_.Ints({0}), g_.Ints({columns}), g_.Ints({3})});
      // One column broadcasts, also where it stands for less than all keys.
    }
    context_.SetInputGradient(kMask, As(g_.type(mask).dtype, SumToLike(g_, d, mask)));
  }

  GradientContext& context_;
  GraphBuilder& g_;
  bool packed_ = false;
  int64_t q_heads_ = 1;
  int64_t kv_heads_ = 1;
  int64_t key_size_ = 1;
  int64_t value_size_ = 1;
  double scale_ = 1;
  DType dtype_ = DType::kInvalid;
  // Heads apart, query heads that share keys as rows of one matrix.
  ValueId queries_, keys_, values_, probabilities_, dy_;
};

}  // namespace

absl::Status AttentionGradient(GradientContext& context) {
  bool any = false;
  for (const int i : {kY, kPresentKey, kPresentValue, kScores}) {
    any |= context.OutputGradient(i).valid();
  }
  if (!any) return absl::OkStatus();
  return AttentionGradientBuilder(context).Build();
}

}  // namespace weft
