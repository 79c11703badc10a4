// The quantized operators of the domain com.microsoft, which optimized exports carry: each is its
// floating counterpart between DequantizeLinear and QuantizeLinear.
#include "absl/strings/str_cat.h"
#include "graph/graph_builder.h"
#include "ops/defs/microsoft/microsoft_rules.h"
#include "ops/defs/movement/shape_dims.h"
#include "ops/defs/quantized/quantized.h"
#include "ops/defs/rules/rules.h"
#include "ops/defs/rules/type_lists.h"
#include "ops/window.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

OpSchema Microsoft(std::string name) {
  return OpSchema(kMicrosoftDomain, std::move(name)).NoGradient("whole numbers");
}

std::vector<ValueId> WithoutTail(std::vector<ValueId> inputs) {
  while (!inputs.empty() && !inputs.back().valid()) inputs.pop_back();
  return inputs;
}

// Inputs `first`, `first` + 1 and `first` + 2 are codes, scale and zero point.
ValueId Dequantized(ExpandContext& context, int first) {
  return context.builder().Op(
      "DequantizeLinear",
      WithoutTail({InputOf(context.node(), first), InputOf(context.node(), first + 1),
                   InputOf(context.node(), first + 2)}));
}

// `value` in codes of the type of input 0; scale and zero point are inputs `first` and `first` + 1.
absl::StatusOr<std::vector<ValueId>> Quantized(ExpandContext& context, ValueId value, int first) {
  GraphBuilder& b = context.builder();
  const ValueId zero = InputOf(context.node(), first + 1);
  Attributes attributes;
  if (!zero.valid()) {
    attributes.Set("output_dtype", static_cast<int64_t>(b.type(InputOf(context.node(), 0)).dtype));
  }
  const ValueId codes = b.Op(
      "QuantizeLinear", WithoutTail({value, InputOf(context.node(), first), zero}), attributes);
  WEFT_RETURN_IF_ERROR(b.status());
  return std::vector<ValueId>{codes};
}

// ---- Two operands.

absl::Status InferTwo(InferenceContext& context) {
  WEFT_ASSIGN_OR_RETURN(SymbolicShape shape, BroadcastInputs(context, {0, 3}));
  context.SetOutput(0, context.InputType(0).dtype, std::move(shape));
  return absl::OkStatus();
}

OpSchema Two(const std::string& name, const std::string& op) {
  return Microsoft(name)
      .Input("A", kByteTypes)
      .Input("A_scale", {DType::kFloat32})
      .OptionalInput("A_zero_point", kByteTypes)
      .Input("B", kByteTypes)
      .Input("B_scale", {DType::kFloat32})
      .OptionalInput("B_zero_point", kByteTypes)
      .Input("C_scale", {DType::kFloat32})
      .OptionalInput("C_zero_point", kByteTypes)
      .Output("C")
      .Infer(InferTwo)
      .Expand([op](ExpandContext& context) {
        const ValueId a = Dequantized(context, 0);
        const ValueId b = Dequantized(context, 3);
        return Quantized(context, context.builder().Op(op, {a, b}), 6);
      });
}
WEFT_REGISTER_OP(Two("QLinearAdd", "Add"));
WEFT_REGISTER_OP(Two("QLinearMul", "Mul"));

// ---- One operand.

// `kept`: the attributes that the floating op has, too.
OpSchema One(const std::string& name, const std::string& op, std::vector<std::string> kept) {
  return Microsoft(name)
      .Input("X", kByteTypes)
      .Input("X_scale", {DType::kFloat32})
      .OptionalInput("X_zero_point", kByteTypes)
      .Input("Y_scale", {DType::kFloat32})
      .OptionalInput("Y_zero_point", kByteTypes)
      .Output("Y")
      .Infer(InferLikeFirstInput)
      .Expand([op, kept = std::move(kept)](ExpandContext& context) {
        Attributes attributes;
        for (const std::string& attribute : kept) {
          const Attribute* value = context.node().attributes.Find(attribute);
          if (value != nullptr) attributes.Set(attribute, *value);
        }
        const ValueId x = Dequantized(context, 0);
        return Quantized(context, context.builder().Op(op, {x}, std::move(attributes)), 3);
      });
}
WEFT_REGISTER_OP(One("QLinearSigmoid", "Sigmoid", {}));
WEFT_REGISTER_OP(
    One("QLinearLeakyRelu", "LeakyRelu", {"alpha"}).Attr("alpha", AttributeType::kFloat));
