// Cast: from any real type to any other.
#include "absl/strings/str_cat.h"
#include "ops/defs/gradients.h"
#include "ops/defs/rules.h"

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

// Between floating types the gradient passes, in the type of the input; elsewhere none flows.
absl::Status CastGradient(GradientContext& context) {
  const ValueId dy = context.OutputGradient(0);
  if (!dy.valid() || !context.NeedsInputGradient(0)) return absl::OkStatus();
  GraphBuilder& builder = context.builder();
  const DType from = builder.type(context.Input(0)).dtype;
  const DType to = static_cast<DType>(context.node().attributes.Int("to", 0));
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

}  // namespace
}  // namespace weft
