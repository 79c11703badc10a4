// LinearAttention: a state per head, [key size, value size], that every step reads and updates.
//
// query [batch, steps, q_heads * dk], key [.., kv_heads * dk], value [.., kv_heads * dv]; decay
// [.., kv_heads] or [.., kv_heads * dk] for gated rules; beta [.., kv_heads] or [.., 1] for delta
// rules; past_state [batch, kv_heads, dk, dv].
#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "graph/graph_builder.h"
#include "ops/defs/movement/shape_dims.h"
#include "ops/defs/rules/rules.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

enum LinearAttentionInputs { kLinearQuery, kLinearKey, kLinearValue, kPastState, kDecay, kBeta };

absl::Status CheckRule(InferenceContext& context) {
  const std::string rule = context.attributes().String("update_rule", "gated_delta");
  const bool gated = rule == "gated" || rule == "gated_delta";
  const bool delta = rule == "delta" || rule == "gated_delta";
  if (!gated && !delta && rule != "linear") {
    return context.Error(absl::StrCat("attribute update_rule is '", rule,
                                      "', expected linear, gated, delta or gated_delta"));
  }
  if (gated != context.HasInput(kDecay) || delta != context.HasInput(kBeta)) {
    return context.Error(absl::StrCat("update_rule '", rule, "' ", gated ? "wants" : "refuses",
                                      " the input decay and ", delta ? "wants" : "refuses",
                                      " the input beta"));
  }
  const int64_t q_heads = context.attributes().Int("q_num_heads", 0);
  const int64_t kv_heads = context.attributes().Int("kv_num_heads", 0);
  if (q_heads > 0 && kv_heads > 0 && q_heads % kv_heads == 0) return absl::OkStatus();
  return context.Error(absl::StrCat("q_num_heads is ", q_heads,
                                    ", expected a positive multiple of "
                                    "kv_num_heads, ",
                                    kv_heads));
}

// The size of each of `heads` heads that the last axis holds.
absl::StatusOr<Dim> SizeOf(InferenceContext& context, int input, int64_t heads) {
  const SymbolicShape& shape = context.InputShape(input);
  if (!shape.has_rank()) return Dim();
  if (shape.rank() != 3) {
    return context.Error(absl::StrCat("input ", input, " is ", shape.ToString(),
                                      ", expected [batch, steps, heads * size]"));
  }
  const Dim& hidden = shape.dim(2);
  if (!hidden.is_known()) return Dim();
  // Of no elements, any number of heads would do.
  if (hidden.size() % heads == 0 && heads <= std::max<int64_t>(hidden.size(), 1)) {
    return Dim(hidden.size() / heads);
  }
  return context.Error(absl::StrCat("the last axis of input ", input, " ", shape.ToString(),
                                    " does not divide into ", heads, " heads"));
}

absl::Status CheckFits(InferenceContext& context, int input, const Dims& wanted,
                       const Dim& alternative) {
  if (!context.HasInput(input) || !context.InputShape(input).has_rank()) return absl::OkStatus();
  const SymbolicShape& shape = context.InputShape(input);
  bool fits = shape.rank() == static_cast<int>(wanted.size());
  for (int d = 0; fits && d < shape.rank(); ++d) {
    const bool last = d + 1 == shape.rank();
    fits = MergeDims(shape.dim(d), wanted[d]).has_value() ||
           (last && MergeDims(shape.dim(d), alternative).has_value());
  }
  if (fits) return absl::OkStatus();
  return context.Error(absl::StrCat("input ", input, " is ", shape.ToString(), ", expected ",
                                    DimsToString(wanted), " or ", alternative.ToString(),
                                    " as its last axis"));
}

absl::Status InferLinearAttention(InferenceContext& context) {
  WEFT_RETURN_IF_ERROR(CheckRule(context));
  const int64_t q_heads = context.attributes().Int("q_num_heads", 0);
  const int64_t kv_heads = context.attributes().Int("kv_num_heads", 0);
  WEFT_ASSIGN_OR_RETURN(Dim key_size, SizeOf(context, kLinearQuery, q_heads));
  WEFT_ASSIGN_OR_RETURN(const Dim other_key_size, SizeOf(context, kLinearKey, kv_heads));
  WEFT_ASSIGN_OR_RETURN(const Dim value_size, SizeOf(context, kLinearValue, kv_heads));
  const std::optional<Dim> merged = MergeDims(key_size, other_key_size);
  if (!merged.has_value()) {
    return context.Error(absl::StrCat("heads of the query have size ", key_size.ToString(),
                                      ", those of the key ", other_key_size.ToString()));
  }
  key_size = *merged;
  const SymbolicShape& query = context.InputShape(kLinearQuery);
  const Dim batch = query.has_rank() ? query.dim(0) : Dim();
  const Dim steps = query.has_rank() ? query.dim(1) : Dim();
  const Dim heads(kv_heads);
  const Dim decay_size = ProductOfDims({heads, key_size}, 0, 2);
  const Dim hidden = ProductOfDims({heads, value_size}, 0, 2);
  WEFT_RETURN_IF_ERROR(CheckFits(context, kLinearKey, {batch, steps, decay_size}, decay_size));
  WEFT_RETURN_IF_ERROR(CheckFits(context, kLinearValue, {batch, steps, hidden}, hidden));
  WEFT_RETURN_IF_ERROR(CheckFits(context, kDecay, {batch, steps, decay_size}, heads));
  WEFT_RETURN_IF_ERROR(CheckFits(context, kBeta, {batch, steps, heads}, Dim(1)));
  WEFT_RETURN_IF_ERROR(
      CheckFits(context, kPastState, {batch, heads, key_size, value_size}, value_size));
  const DType dtype = context.InputType(kLinearQuery).dtype;
  const DType state = context.HasInput(kPastState) ? context.InputType(kPastState).dtype : dtype;
  const Dim out = ProductOfDims({Dim(q_heads), value_size}, 0, 2);
  context.SetOutput(0, dtype, SymbolicShape({batch, steps, out}));
  context.SetOutput(1, state, SymbolicShape({batch, heads, key_size, value_size}));
  return absl::OkStatus();
}

