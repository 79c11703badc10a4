// ai.onnx.preview::FlexAttention: attention whose scores and probabilities pass through subgraphs.
// Runs by being taken apart.
#include <cmath>
#include <string>

#include "absl/strings/str_cat.h"
#include "graph/graph_builder.h"
#include "graph/node_bodies.h"
#include "ops/defs/movement/shape_dims.h"
#include "ops/defs/rules/gradients.h"
#include "ops/defs/rules/inline_body.h"
#include "ops/defs/rules/rules.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

absl::Status InferFlexAttention(InferenceContext& context) {
  WEFT_RETURN_IF_ERROR(CheckSameDType(context, {0, 1, 2}));
  const DType dtype = context.InputType(0).dtype;
  for (int i = 0; i < 3; ++i) {
    const SymbolicShape& shape = context.InputShape(i);
    if (!shape.has_rank()) {
      context.SetOutput(0, dtype, SymbolicShape(UnknownDims(4)));
      return absl::OkStatus();
    }
    if (shape.rank() == 4) continue;
    return context.Error(absl::StrCat("input ", i, " is ", shape.ToString(),
                                      ", expected [batch, heads, length, size]"));
  }
  const SymbolicShape& q = context.InputShape(0);
  const SymbolicShape& k = context.InputShape(1);
  const SymbolicShape& v = context.InputShape(2);
  const bool fits =
      MergeDims(q.dim(0), k.dim(0)).has_value() && MergeDims(k.dim(0), v.dim(0)).has_value() &&
      MergeDims(k.dim(1), v.dim(1)).has_value() && MergeDims(k.dim(2), v.dim(2)).has_value() &&
      MergeDims(q.dim(3), k.dim(3)).has_value();
  const bool heads_known = q.dim(1).is_known() && k.dim(1).is_known();
  const bool shared =
      !heads_known || (k.dim(1).size() > 0 && q.dim(1).size() % k.dim(1).size() == 0);
  if (!fits || !shared) {
    return context.Error(absl::StrCat("Q ", q.ToString(), ", K ", k.ToString(), " and V ",
                                      v.ToString(), " do not belong together"));
  }
  context.SetOutput(0, dtype, SymbolicShape({q.dim(0), q.dim(1), q.dim(2), v.dim(3)}));
  return absl::OkStatus();
}

// The subgraph in attribute `name` on `value`, or `value` when there is none.
absl::StatusOr<ValueId> Modified(ExpandContext& context, const std::string& name, ValueId value) {
  const Node& node = context.node();
  for (const NodeBody& body : BodiesOf(node)) {
    if (body.name != name) continue;
    std::vector<ValueId> inputs = {value};
    for (int i = 0; i < body.captures; ++i) inputs.push_back(node.inputs[body.first_capture + i]);
    WEFT_ASSIGN_OR_RETURN(const std::vector<ValueId> outputs,
                          InlineBody(context.builder(), *body.graph, inputs));
    if (outputs.size() == 1) return outputs[0];
    return absl::InvalidArgumentError(absl::StrCat("node '", node.name, "': the subgraph ", name,
                                                   " has ", outputs.size(),
                                                   " outputs, expected one"));
  }
  return value;
}

// Keys or values with every head repeated for each query head that shares it.
absl::StatusOr<ValueId> Repeated(ExpandContext& context, ValueId value, const Dim& q_heads) {
  GraphBuilder& b = context.builder();
  const SymbolicShape& shape = b.type(value).shape;
  // Inference says nothing of an operand where another one is unknown.
  const bool ranked = shape.has_rank() && shape.rank() == 4;
  if (ranked && q_heads == shape.dim(1)) return value;
  if (!ranked || !q_heads.is_known() || !shape.dim(1).is_known() || shape.dim(1).size() == 0 ||
      !shape.dim(3).is_known()) {
    return absl::UnimplementedError(absl::StrCat("node '", context.node().name,
                                                 "': heads can be shared only where their numbers "
                                                 "and sizes are known, got ",
                                                 shape.ToString()));
  }
  const int64_t size = shape.dim(3).size();
  const int64_t group = q_heads.size() / shape.dim(1).size();
  const ValueId apart = b.Op("Unsqueeze", {value, b.Ints({2})});
  const ValueId wide = b.Op("Expand", {apart, b.Ints({1, 1, group, 1, 1})});
  return b.Op("Reshape", {wide, b.Ints({0, q_heads.size(), -1, size})});
}

