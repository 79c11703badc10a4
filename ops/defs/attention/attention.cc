// Attention: scaled dot-product attention over heads, with masks, windows, a soft cap and a cache
// of keys and values.
//
// Operands are [batch, heads, length, size], or packed [batch, length, heads * size] with the
// numbers of heads as attributes. Queries of q_heads / kv_heads neighbouring heads share a head of
// keys and values. A query that may attend no key gives zeros; NaN of a mask passes.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "ops/defs/attention/attention_gradient.h"
#include "ops/defs/attention/attention_operands.h"
#include "ops/defs/movement/shape_dims.h"
#include "ops/defs/rules/rules.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

// One operand seen as [batch, heads, length, size].
struct HeadDims {
  Dim batch, heads, length, size;
};

absl::StatusOr<HeadDims> HeadsOf(InferenceContext& context, int input, const char* heads_name) {
  const SymbolicShape& shape = context.InputShape(input);
  if (shape.rank() == 4) return HeadDims{shape.dim(0), shape.dim(1), shape.dim(2), shape.dim(3)};
  const int64_t heads = context.attributes().Int(heads_name, 0);
  if (heads <= 0) {
    return context.Error(absl::StrCat("operands of rank 3 want attribute ", heads_name,
                                      ", a positive number, got ", heads));
  }
  const Dim& hidden = shape.dim(2);
  // Of no elements, any number of heads would do.
  if (heads > kMaxDim || (hidden.is_known() && (hidden.size() % heads != 0 ||
                                                heads > std::max<int64_t>(hidden.size(), 1)))) {
    return context.Error(absl::StrCat("the last axis of input ", input, " ", shape.ToString(),
                                      " does not divide into ", heads, " heads (", heads_name,
                                      ")"));
  }
  return HeadDims{shape.dim(0), Dim(heads), shape.dim(1),
                  hidden.is_known() ? Dim(hidden.size() / heads) : Dim()};
}

absl::Status Merge(InferenceContext& context, const char* what, Dim& a, const Dim& b) {
  const std::optional<Dim> merged = MergeDims(a, b);
  if (!merged.has_value()) {
    return context.Error(
        absl::StrCat("the operands' ", what, " differ: ", a.ToString(), " and ", b.ToString()));
  }
  a = *merged;
  return absl::OkStatus();
}

absl::Status CheckRanks(InferenceContext& context) {
  const int rank = context.InputShape(kQuery).rank();
  if (rank != 3 && rank != 4) {
    return context.Error(absl::StrCat("the query is ", context.InputShape(kQuery).ToString(),
                                      ", expected rank 3 or 4"));
  }
  for (const int i : {kKey, kValue}) {
    if (context.InputShape(i).rank() == rank) continue;
    return context.Error(absl::StrCat("input ", i, " is ", context.InputShape(i).ToString(),
                                      ", expected rank ", rank, " as the query's"));
  }
  return absl::OkStatus();
}

struct AttentionDims {
  HeadDims q, k, v;
  Dim past = Dim(0);
  Dim total;
};

absl::Status ReadPast(InferenceContext& context, AttentionDims& dims) {
  if (context.HasInput(kPastKey) != context.HasInput(kPastValue)) {
    return context.Error("past_key and past_value belong together, got one of them");
  }
  if (!context.HasInput(kPastKey)) return absl::OkStatus();
  if (context.HasInput(kValidLengths)) {
    return context.Error("nonpad_kv_seqlen cannot be used together with past_key and past_value");
  }
  dims.past = Dim();
  for (const int i : {kPastKey, kPastValue}) {
    const SymbolicShape& past = context.InputShape(i);
    if (!past.has_rank()) continue;
    if (past.rank() != 4) {
      return context.Error(absl::StrCat("input ", i, " is ", past.ToString(),
                                        ", expected [batch, heads, length, size]"));
    }
    HeadDims& own = i == kPastKey ? dims.k : dims.v;
    WEFT_RETURN_IF_ERROR(Merge(context, "batch sizes", own.batch, past.dim(0)));
    WEFT_RETURN_IF_ERROR(Merge(context, "numbers of heads", own.heads, past.dim(1)));
    WEFT_RETURN_IF_ERROR(Merge(context, "lengths of the past", dims.past, past.dim(2)));
    WEFT_RETURN_IF_ERROR(Merge(context, "head sizes", own.size, past.dim(3)));
  }
  return absl::OkStatus();
}