WEFT_REGISTER_OP(One("QLinearSoftmax", "Softmax", {"axis"})
                     .Attr("axis", AttributeType::kInt)
                     .Attr("opset", AttributeType::kInt));

absl::Status RefuseChannelsLast(const InferenceContext& context) {
  if (context.attributes().Int("channels_last", 0) == 0) return absl::OkStatus();
  return context.Error("attribute channels_last is 1; only [batch, channels, image...] is known");
}

absl::Status InferGlobalPool(InferenceContext& context) {
  WEFT_RETURN_IF_ERROR(RefuseChannelsLast(context));
  const SymbolicShape& x = context.InputShape(0);
  SymbolicShape y;
  if (x.has_rank()) {
    if (x.rank() < 2) return context.Error("X has no channels");
    Dims dims(x.rank(), Dim(1));
    dims[0] = x.dim(0);
    dims[1] = x.dim(1);
    y = SymbolicShape(std::move(dims));
  }
  context.SetOutput(0, context.InputType(0).dtype, std::move(y));
  return absl::OkStatus();
}
WEFT_REGISTER_OP(One("QLinearGlobalAveragePool", "GlobalAveragePool", {})
                     .Attr("channels_last", AttributeType::kInt)
                     .Infer(InferGlobalPool));

absl::Status InferAveragePool(InferenceContext& context) {
  WEFT_RETURN_IF_ERROR(RefuseChannelsLast(context));
  const SymbolicShape& x = context.InputShape(0);
  const std::vector<int64_t> kernel = context.attributes().Ints("kernel_shape");
  SymbolicShape y;
  if (x.has_rank()) {
    if (x.rank() != static_cast<int>(kernel.size()) + 2) {
      return context.Error(absl::StrCat("X is ", x.ToString(), ", and attribute kernel_shape has ",
                                        kernel.size(), " values"));
    }
    const absl::StatusOr<WindowSpec> window = WindowSpec::Create(context.attributes(), kernel);
    if (!window.ok()) return context.Error(std::string(window.status().message()));
    Dims dims = {x.dim(0), x.dim(1)};
    for (int d = 2; d < x.rank(); ++d) {
      const absl::StatusOr<Dim> dim = window->OutputDim(d - 2, x.dim(d));
      if (!dim.ok()) return context.Error(std::string(dim.status().message()));
      dims.push_back(*dim);
    }
    y = SymbolicShape(std::move(dims));
  }
  context.SetOutput(0, context.InputType(0).dtype, std::move(y));
  return absl::OkStatus();
}
WEFT_REGISTER_OP(One("QLinearAveragePool", "AveragePool",
                     {"auto_pad", "ceil_mode", "count_include_pad", "kernel_shape", "pads",
                      "strides"})
                     .Attr("auto_pad", AttributeType::kString)
                     .Attr("ceil_mode", AttributeType::kInt)
                     .Attr("channels_last", AttributeType::kInt)
                     .Attr("count_include_pad", AttributeType::kInt)
                     .Attr("kernel_shape", AttributeType::kInts, /*required=*/true)
                     .Attr("pads", AttributeType::kInts)
                     .Attr("strides", AttributeType::kInts)
                     .Infer(InferAveragePool));

// ---- QLinearConcat(Y_scale, Y_zero_point, then codes, scale and zero point of each operand).

absl::Status InferConcat(InferenceContext& context) {
  if (context.num_inputs() < 5 || context.num_inputs() % 3 != 2) {
    return context.Error(absl::StrCat("there are ", context.num_inputs(),
                                      " inputs, expected two and three for each operand"));
  }
  const SymbolicShape& first = context.InputShape(2);
  const DType dtype = context.InputType(1).dtype;
  if (!first.has_rank()) {
    context.SetOutput(0, dtype, SymbolicShape());
    return absl::OkStatus();
  }
  WEFT_ASSIGN_OR_RETURN(const int axis, AxisAttribute(context, "axis", 0, first.rank()));
  Dims sizes;
  for (int i = 2; i < context.num_inputs(); i += 3) {
    const SymbolicShape& shape = context.InputShape(i);
    if (shape.has_rank() && shape.rank() != first.rank()) {
      return context.Error("the operands have different ranks");
    }
    sizes.push_back(shape.has_rank() ? shape.dim(axis) : Dim());
  }
  Dims dims = first.dims();
  dims[axis] = SumOfDims(sizes);
  context.SetOutput(0, dtype, SymbolicShape(std::move(dims)));
  return absl::OkStatus();
}

