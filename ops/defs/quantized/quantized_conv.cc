// ConvInteger and QLinearConv.
#include "absl/strings/str_cat.h"
#include "ops/defs/movement/shape_dims.h"
#include "ops/defs/rules/rules.h"
#include "ops/defs/rules/type_lists.h"
#include "ops/window.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

// The window: attribute kernel_shape, or the weights' image axes; nullopt while not known.
absl::StatusOr<std::optional<WindowSpec>> WindowOf(InferenceContext& context,
                                                   const SymbolicShape& w) {
  std::vector<int64_t> sizes;
  for (int d = 2; d < w.rank(); ++d) {
    if (!w.dim(d).is_known()) return std::optional<WindowSpec>();
    sizes.push_back(w.dim(d).size());
  }
  const Attributes& attributes = context.attributes();
  if (attributes.Has("kernel_shape") && attributes.Ints("kernel_shape") != sizes) {
    return context.Error(
        absl::StrCat("attribute 'kernel_shape' does not fit W of shape ", w.ToString()));
  }
  absl::StatusOr<WindowSpec> window = WindowSpec::Create(attributes, std::move(sizes));
  if (!window.ok()) return context.Error(std::string(window.status().message()));
  return std::optional<WindowSpec>(*std::move(window));
}

absl::Status CheckChannels(const InferenceContext& context, const SymbolicShape& x,
                           const SymbolicShape& w) {
  const int64_t group = context.attributes().Int("group", 1);
  const bool known = x.dim(1).is_known() && w.dim(0).is_known() && w.dim(1).is_known();
  if (group >= 1 && (!known || (w.dim(0).size() % group == 0 && x.dim(1).size() % group == 0 &&
                                x.dim(1).size() / group == w.dim(1).size()))) {
    return absl::OkStatus();
  }
  return context.Error(absl::StrCat("X of shape ", x.ToString(), " and W of shape ", w.ToString(),
                                    " do not fit with ", group, " groups"));
}

absl::Status InferConv(InferenceContext& context, int x_input, int w_input, DType dtype) {
  const SymbolicShape& x = context.InputShape(x_input);
  const SymbolicShape& w = context.InputShape(w_input);
  if (!x.has_rank() || !w.has_rank()) {
    context.SetOutput(0, dtype, SymbolicShape());
    return absl::OkStatus();
  }
  if (x.rank() < 3 || x.rank() != w.rank()) {
    return context.Error(absl::StrCat("X of shape ", x.ToString(), " and W of shape ", w.ToString(),
                                      ", expected [batch, channels, image...] and "
                                      "weights of the same rank"));
  }
  WEFT_RETURN_IF_ERROR(CheckChannels(context, x, w));
  WEFT_ASSIGN_OR_RETURN(const std::optional<WindowSpec> window, WindowOf(context, w));
  Dims dims = UnknownDims(x.rank());
  dims[0] = x.dim(0);
  dims[1] = w.dim(0);
  for (int d = 2; window.has_value() && d < x.rank(); ++d) {
    const absl::StatusOr<Dim> dim = window->OutputDim(d - 2, x.dim(d));
    if (!dim.ok()) return context.Error(std::string(dim.status().message()));
    dims[d] = *dim;
  }
  context.SetOutput(0, dtype, SymbolicShape(std::move(dims)));
  return absl::OkStatus();
}

OpSchema& AddWindowAttributes(OpSchema& schema) {
  return schema.Attr("auto_pad", AttributeType::kString)
      .Attr("dilations", AttributeType::kInts)
      .Attr("group", AttributeType::kInt)
      .Attr("kernel_shape", AttributeType::kInts)
      .Attr("pads", AttributeType::kInts)
      .Attr("strides", AttributeType::kInts)
      .NoGradient("whole numbers");
}

CostFn ConvCost(int w_input) {
  return [w_input](const NodeView& view) {
    const Shape& w = view.InputShape(w_input);
    const double window = static_cast<double>(w.ProductOf(1, w.rank()));
    return Cost{2 * window * static_cast<double>(view.OutputShape(0).num_elements()),
                OperandBytes(view)};
  };
}

OpSchema ConvInteger() {
  OpSchema schema = OpSchema::Onnx("ConvInteger");
  schema.Input("x", kByteTypes)
      .Input("w", kByteTypes)
      .OptionalInput("x_zero_point", kByteTypes)
      .OptionalInput("w_zero_point", kByteTypes)
      .Output("y")
      .Infer([](InferenceContext& context) { return InferConv(context, 0, 1, DType::kInt32); })
      .CostOf(ConvCost(1));
  return AddWindowAttributes(schema);
}
WEFT_REGISTER_OP(ConvInteger());

OpSchema QLinearConv() {
  OpSchema schema = OpSchema::Onnx("QLinearConv");
  schema.Input("x", kByteTypes)
      .Input("x_scale", {DType::kFloat32})
      .NeverLearnable()
      .Input("x_zero_point", kByteTypes)
      .Input("w", kByteTypes)
      .Input("w_scale", {DType::kFloat32})
      .NeverLearnable()
      .Input("w_zero_point", kByteTypes)
      .Input("y_scale", {DType::kFloat32})
      .NeverLearnable()
      .Input("y_zero_point", kByteTypes)
      .OptionalInput("B", {DType::kInt32})
      .Output("y")
      .Infer([](InferenceContext& context) {
        return InferConv(context, 0, 3, context.InputType(7).dtype);
      })
      .CostOf(ConvCost(3));
  return AddWindowAttributes(schema);
}
WEFT_REGISTER_OP(QLinearConv());

}  // namespace
}  // namespace weft