absl::StatusOr<AttentionDims> ReadDims(InferenceContext& context) {
  AttentionDims dims;
  WEFT_ASSIGN_OR_RETURN(dims.q, HeadsOf(context, kQuery, "q_num_heads"));
  WEFT_ASSIGN_OR_RETURN(dims.k, HeadsOf(context, kKey, "kv_num_heads"));
  WEFT_ASSIGN_OR_RETURN(dims.v, HeadsOf(context, kValue, "kv_num_heads"));
  WEFT_RETURN_IF_ERROR(ReadPast(context, dims));
  WEFT_RETURN_IF_ERROR(Merge(context, "batch sizes", dims.q.batch, dims.k.batch));
  WEFT_RETURN_IF_ERROR(Merge(context, "batch sizes", dims.q.batch, dims.v.batch));
  WEFT_RETURN_IF_ERROR(Merge(context, "head sizes", dims.q.size, dims.k.size));
  WEFT_RETURN_IF_ERROR(
      Merge(context, "numbers of key and value heads", dims.k.heads, dims.v.heads));
  WEFT_RETURN_IF_ERROR(Merge(context, "lengths of keys and values", dims.k.length, dims.v.length));
  dims.total = SumOfDims({dims.past, dims.k.length});
  const Dim& q_heads = dims.q.heads;
  const Dim& kv_heads = dims.k.heads;
  const bool known = q_heads.is_known() && kv_heads.is_known();
  if (known && (kv_heads.size() == 0 || q_heads.size() % kv_heads.size() != 0)) {
    return context.Error(absl::StrCat(q_heads.size(), " query heads cannot share ", kv_heads.size(),
                                      " key and value heads evenly"));
  }
  return dims;
}

absl::Status CheckMask(InferenceContext& context, const AttentionDims& dims) {
  if (!context.HasInput(kMask) || !context.InputShape(kMask).has_rank()) return absl::OkStatus();
  const SymbolicShape& mask = context.InputShape(kMask);
  const Dim wanted[4] = {dims.q.batch, dims.q.heads, dims.q.length, dims.total};
  bool fits = mask.rank() >= 1 && mask.rank() <= 4;
  for (int d = 1; fits && d <= mask.rank(); ++d) {
    const Dim& own = mask.dim(mask.rank() - d);
    const Dim& want = wanted[4 - d];
    if (!own.is_known() || !want.is_known() || own.size() == 1) continue;
    // A mask may be shorter than the keys: those beyond its end are not attended.
    fits = d == 1 ? own.size() <= want.size() : own.size() == want.size();
  }
  if (fits) return absl::OkStatus();
  return context.Error(absl::StrCat("attn_mask ", mask.ToString(), " does not broadcast to [",
                                    wanted[0].ToString(), ",", wanted[1].ToString(), ",",
                                    wanted[2].ToString(), ",", wanted[3].ToString(), "]"));
}

absl::Status CheckValues(InferenceContext& context, const AttentionDims& dims) {
  const Attributes& attributes = context.attributes();
  const int64_t mode = attributes.Int("qk_matmul_output_mode", 0);
  if (mode < 0 || mode > 3) {
    return context.Error(
        absl::StrCat("attribute qk_matmul_output_mode is ", mode, ", expected 0 to 3"));
  }
  for (const char* name : {"left_window_size", "right_window_size"}) {
    if (attributes.Int(name, -1) >= -1) continue;
    return context.Error(absl::StrCat("attribute ", name, " is ", attributes.Int(name, -1),
                                      ", expected -1 (unbounded) or more"));
  }
  const int64_t precision = attributes.Int("softmax_precision", 1);
  if (precision != 1 && precision != 10 && precision != 11 && precision != 16) {
    return context.Error(absl::StrCat("attribute softmax_precision is ", precision,
                                      ", expected 1, 10, 11 or 16 (a floating type)"));
  }
  if (!context.HasInput(kValidLengths) || !context.InputShape(kValidLengths).has_rank()) {
    return absl::OkStatus();
  }
  const SymbolicShape& lengths = context.InputShape(kValidLengths);
  if (lengths.rank() == 1 && MergeDims(lengths.dim(0), dims.q.batch).has_value()) {
    return absl::OkStatus();
  }
  return context.Error(absl::StrCat("nonpad_kv_seqlen is ", lengths.ToString(), ", expected [",
                                    dims.q.batch.ToString(), "]"));
}

