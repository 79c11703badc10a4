// QuantizeLinear, DequantizeLinear, DynamicQuantizeLinear.
#include <vector>

#include "absl/strings/str_cat.h"
#include "graph/graph_builder.h"
#include "ops/defs/movement/shape_dims.h"
#include "ops/defs/rules/gradients.h"
#include "ops/defs/rules/rules.h"
#include "ops/defs/rules/type_lists.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

std::string Name(DType dtype) { return std::string(DTypeName(dtype)); }

// The scale is one element, one per index of `axis`, or, with `block_size`, one per block along it.
absl::Status CheckScale(InferenceContext& context) {
  const std::optional<Shape> x = context.InputShape(0).ToConcrete();
  const std::optional<Shape> scale = context.InputShape(1).ToConcrete();
  if (context.HasInput(2)) {
    const std::optional<Shape> zero = context.InputShape(2).ToConcrete();
    if (scale.has_value() && zero.has_value() && zero->num_elements() != scale->num_elements()) {
      return context.Error(absl::StrCat("the zero point has the shape ", zero->ToString(),
                                        ", the scale ", scale->ToString()));
    }
  }
  if (!x.has_value() || !scale.has_value() || scale->num_elements() == 1) return absl::OkStatus();
  WEFT_ASSIGN_OR_RETURN(const int axis, AxisAttribute(context, "axis", 1, x->rank()));
  const int64_t block = context.attributes().Int("block_size", 0);
  if (block < 0) return context.Error(absl::StrCat("attribute block_size is ", block));
  Shape expected{x->dim(axis)};
  if (block > 0) {
    expected = *x;
    expected.set_dim(axis, x->dim(axis) / block + (x->dim(axis) % block != 0 ? 1 : 0));
  }
  if (*scale == expected) return absl::OkStatus();
  return context.Error(absl::StrCat("the scale has the shape ", scale->ToString(), ", expected ",
                                    expected.ToString(), " or one element for an input ",
                                    x->ToString(), " with axis ", axis, " and block_size ", block));
}

// The attribute output_dtype: one of `allowed`, or 0 for none.
absl::StatusOr<DType> OutputDType(const InferenceContext& context,
                                  std::initializer_list<DType> allowed) {
  const int64_t given = context.attributes().Int("output_dtype", 0);
  if (given == 0) return DType::kInvalid;
  for (const DType dtype : allowed) {
    if (given == static_cast<int64_t>(dtype)) return dtype;
  }
  return context.Error(
      absl::StrCat("attribute output_dtype is ", given, ", which the op cannot make"));
}

absl::Status InferQuantize(InferenceContext& context) {
  WEFT_RETURN_IF_ERROR(CheckScale(context));
  WEFT_ASSIGN_OR_RETURN(DType dtype, OutputDType(context, kQuantizedTypes));
  if (context.HasInput(2)) {
    const DType zero = context.InputType(2).dtype;
    if (dtype != DType::kInvalid && zero != DType::kInvalid && dtype != zero) {
      return context.Error(absl::StrCat("attribute output_dtype says ", Name(dtype),
                                        ", but the zero point is ", Name(zero)));
    }
    dtype = zero;
  } else if (dtype == DType::kInvalid) {
    dtype = DType::kUint8;
  }
  context.SetOutput(0, dtype, context.InputShape(0));
  return absl::OkStatus();
}

absl::Status InferDequantize(InferenceContext& context) {
  WEFT_RETURN_IF_ERROR(CheckScale(context));
  if (context.HasInput(2)) WEFT_RETURN_IF_ERROR(CheckSameDType(context, {0, 2}));
  WEFT_ASSIGN_OR_RETURN(DType dtype,
                        OutputDType(context, {DType::kFloat32, DType::kFloat16, DType::kBfloat16}));
  if (dtype == DType::kInvalid) dtype = context.InputType(1).dtype;
  if (dtype == DType::kFloat8E8M0) dtype = DType::kFloat32;
  context.SetOutput(0, dtype, context.InputShape(0));
  return absl::OkStatus();
}

WEFT_REGISTER_OP(OpSchema::Onnx("QuantizeLinear")
                     .Input("x",
                            {DType::kFloat32, DType::kFloat16, DType::kBfloat16, DType::kInt32})
                     .Input("y_scale", {DType::kFloat32, DType::kFloat16, DType::kBfloat16,
                                        DType::kInt32, DType::kFloat8E8M0})
                     .NeverLearnable()
                     .OptionalInput("y_zero_point", kQuantizedTypes)
                     .NeverLearnable()
                     .Output("y")
                     .Attr("axis", AttributeType::kInt)
                     .Attr("block_size", AttributeType::kInt)
                     .Attr("output_dtype", AttributeType::kInt)
                     .Attr("precision", AttributeType::kInt)
                     .Attr("saturate", AttributeType::kInt)
                     .Infer(InferQuantize)
                     .NoGradient("whole numbers")
                     .CostOf(FlopsPerElement(4)));