WEFT_REGISTER_OP(
    Microsoft("QLinearConcat")
        .Input("Y_scale", {DType::kFloat32})
        .Input("Y_zero_point", kByteTypes)
        .VariadicInput("inputs")
        .Output("Y")
        .Attr("axis", AttributeType::kInt, /*required=*/true)
        .Infer(InferConcat)
        .Expand([](ExpandContext& context) {
          std::vector<ValueId> parts;
          for (size_t i = 2; i + 2 < context.node().inputs.size(); i += 3) {
            parts.push_back(Dequantized(context, static_cast<int>(i)));
          }
          const int64_t axis = context.node().attributes.Int("axis", 0);
          return Quantized(context, context.builder().Op("Concat", parts, {{"axis", axis}}), 0);
        }));

// ---- Products with float results.

absl::Status InferProduct(InferenceContext& context) {
  WEFT_ASSIGN_OR_RETURN(SymbolicShape shape, MatMulShape(context, 0, 1));
  context.SetOutput(0, DType::kFloat32, std::move(shape));
  return absl::OkStatus();
}

// (a - a_zero) (b - b_zero) a_scale b_scale + bias
absl::StatusOr<std::vector<ValueId>> ScaledProduct(ExpandContext& context,
                                                   std::vector<ValueId> factors, ValueId a_scale,
                                                   ValueId b_scale, ValueId bias) {
  GraphBuilder& b = context.builder();
  const ValueId sums = b.Op("MatMulInteger", WithoutTail(std::move(factors)));
  const ValueId floats = b.Op("Cast", {sums}, {{"to", static_cast<int64_t>(DType::kFloat32)}});
  ValueId y = b.Op("Mul", {floats, b.Op("Mul", {a_scale, b_scale})});
  if (bias.valid()) y = b.Op("Add", {y, bias});
  WEFT_RETURN_IF_ERROR(b.status());
  return std::vector<ValueId>{y};
}

WEFT_REGISTER_OP(Microsoft("MatMulIntegerToFloat")
                     .Input("A", kByteTypes)
                     .Input("B", kByteTypes)
                     .Input("a_scale", {DType::kFloat32})
                     .Input("b_scale", {DType::kFloat32})
                     .OptionalInput("a_zero_point", kByteTypes)
                     .OptionalInput("b_zero_point", kByteTypes)
                     .OptionalInput("bias", {DType::kFloat32})
                     .Output("Y")
                     .Infer(InferProduct)
                     .Expand([](ExpandContext& context) {
                       return ScaledProduct(
                           context,
                           {InputOf(context.node(), 0), InputOf(context.node(), 1),
                            InputOf(context.node(), 4), InputOf(context.node(), 5)},
                           InputOf(context.node(), 2), InputOf(context.node(), 3),
                           InputOf(context.node(), 6));
                     }));

WEFT_REGISTER_OP(Microsoft("DynamicQuantizeMatMul")
                     .Input("A", {DType::kFloat32})
                     .Input("B", kByteTypes)
                     .Input("b_scale", {DType::kFloat32})
                     .OptionalInput("b_zero_point", kByteTypes)
                     .OptionalInput("bias", {DType::kFloat32})
                     .Output("Y")
                     .Infer(InferProduct)
                     .Expand([](ExpandContext& context) {
                       const std::vector<ValueId> a = context.builder().Ops(
                           "", "DynamicQuantizeLinear", {InputOf(context.node(), 0)}, {},
                           {true, true, true});
                       if (a.size() < 3) {
                         return absl::StatusOr<std::vector<ValueId>>(context.builder().status());
                       }
                       return ScaledProduct(
                           context,
                           {a[0], InputOf(context.node(), 1), a[2], InputOf(context.node(), 3)},
                           a[1], InputOf(context.node(), 2), InputOf(context.node(), 4));
                     }));

}  // namespace
}  // namespace weft