absl::Status InferAttention(InferenceContext& context) {
  WEFT_RETURN_IF_ERROR(CheckSameDType(context, {kQuery, kKey}));
  const DType dtype = context.InputType(kQuery).dtype;
  const DType value_dtype = context.InputType(kValue).dtype;
  for (const int i : {kQuery, kKey, kValue}) {
    if (context.InputShape(i).has_rank()) continue;
    context.SetOutput(kY, dtype, SymbolicShape());
    context.SetOutput(kPresentKey, dtype, SymbolicShape(UnknownDims(4)));
    context.SetOutput(kPresentValue, value_dtype, SymbolicShape(UnknownDims(4)));
    context.SetOutput(kScores, dtype, SymbolicShape(UnknownDims(4)));
    return absl::OkStatus();
  }
  WEFT_RETURN_IF_ERROR(CheckRanks(context));
  WEFT_ASSIGN_OR_RETURN(const AttentionDims dims, ReadDims(context));
  WEFT_RETURN_IF_ERROR(CheckMask(context, dims));
  WEFT_RETURN_IF_ERROR(CheckValues(context, dims));
  const Dim& batch = dims.q.batch;
  if (context.InputShape(kQuery).rank() == 4) {
    context.SetOutput(kY, dtype, SymbolicShape({batch, dims.q.heads, dims.q.length, dims.v.size}));
  } else {
    const Dim hidden = ProductOfDims({dims.q.heads, dims.v.size}, 0, 2);
    context.SetOutput(kY, dtype, SymbolicShape({batch, dims.q.length, hidden}));
  }
  context.SetOutput(kPresentKey, dtype,
                    SymbolicShape({batch, dims.k.heads, dims.total, dims.k.size}));
  context.SetOutput(kPresentValue, value_dtype,
                    SymbolicShape({batch, dims.v.heads, dims.total, dims.v.size}));
  context.SetOutput(kScores, dtype,
                    SymbolicShape({batch, dims.q.heads, dims.q.length, dims.total}));
  return absl::OkStatus();
}

// The two products. Each score costs its share of the head size in either.
Cost AttentionCost(const NodeView& view) {
  const Shape& q = view.InputShape(kQuery);
  const Shape& k = view.InputShape(kKey);
  const Shape& y = view.OutputShape(kY);
  const bool packed = q.rank() == 3;
  const double past =
      view.HasInput(kPastKey) ? static_cast<double>(view.InputShape(kPastKey).dim(2)) : 0.0;
  const double total = past + static_cast<double>(k.dim(packed ? 1 : 2));
  const double both = static_cast<double>(q.num_elements()) + static_cast<double>(y.num_elements());
  return Cost{2.0 * total * both, OperandBytes(view)};
}

// ---- Sharding. Q[b, (h g), t, d], K[b, h, s, d], V[b, h, s, v], Y[b, (h g), t, v]: h heads of
// keys and values, each shared by g of the queries; packed, heads and sizes are one axis. Every
// head stands alone, and so does every query, unless its place matters to what it may see.

// Q or Y with `heads` = (h g), K or V with (h).
std::vector<std::vector<int>> HeadAxes(bool packed, int batch, std::vector<int> heads, int length,
                                       int size) {
  if (!packed) return {{batch}, std::move(heads), {length}, {size}};
  heads.push_back(size);
  return {{batch}, {length}, std::move(heads)};
}

class AttentionFactors {
 public:
  explicit AttentionFactors(const NodeView& view) : view_(view) {
    const Shape& q = view.InputShape(kQuery);
    const Shape& k = view.InputShape(kKey);
    const Attributes& attributes = view.attributes();
    packed_ = q.rank() == 3;
    const int64_t q_heads = packed_ ? attributes.Int("q_num_heads", 1) : q.dim(1);
    const int64_t kv_heads = packed_ ? attributes.Int("kv_num_heads", 1) : k.dim(1);
    const bool has_places = attributes.Int("is_causal", 0) != 0 ||
                            attributes.Int("left_window_size", -1) >= 0 ||
                            attributes.Int("right_window_size", -1) >= 0;
    const int64_t past = view.HasInput(kPastKey) ? view.InputShape(kPastKey).dim(2) : 0;
    const int64_t keys = k.dim(packed_ ? 1 : 2);
    batch_ = rule_.Factor(q.dim(0));
    heads_ = rule_.Factor(kv_heads);
    group_ = rule_.Factor(kv_heads == 0 ? 1 : q_heads / kv_heads);
    queries_ = rule_.Factor(q.dim(packed_ ? 1 : 2),
                            has_places ? FactorKind::kWhole : FactorKind::kParallel);
    keys_ = rule_.Factor(keys, FactorKind::kWhole);
    past_ = rule_.Factor(past, FactorKind::kWhole);
    all_keys_ = rule_.Factor(past + keys, FactorKind::kWhole);
    key_size_ = Size(q, q_heads);
    value_size_ = Size(view.InputShape(kValue), kv_heads);
  }

  FactorRule Build() {
    const std::vector<int> shared = {heads_, group_};
    rule_.FactoredInput(HeadAxes(packed_, batch_, shared, queries_, key_size_));
    rule_.FactoredInput(HeadAxes(packed_, batch_, {heads_}, keys_, key_size_));
    rule_.FactoredInput(HeadAxes(packed_, batch_, {heads_}, keys_, value_size_));
    for (int i = kMask; i < view_.num_inputs(); ++i) rule_.FactoredInput(OptionalInput(i));
    for (int i = 0; i < view_.num_outputs(); ++i) {
      rule_.FactoredOutput(view_.HasOutput(i) ? Output(i) : std::vector<std::vector<int>>());
    }
    return rule_.Build();
  }