// The scale's: the sum of dy (x - zero point) over what each element of it scales. The quantized
// numbers themselves are whole.
absl::Status DequantizeGradient(GradientContext& context) {
  const ValueId dy = context.OutputGradient(0);
  if (!dy.valid() || !context.NeedsInputGradient(1)) return absl::OkStatus();
  const ValueId scale = context.Input(1);
  const Attributes& attributes = context.node().attributes;
  if (attributes.Int("block_size", 0) != 0) {
    return RefuseInputGradient(context, 1, "the scales of blocks");
  }
  WEFT_ASSIGN_OR_RETURN(const int rank, RankForGradient(context, dy));
  WEFT_ASSIGN_OR_RETURN(const int scale_rank, RankForGradient(context, scale));
  GraphBuilder& b = context.builder();
  const DType dtype = b.type(scale).dtype;
  std::vector<ValueId> inputs = {context.Input(0), FilledLike(b, scale, dtype, 1)};
  if (context.Input(2).valid()) inputs.push_back(context.Input(2));
  Attributes own = attributes;
  own.Set("output_dtype", static_cast<int64_t>(dtype));
  const ValueId offsets = b.Op("DequantizeLinear", std::move(inputs), std::move(own));
  std::vector<int64_t> axes;
  WEFT_ASSIGN_OR_RETURN(const int axis,
                        scale_rank == 0 ? 0 : NormalizeAxis(attributes.Int("axis", 1), rank));
  for (int i = 0; i < rank; ++i) {
    if (scale_rank == 0 || i != axis) axes.push_back(i);
  }
  ValueId gradient = b.Op("Mul", {AsDType(b, dy, dtype), offsets});
  if (!axes.empty()) {
    gradient = b.Op("ReduceSum", {gradient, b.Ints(axes)}, {{"keepdims", int64_t{0}}});
  }
  context.SetInputGradient(1, SumToLike(b, gradient, scale));
  return b.status();
}

// Every element stands alone; scales and zero points lie over them. Of a blocked axis whole blocks
// may be split, if all of them are whole. Codes of less than a byte cannot be cut.
absl::StatusOr<FactorRule> DequantizeRule(const NodeView& view) {
  const Shape& x = view.InputShape(0);
  const Shape& scale = view.InputShape(1);
  if (DTypeBits(view.InputDType(0)) < 8) return WholeRuleOf(view);
  FactorRuleBuilder rule;
  std::vector<std::vector<int>> whole, scales;
  const bool is_one = scale.num_elements() == 1;
  const int axis = is_one ? -1 : ConcreteAxis(view, "axis", 1, x.rank());
  const int64_t block = is_one ? 0 : view.attributes().Int("block_size", 0);
  for (int i = 0; i < x.rank(); ++i) {
    if (i != axis || block == 0) {
      whole.push_back({rule.Factor(x.dim(i))});
      scales.push_back(whole.back());
    } else if (x.dim(i) % block == 0) {
      const int blocks = rule.Factor(x.dim(i) / block);
      whole.push_back({blocks, rule.Factor(block, FactorKind::kWhole)});
      scales.push_back({blocks});
    } else {
      whole.push_back({rule.Factor(x.dim(i), FactorKind::kWhole)});
      scales.push_back({rule.Factor(scale.dim(i), FactorKind::kWhole)});
    }
  }
  if (block == 0 && !is_one) scales = {scales[static_cast<size_t>(axis)]};
  rule.FactoredInput(whole);
  for (int i = 1; i < view.num_inputs(); ++i) {
    if (!view.HasInput(i)) {
      rule.FactoredInput({});
    } else if (is_one) {
      rule.ReplicatedInput(view.InputShape(i));
    } else {
      rule.FactoredInput(scales);
    }
  }
  return rule.FactoredOutput(whole).Build();
}

WEFT_REGISTER_OP(OpSchema::Onnx("DequantizeLinear")
                     .Input("x", kQuantizedTypes)
                     .Input("x_scale", {DType::kFloat32, DType::kFloat16, DType::kBfloat16,
                                        DType::kFloat8E8M0})
                     .NeverLearnable()
                     .OptionalInput("x_zero_point", kQuantizedTypes)
                     .NeverLearnable()
                     .Output("y")
                     .Attr("axis", AttributeType::kInt)
                     .Attr("block_size", AttributeType::kInt)
                     .Attr("output_dtype", AttributeType::kInt)
                     .Infer(InferDequantize)
                     .Sharding(DequantizeRule)
                     .Gradient(DequantizeGradient)
                     .CostOf(FlopsPerElement(2)));

absl::Status InferDynamicQuantize(InferenceContext& context) {
  context.SetOutput(0, DType::kUint8, context.InputShape(0));
  context.SetOutput(1, DType::kFloat32, SymbolicShape(Shape{}));
  context.SetOutput(2, DType::kUint8, SymbolicShape(Shape{}));
  return absl::OkStatus();
}
WEFT_REGISTER_OP(OpSchema::Onnx("DynamicQuantizeLinear")
                     .Input("x", {DType::kFloat32})
                     .Output("y")
                     .Output("y_scale")
                     .Output("y_zero_point")
                     .Infer(InferDynamicQuantize)
                     .NoGradient("whole numbers")
                     .CostOf(FlopsPerElement(6)));

}  // namespace
}  // namespace weft