absl::Status LinearAttentionGradient(GradientContext& context) {
  const ValueId dy = context.OutputGradient(0);
  const ValueId dpresent = context.OutputGradient(1);
  if (!dy.valid() && !dpresent.valid()) return absl::OkStatus();
  std::vector<ValueId> inputs = {dy, dpresent};
  for (int i = 0; i <= kBeta; ++i) inputs.push_back(context.Input(i));
  while (!inputs.back().valid()) inputs.pop_back();
  std::vector<bool> wanted;
  for (int i = 0; i <= kBeta; ++i) {
    wanted.push_back(context.Input(i).valid() && context.NeedsInputGradient(i));
  }
  const Attributes& from = context.node().attributes;
  Attributes attributes = {{"kv_num_heads", from.Int("kv_num_heads", 1)},
                           {"q_num_heads", from.Int("q_num_heads", 1)},
                           {"scale", from.Float("scale", 0.0f)}};
  const std::vector<ValueId> gradients =
      context.builder().Ops(std::string(kWeftDomain), "LinearAttentionGrad", std::move(inputs),
                            std::move(attributes), wanted);
  WEFT_RETURN_IF_ERROR(context.builder().status());
  for (int i = 0; i <= kBeta; ++i) {
    if (wanted[i]) context.SetInputGradient(i, gradients[i]);
  }
  return absl::OkStatus();
}

absl::Status InferLinearAttentionGrad(InferenceContext& context) {
  for (int i = 0; i < context.num_outputs(); ++i) {
    if (!context.HasOutput(i)) continue;
    if (!context.HasInput(i + 2)) {
      return context.Error(absl::StrCat("output ", i, " needs input ", i + 2, ", which it is of"));
    }
    context.SetOutput(i, context.InputType(i + 2));
  }
  return absl::OkStatus();
}

// dY and dpresent are those of LinearAttention's outputs, of which one may be absent.
WEFT_REGISTER_OP(OpSchema::Weft("LinearAttentionGrad")
                     .GradientMissing("part of a gradient")
                     .OptionalInput("dY", kFloatTypes)
                     .OptionalInput("dpresent_state", kFloatTypes)
                     .Input("query", kFloatTypes)
                     .Input("key", kFloatTypes)
                     .Input("value", kFloatTypes)
                     .OptionalInput("past_state", kFloatTypes)
                     .OptionalInput("decay", kFloatTypes)
                     .OptionalInput("beta", kFloatTypes)
                     .OptionalOutput("dquery")
                     .OptionalOutput("dkey")
                     .OptionalOutput("dvalue")
                     .OptionalOutput("dpast_state")
                     .OptionalOutput("ddecay")
                     .OptionalOutput("dbeta")
                     .Attr("kv_num_heads", AttributeType::kInt, /*required=*/true)
                     .Attr("q_num_heads", AttributeType::kInt, /*required=*/true)
                     .Attr("scale", AttributeType::kFloat)
                     .Infer(InferLinearAttentionGrad));

WEFT_REGISTER_OP(OpSchema::Onnx("LinearAttention")
                     .Input("query", kFloatTypes)
                     .Input("key", kFloatTypes)
                     .Input("value", kFloatTypes)
                     .OptionalInput("past_state", kFloatTypes)
                     .NeverLearnable()
                     .OptionalInput("decay", kFloatTypes)
                     .OptionalInput("beta", kFloatTypes)
                     .Output("output")
                     .OptionalOutput("present_state")
                     .Attr("chunk_size", AttributeType::kInt)
                     .Attr("kv_num_heads", AttributeType::kInt, /*required=*/true)
                     .Attr("q_num_heads", AttributeType::kInt, /*required=*/true)
                     .Attr("scale", AttributeType::kFloat)
                     .Attr("update_rule", AttributeType::kString)
                     .Infer(InferLinearAttention)
                     .Gradient(LinearAttentionGradient));

}  // namespace
}  // namespace weft
