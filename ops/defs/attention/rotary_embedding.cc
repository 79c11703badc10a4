// RotaryEmbedding: pairs of elements of every head are turned by an angle that belongs to their
// position.
//
// X is [batch, heads, length, size], or [batch, length, heads * size] with attribute num_heads. The
// caches hold cosines and sines, [positions, turned / 2] with position_ids [batch, length], or
// [batch, length, turned / 2] without.
#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "graph/graph_builder.h"
#include "ops/defs/movement/shape_dims.h"
#include "ops/defs/rules/gradients.h"
#include "ops/defs/rules/rules.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

enum RotaryInputs { kX, kCos, kSin, kPositions };

absl::StatusOr<Dim> HeadSize(InferenceContext& context, const SymbolicShape& x) {
  if (x.rank() == 4) return x.dim(3);
  if (x.rank() != 3) {
    return context.Error(absl::StrCat("X is ", x.ToString(), ", expected rank 3 or 4"));
  }
  const int64_t heads = context.attributes().Int("num_heads", 0);
  const Dim& hidden = x.dim(2);
  if (heads > 0 && !hidden.is_known()) return Dim();
  // Of no elements, any number of heads would do.
  if (heads > 0 && hidden.size() % heads == 0 && heads <= std::max<int64_t>(hidden.size(), 1)) {
    return Dim(hidden.size() / heads);
  }
  return context.Error(absl::StrCat("X of rank 3 ", x.ToString(), " wants attribute num_heads, ",
                                    "which divides its last axis, got ", heads));
}

absl::Status CheckCache(InferenceContext& context, int input, const Dim& batch, const Dim& length,
                        int64_t half) {
  const SymbolicShape& cache = context.InputShape(input);
  if (!cache.has_rank()) return absl::OkStatus();
  const bool table = context.HasInput(kPositions);
  bool fits = cache.rank() == (table ? 2 : 3);
  if (fits && !table) {
    fits =
        MergeDims(cache.dim(0), batch).has_value() && MergeDims(cache.dim(1), length).has_value();
  }
  fits = fits && MergeDims(cache.dim(cache.rank() - 1), Dim(half)).has_value();
  if (fits) return absl::OkStatus();
  return context.Error(absl::StrCat(
      "input ", input, " is ", cache.ToString(), ", expected ",
      table ? "[positions," : absl::StrCat("[", batch.ToString(), ",", length.ToString(), ","),
      half, "]"));
}

absl::Status InferRotaryEmbedding(InferenceContext& context) {
  WEFT_RETURN_IF_ERROR(CheckSameDType(context, {kX, kCos, kSin}));
  context.SetOutput(0, context.InputType(kX));
  const SymbolicShape& x = context.InputShape(kX);
  if (!x.has_rank()) return absl::OkStatus();
  WEFT_ASSIGN_OR_RETURN(const Dim size, HeadSize(context, x));
  if (!size.is_known()) return absl::OkStatus();
  const int64_t attribute = context.attributes().Int("rotary_embedding_dim", 0);
  const int64_t turned = attribute == 0 ? size.size() : attribute;
  if (turned < 0 || turned > size.size() || turned % 2 != 0) {
    return context.Error(absl::StrCat("rotary_embedding_dim ", turned,
                                      " must be even and at most the head size ", size.size()));
  }
  const Dim& batch = x.dim(0);
  const Dim& length = x.dim(x.rank() == 4 ? 2 : 1);
  WEFT_RETURN_IF_ERROR(CheckCache(context, kCos, batch, length, turned / 2));
  WEFT_RETURN_IF_ERROR(CheckCache(context, kSin, batch, length, turned / 2));
  if (!context.HasInput(kPositions) || !context.InputShape(kPositions).has_rank()) {
    return absl::OkStatus();
  }
  const SymbolicShape& ids = context.InputShape(kPositions);
  const bool fits = ids.rank() == 2 && MergeDims(ids.dim(0), batch).has_value() &&
                    MergeDims(ids.dim(1), length).has_value();
  if (fits) return absl::OkStatus();
  return context.Error(absl::StrCat("position_ids are ", ids.ToString(), ", expected [",
                                    batch.ToString(), ",", length.ToString(), "]"));
}

