// Cast and CastLike: from any real type to any other. BitCast: the same bits as another type.
#include "absl/strings/str_cat.h"
#include "ops/defs/rules/gradients.h"
#include "ops/defs/rules/rules.h"

namespace weft {
namespace {

absl::Status InferCast(InferenceContext& context) {
  const int64_t to = context.attributes().Int("to", 0);
  if (to < 1 || to > kDTypeCount - 1) {
    return context.Error(absl::StrCat("attribute to is ", to, ", expected an ONNX data type"));
  }
  const DType dtype = static_cast<DType>(to);
  context.SetOutput(0, dtype, context.InputShape(0));
  if (dtype == DType::kInt64 || dtype == DType::kInt32) {
    const std::optional<std::vector<Dim>> dims = context.InputDims(0);
    if (dims.has_value()) context.SetOutputDims(0, *dims);
  }
  return absl::OkStatus();
}

absl::Status InferCastLike(InferenceContext& context) {
  context.SetOutput(0, context.InputType(1).dtype, context.InputShape(0));
  return absl::OkStatus();
}

// A Cast, as soon as the type of the other operand is known.
absl::StatusOr<std::vector<ValueId>> ExpandCastLike(ExpandContext& context) {
  GraphBuilder& builder = context.builder();
  const Node& node = context.node();
  const DType dtype = builder.type(node.inputs[1]).dtype;
  if (dtype == DType::kInvalid) {
    return absl::UnimplementedError("the type of its input 1 is not known");
  }
  Attributes attributes = node.attributes;
  attributes.Set("to", static_cast<int64_t>(dtype));
  const ValueId input = node.inputs[0];
  const ValueId output = builder.Op("Cast", {input}, std::move(attributes));
  if (!builder.status().ok()) return builder.status();
  return std::vector<ValueId>{output};
}

// Types of one width only: a shape does not change.
absl::Status InferBitCast(InferenceContext& context) {
  const int64_t to = context.attributes().Int("to", 0);
  const DType from = context.InputType(0).dtype;
  if (to < 1 || to > kDTypeCount - 1) {
    return context.Error(absl::StrCat("attribute to is ", to, ", expected an ONNX data type"));
  }
  const DType dtype = static_cast<DType>(to);
  if (from != DType::kInvalid && (DTypeBits(from) != DTypeBits(dtype) || DTypeBits(from) == 0)) {
    return context.Error(absl::StrCat("the bits of ", std::string(DTypeName(from)),
                                      " cannot be taken as ", std::string(DTypeName(dtype)),
                                      ": the types must have one width"));
  }
  context.SetOutput(0, dtype, context.InputShape(0));
  return absl::OkStatus();
}

// Between floating types the gradient passes, in the type of the input; elsewhere none flows.
absl::Status CastGradient(GradientContext& context) {
  const ValueId dy = context.OutputGradient(0);
  if (!dy.valid() || !context.NeedsInputGradient(0)) return absl::OkStatus();
  GraphBuilder& builder = context.builder();
  const DType from = builder.type(context.Input(0)).dtype;
  const DType to = builder.type(dy).dtype;
  if (!IsFloatingPoint(from) || !IsFloatingPoint(to)) return absl::OkStatus();
  context.SetInputGradient(
      0, from == to ? dy : builder.Op("Cast", {dy}, {{"to", static_cast<int64_t>(from)}}));
  return builder.status();
}

WEFT_REGISTER_OP(OpSchema::Onnx("Cast")
                     .Input("input")
                     .Output("output")
                     .Attr("to", AttributeType::kInt, /*required=*/true)
                     .Attr("saturate", AttributeType::kInt)
                     .Attr("round_mode", AttributeType::kString)
                     .Infer(InferCast)
                     .Gradient(CastGradient)
                     .Sharding(ElementwiseRule)
                     .CostOf(FlopsPerElement(1)));

WEFT_REGISTER_OP(OpSchema::Onnx("CastLike")
                     .Input("input")
                     .Input("target_type")
                     .NeverLearnable()
                     .Output("output")
                     .Attr("saturate", AttributeType::kInt)
                     .Attr("round_mode", AttributeType::kString)
                     .Infer(InferCastLike)
                     .Expand(ExpandCastLike)
                     .CostOf(FlopsPerElement(1)));

WEFT_REGISTER_OP(OpSchema::Onnx("BitCast")
                     .Input("input")
                     .Output("output")
                     .Attr("to", AttributeType::kInt, /*required=*/true)
                     .Infer(InferBitCast)
                     .NoGradient("bits of whole numbers")
                     .Sharding(ElementwiseRule)
                     .CostOf(FlopsPerElement(0)));

}  // namespace
}  // namespace weft