 private:
  // The size of a head: of all that an axis holds, or an axis of its own.
  int Size(const Shape& shape, int64_t heads) {
    const int64_t last = shape.dims().back();
    return rule_.Factor(packed_ && heads > 0 ? last / heads : last, FactorKind::kWhole);
  }

  std::vector<std::vector<int>> OptionalInput(int i) {
    if (!view_.HasInput(i)) return {};
    if (i == kMask) return Mask();
    if (i == kPastKey) return {{batch_}, {heads_}, {past_}, {key_size_}};
    if (i == kPastValue) return {{batch_}, {heads_}, {past_}, {value_size_}};
    return {{batch_}};  // the valid lengths
  }

  // Broadcasts to [b, (h g), t, all keys], and may end before the keys do.
  std::vector<std::vector<int>> Mask() {
    const Shape& mask = view_.InputShape(kMask);
    const std::vector<std::vector<int>> whole = {{batch_}, {heads_, group_}, {queries_}};
    std::vector<std::vector<int>> dims;
    for (int axis = 0; axis + 1 < mask.rank(); ++axis) {
      const bool is_broadcast = mask.dim(axis) == 1;
      dims.push_back(is_broadcast ? std::vector<int>() : whole[axis + 4 - mask.rank()]);
    }
    if (mask.rank() > 0) dims.push_back({rule_.Factor(mask.dims().back(), FactorKind::kWhole)});
    return dims;
  }

  std::vector<std::vector<int>> Output(int i) const {
    if (i == kY) return HeadAxes(packed_, batch_, {heads_, group_}, queries_, value_size_);
    if (i == kPresentKey) return {{batch_}, {heads_}, {all_keys_}, {key_size_}};
    if (i == kPresentValue) return {{batch_}, {heads_}, {all_keys_}, {value_size_}};
    return {{batch_}, {heads_, group_}, {queries_}, {all_keys_}};
  }

  const NodeView& view_;
  FactorRuleBuilder rule_;
  bool packed_ = false;
  int batch_ = 0, heads_ = 0, group_ = 0, queries_ = 0, keys_ = 0, past_ = 0, all_keys_ = 0;
  int key_size_ = 0, value_size_ = 0;
};

absl::StatusOr<FactorRule> AttentionRule(const NodeView& view) {
  return AttentionFactors(view).Build();
}

// Packed operands say how many heads a shard has of them.
absl::Status LocalizeAttention(LocalizeContext& context) {
  if (context.GlobalInputShape(kQuery).rank() != 3) return absl::OkStatus();
  const auto set_heads = [&](const char* name, int input) {
    const int64_t heads = context.node().attributes.Int(name, 1);
    const int64_t hidden = context.GlobalInputShape(input).dim(2);
    const int64_t local = context.LocalInputShape(input).dim(2);
    if (local != hidden) context.SetAttribute(name, heads * local / hidden);
  };
  set_heads("q_num_heads", kQuery);
  set_heads("kv_num_heads", kKey);
  return absl::OkStatus();
}

WEFT_REGISTER_OP(OpSchema::Onnx("Attention")
                     .Input("Q", kFloatTypes)
                     .Input("K", kFloatTypes)
                     .Input("V", kFloatTypes)
                     .OptionalInput("attn_mask", kRealTypes)
                     .NeverLearnable()
                     .OptionalInput("past_key", kFloatTypes)
                     .NeverLearnable()
                     .OptionalInput("past_value", kFloatTypes)
                     .NeverLearnable()
                     .OptionalInput("nonpad_kv_seqlen", {DType::kInt64})
                     .Output("Y")
                     .OptionalOutput("present_key")
                     .OptionalOutput("present_value")
                     .OptionalOutput("qk_matmul_output")
                     .Attr("is_causal", AttributeType::kInt)
                     .Attr("kv_num_heads", AttributeType::kInt)
                     .Attr("left_window_size", AttributeType::kInt)
                     .Attr("q_num_heads", AttributeType::kInt)
                     .Attr("qk_matmul_output_mode", AttributeType::kInt)
                     .Attr("right_window_size", AttributeType::kInt)
                     .Attr("scale", AttributeType::kFloat)
                     .Attr("softcap", AttributeType::kFloat)
                     .Attr("softmax_precision", AttributeType::kInt)
                     .Infer(InferAttention)
                     .Gradient(AttentionGradient)
                     .Sharding(AttentionRule)
                     .Localize(LocalizeAttention)
                     .CostOf(AttentionCost));

}  // namespace
}  // namespace weft