// A rotation's transpose turns the other way.
absl::Status RotaryEmbeddingGradient(GradientContext& context) {
  const ValueId dy = context.OutputGradient(0);
  if (!dy.valid()) return absl::OkStatus();
  WEFT_RETURN_IF_ERROR(RefuseInputGradient(context, kCos, "the cosines"));
  WEFT_RETURN_IF_ERROR(RefuseInputGradient(context, kSin, "the sines"));
  if (!context.NeedsInputGradient(kX)) return absl::OkStatus();
  GraphBuilder& b = context.builder();
  std::vector<ValueId> inputs = {dy, context.Input(kCos), b.Op("Neg", {context.Input(kSin)})};
  if (context.Input(kPositions).valid()) inputs.push_back(context.Input(kPositions));
  context.SetInputGradient(kX,
                           b.Op("RotaryEmbedding", std::move(inputs), context.node().attributes));
  return b.status();
}

// X[b, h, t, d] or [b, t, (h d)]: heads and positions are turned each for itself.
absl::StatusOr<FactorRule> RotaryEmbeddingRule(const NodeView& view) {
  const Shape& x = view.InputShape(kX);
  const bool packed = x.rank() == 3;
  const int64_t heads = packed ? view.attributes().Int("num_heads", 1) : x.dim(1);
  FactorRuleBuilder rule;
  const int b = rule.Factor(x.dim(0));
  const int h = rule.Factor(heads);
  const int t = rule.Factor(x.dim(packed ? 1 : 2));
  const int64_t last = x.dims().back();
  const int d = rule.Factor(packed && heads > 0 ? last / heads : last, FactorKind::kWhole);
  std::vector<std::vector<int>> dims = {{b}, {h}, {t}, {d}};
  if (packed) dims = {{b}, {t}, {h, d}};
  rule.FactoredInput(dims);
  for (const int cache : {kCos, kSin}) {
    const Shape& shape = view.InputShape(cache);
    if (view.HasInput(kPositions)) {
      rule.ReplicatedInput(shape);
    } else {
      rule.Input({b, t, rule.Factor(shape.dims().back(), FactorKind::kWhole)});
    }
  }
  if (view.num_inputs() > kPositions) {
    rule.Input(view.HasInput(kPositions) ? std::vector<int>{b, t} : std::vector<int>());
  }
  rule.FactoredOutput(dims);
  return rule.Linear({{0}}).Build();
}

absl::Status LocalizeRotaryEmbedding(LocalizeContext& context) {
  const Shape& x = context.GlobalInputShape(kX);
  const Shape& local = context.LocalInputShape(kX);
  if (x.rank() != 3 || local.dim(2) == x.dim(2)) return absl::OkStatus();
  const int64_t heads = context.node().attributes.Int("num_heads", 1);
  context.SetAttribute("num_heads", heads * local.dim(2) / x.dim(2));
  return absl::OkStatus();
}

WEFT_REGISTER_OP(OpSchema::Onnx("RotaryEmbedding")
                     .Input("X", kFloatTypes)
                     .Input("cos_cache", kFloatTypes)
                     .NeverLearnable()
                     .Input("sin_cache", kFloatTypes)
                     .NeverLearnable()
                     .OptionalInput("position_ids", {DType::kInt64})
                     .Output("Y")
                     .Attr("interleaved", AttributeType::kInt)
                     .Attr("num_heads", AttributeType::kInt)
                     .Attr("rotary_embedding_dim", AttributeType::kInt)
                     .Infer(InferRotaryEmbedding)
                     .Gradient(RotaryEmbeddingGradient)
                     .Sharding(RotaryEmbeddingRule)
                     .Localize(LocalizeRotaryEmbedding)
                     .CostOf(FlopsPerElement(3)));

}  // namespace
}  // namespace weft
