// ConstantOfShape and Range: tensors made of a few numbers.
#include <cmath>

#include "absl/strings/str_cat.h"
#include "ops/defs/movement/shape_dims.h"
#include "ops/defs/rules/rules.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

// ---- ConstantOfShape

// Lists longer than this are no shapes.
constexpr int64_t kMaxElementsAsDims = kMaxRank;

// Attribute value; a float32 zero when it is absent.
absl::StatusOr<Tensor> FillValue(const Attributes& attributes) {
  const Attribute* attribute = attributes.Find("value");
  if (attribute == nullptr || !std::holds_alternative<Tensor>(*attribute)) {
    return Tensor::Scalar<float>(0);
  }
  return std::get<Tensor>(*attribute);
}

absl::Status InferConstantOfShape(InferenceContext& context) {
  WEFT_ASSIGN_OR_RETURN(const Tensor value, FillValue(context.attributes()));
  if (value.num_elements() != 1) {
    return context.Error(absl::StrCat("attribute value must have one element; it has shape ",
                                      value.shape().ToString()));
  }
  WEFT_ASSIGN_OR_RETURN(const std::optional<Dims> dims, TargetDims(context, 0));
  if (!dims.has_value()) {
    context.SetOutput(0, value.dtype(), SymbolicShape());
    return absl::OkStatus();
  }
  WEFT_RETURN_IF_ERROR(SetCheckedOutput(context, value.dtype(), *dims));
  const bool is_short_list =
      dims->size() == 1 && (*dims)[0].is_known() && (*dims)[0].size() <= kMaxElementsAsDims;
  if (is_short_list && value.dtype() == DType::kInt64 && value.data<int64_t>()[0] >= 0) {
    context.SetOutputDims(0, Dims((*dims)[0].size(), Dim(value.data<int64_t>()[0])));
  }
  return absl::OkStatus();
}

absl::StatusOr<FactorRule> ConstantOfShapeRule(const NodeView& view) {
  FactorRule rule = EmptyRule(view);
  const Shape& shape = view.OutputShape(0);
  for (int axis = 0; axis < shape.rank(); ++axis) {
    rule.outputs[0].dims[axis] = {AddFactor(rule, shape.dim(axis), FactorKind::kParallel)};
  }
  AddShapeInputs(view, 0, rule);
  return rule;
}

absl::Status LocalizeConstantOfShape(LocalizeContext& context) {
  context.SetConstantInput(0, IntsTensor(DimsOf(context.LocalOutputShape(0))));
  return absl::OkStatus();
}

WEFT_REGISTER_OP(OpSchema::Onnx("ConstantOfShape")
                     .Input("input", {DType::kInt64})
                     .NeverLearnable()
                     .Output("output")
                     .Attr("value", AttributeType::kTensor)
                     .Infer(InferConstantOfShape)
                     .NoGradient("made of sizes, positions or attributes alone")
                     .Sharding(ConstantOfShapeRule)
                     .Localize(LocalizeConstantOfShape)
                     .CostOf(MovementCost)
                     .ValueInputs({0}));

// ---- Range

// max(0, ceil((limit - start) / delta)), as ONNX says.
absl::StatusOr<int64_t> RangeLength(InferenceContext& context) {
  const DType dtype = context.InputType(0).dtype;
  if (IsInteger(dtype)) {
    int64_t bounds[3];
    for (int i = 0; i < 3; ++i) {
      WEFT_ASSIGN_OR_RETURN(const std::vector<int64_t> value, ToInt64s(*context.InputValue(i)));
      bounds[i] = value[0];
    }
    if (bounds[2] == 0) return context.Error("delta is 0");
    const __int128 distance = static_cast<__int128>(bounds[1]) - bounds[0];
    const __int128 delta = bounds[2];
    if (distance == 0 || (distance > 0) != (delta > 0)) return 0;
    const __int128 steps = (distance + delta - (delta > 0 ? 1 : -1)) / delta;
    return static_cast<int64_t>(std::min<__int128>(steps, kMaxDim + 1));
  }
  double bounds[3];
  for (int i = 0; i < 3; ++i) {
    WEFT_ASSIGN_OR_RETURN(const std::vector<double> value, ToDoubles(*context.InputValue(i)));
    bounds[i] = value[0];
  }
  const double steps = std::ceil((bounds[1] - bounds[0]) / bounds[2]);
  if (bounds[2] == 0 || !std::isfinite(steps)) {
    return context.Error(absl::StrCat("no range leads from ", bounds[0], " to ", bounds[1],
                                      " in steps of ", bounds[2]));
  }
  return static_cast<int64_t>(std::clamp(steps, 0.0, static_cast<double>(kMaxDim + 1)));
}

// A range from 0 in steps of 1 up to a symbol is as long as that symbol.
Dim SymbolicRangeLength(InferenceContext& context) {
  const std::optional<Dims> start = context.InputDims(0);
  const std::optional<Dims> limit = context.InputDims(1);
  const std::optional<Dims> delta = context.InputDims(2);
  const bool counts = start.has_value() && delta.has_value() && start->size() == 1 &&
                      delta->size() == 1 && (*start)[0] == Dim(0) && (*delta)[0] == Dim(1);
  return counts && limit.has_value() && limit->size() == 1 ? (*limit)[0] : Dim();
}

absl::Status InferRange(InferenceContext& context) {
  const DType dtype = context.InputType(0).dtype;
  WEFT_RETURN_IF_ERROR(CheckSameDType(context, {0, 1, 2}));
  bool known = true;
  for (int i = 0; i < 3; ++i) {
    const std::optional<Shape> shape = context.InputShape(i).ToConcrete();
    if (shape.has_value() && shape->num_elements() != 1) {
      return context.Error(
          absl::StrCat("input ", i, " must be a scalar; it is ", context.InputType(i).ToString()));
    }
    const Tensor* value = context.InputValue(i);
    known = known && value != nullptr && value->num_elements() == 1;
  }
  if (!known) return SetCheckedOutput(context, dtype, {SymbolicRangeLength(context)});
  WEFT_ASSIGN_OR_RETURN(const int64_t length, RangeLength(context));
  return SetCheckedOutput(context, dtype, {Dim(length)});
}

WEFT_REGISTER_OP(OpSchema::Onnx("Range")
                     .Input("start", kNumericTypes)
                     .NeverLearnable()
                     .Input("limit", kNumericTypes)
                     .NeverLearnable()
                     .Input("delta", kNumericTypes)
                     .NeverLearnable()
                     .Output("output")
                     .Attr("stash_type", AttributeType::kInt)
                     .Infer(InferRange)
                     .NoGradient("made of sizes, positions or attributes alone")
                     .CostOf(MovementCost)
                     .ValueInputs({0, 1, 2}));

}  // namespace
}  // namespace weft