absl::StatusOr<float> ScaleOf(const ExpandContext& context, const SymbolicShape& q) {
  if (context.node().attributes.Has("scale")) return context.node().attributes.Float("scale", 1);
  if (q.has_rank() && q.dim(3).is_known()) {
    return static_cast<float>(1 / std::sqrt(static_cast<double>(q.dim(3).size())));
  }
  return absl::UnimplementedError(absl::StrCat("node '", context.node().name,
                                               "': the head size, from which the scale follows, "
                                               "is not known; give the attribute scale"));
}

absl::StatusOr<std::vector<ValueId>> ExpandFlexAttention(ExpandContext& context) {
  GraphBuilder& b = context.builder();
  const Node& node = context.node();
  const DType dtype = b.type(node.inputs[0]).dtype;
  const SymbolicShape q_shape = b.type(node.inputs[0]).shape;
  const bool narrow = dtype == DType::kFloat16 || dtype == DType::kBfloat16;
  const DType precision = static_cast<DType>(node.attributes.Int(
      "softmax_precision", static_cast<int64_t>(narrow ? DType::kFloat32 : dtype)));
  WEFT_ASSIGN_OR_RETURN(const float scale, ScaleOf(context, q_shape));
  const Dim q_heads = q_shape.has_rank() ? q_shape.dim(1) : Dim();
  WEFT_ASSIGN_OR_RETURN(const ValueId k, Repeated(context, node.inputs[1], q_heads));
  WEFT_ASSIGN_OR_RETURN(const ValueId v, Repeated(context, node.inputs[2], q_heads));
  const ValueId root = b.Scalar(dtype, std::sqrt(scale));
  const ValueId keys =
      b.Op("Transpose", {b.Op("Mul", {k, root})}, {{"perm", std::vector<int64_t>{0, 1, 3, 2}}});
  ValueId scores = b.Op("MatMul", {b.Op("Mul", {node.inputs[0], root}), keys});
  scores = AsDType(b, scores, precision);
  WEFT_ASSIGN_OR_RETURN(scores, Modified(context, "score_mod", scores));
  ValueId probabilities = b.Op("Softmax", {scores}, {{"axis", int64_t{-1}}});
  WEFT_ASSIGN_OR_RETURN(probabilities, Modified(context, "prob_mod", probabilities));
  const ValueId y = b.Op("MatMul", {probabilities, AsDType(b, v, precision)});
  const ValueId result = AsDType(b, y, dtype);
  WEFT_RETURN_IF_ERROR(b.status());
  return std::vector<ValueId>{result};
}

WEFT_REGISTER_OP(OpSchema("ai.onnx.preview", "FlexAttention")
                     .Input("Q", kFloatTypes)
                     .Input("K", kFloatTypes)
                     .Input("V", kFloatTypes)
                     .VariadicInput("captures")
                     .Output("Y")
                     .Attr("prob_mod", AttributeType::kGraph)
                     .Attr("scale", AttributeType::kFloat)
                     .Attr("score_mod", AttributeType::kGraph)
                     .Attr("softmax_precision", AttributeType::kInt)
                     .Attr(CapturesAttribute("prob_mod"), AttributeType::kStrings)
                     .Attr(CapturesAttribute("score_mod"), AttributeType::kStrings)
                     .Infer(InferFlexAttention)
                     .Expand(ExpandFlexAttention));

}  // namespace
}  // namespace weft
