// Sequences and optionals.
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "graph/op_schema.h"
#include "ops/defs/rules.h"
#include "ops/defs/shape_dims.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

ValueType SequenceOf(DType dtype, SymbolicShape shape) {
  return {ValueKind::kSequence, dtype, std::move(shape)};
}

ValueType ScalarOf(DType dtype) { return {ValueKind::kTensor, dtype, SymbolicShape(Shape{})}; }

absl::Status CheckSequence(const InferenceContext& context, int i) {
  // A type that a file does not give counts as a tensor of an unknown dtype.
  const ValueType& type = context.InputType(i);
  const bool unknown = type.kind == ValueKind::kTensor && type.dtype == DType::kInvalid;
  if (type.kind == ValueKind::kSequence || unknown) return absl::OkStatus();
  return context.Error(absl::StrCat("input ", i, " is ", type.ToString(), ", expected a sequence"));
}

absl::Status InferSequenceConstruct(InferenceContext& context) {
  if (context.num_inputs() == 0) return context.Error("it has no inputs");
  SymbolicShape shape = context.InputShape(0);
  for (int i = 1; i < context.num_inputs(); ++i) shape = CommonShape(shape, context.InputShape(i));
  context.SetOutput(0, SequenceOf(context.InputType(0).dtype, std::move(shape)));
  return absl::OkStatus();
}

absl::Status InferSequenceEmpty(InferenceContext& context) {
  const int64_t dtype = context.attributes().Int("dtype", static_cast<int64_t>(DType::kFloat32));
  if (dtype < 0 || dtype >= kDTypeCount || !IsValidDType(static_cast<int>(dtype))) {
    return context.Error(absl::StrCat("attribute dtype is ", dtype, ", which is no element type"));
  }
  context.SetOutput(0, SequenceOf(static_cast<DType>(dtype), SymbolicShape()));
  return absl::OkStatus();
}

absl::Status InferSequenceAt(InferenceContext& context) {
  WEFT_RETURN_IF_ERROR(CheckSequence(context, 0));
  const ValueType& type = context.InputType(0);
  context.SetOutput(0, type.element == ValueKind::kTensor
                           ? ValueType{ValueKind::kTensor, type.dtype, type.shape}
                           : ValueType{type.element, type.dtype, type.shape});
  return absl::OkStatus();
}

absl::Status InferSequenceInsert(InferenceContext& context) {
  WEFT_RETURN_IF_ERROR(CheckSequence(context, 0));
  ValueType type = context.InputType(0);
  type.kind = ValueKind::kSequence;
  if (type.dtype == DType::kInvalid) type.dtype = context.InputType(1).dtype;
  // An empty sequence knows no shape either.
  type.shape = CommonShape(type.shape, context.InputShape(1));
  context.SetOutput(0, std::move(type));
  return absl::OkStatus();
}

absl::Status InferSequenceErase(InferenceContext& context) {
  WEFT_RETURN_IF_ERROR(CheckSequence(context, 0));
  ValueType type = context.InputType(0);
  type.kind = ValueKind::kSequence;
  context.SetOutput(0, std::move(type));
  return absl::OkStatus();
}

absl::Status InferSequenceLength(InferenceContext& context) {
  WEFT_RETURN_IF_ERROR(CheckSequence(context, 0));
  context.SetOutput(0, ScalarOf(DType::kInt64));
  return absl::OkStatus();
}

absl::Status InferSplitToSequence(InferenceContext& context) {
  const ValueType& input = context.InputType(0);
  SymbolicShape shape;
  if (input.shape.has_rank()) {
    WEFT_ASSIGN_OR_RETURN(const int axis, AxisAttribute(context, "axis", 0, input.shape.rank()));
    std::vector<Dim> dims = input.shape.dims();
    const bool drops = !context.HasInput(1) && context.attributes().Int("keepdims", 1) == 0;
    if (drops) {
      dims.erase(dims.begin() + axis);
    } else {
      dims[axis] = context.HasInput(1) ? Dim() : Dim(1);
    }
    shape = SymbolicShape(std::move(dims));
  }
  context.SetOutput(0, SequenceOf(input.dtype, std::move(shape)));
  return absl::OkStatus();
}

absl::Status InferConcatFromSequence(InferenceContext& context) {
  WEFT_RETURN_IF_ERROR(CheckSequence(context, 0));
  const ValueType& input = context.InputType(0);
  SymbolicShape shape;
  if (input.shape.has_rank()) {
    const bool new_axis = context.attributes().Int("new_axis", 0) != 0;
    std::vector<Dim> dims = input.shape.dims();
    const int rank = input.shape.rank() + (new_axis ? 1 : 0);
    WEFT_ASSIGN_OR_RETURN(const int axis, AxisAttribute(context, "axis", 0, rank));
    if (new_axis) {
      dims.insert(dims.begin() + axis, Dim());
    } else {
      dims[axis] = Dim();
    }
    shape = SymbolicShape(std::move(dims));
  }
  context.SetOutput(0, input.dtype, std::move(shape));
  return absl::OkStatus();
}

WEFT_REGISTER_OP(OpSchema::Onnx("SequenceConstruct")
                     .VariadicInput("inputs")
                     .Output("output_sequence")
                     .Infer(InferSequenceConstruct)
                     .NoGradient());
WEFT_REGISTER_OP(OpSchema::Onnx("SequenceEmpty")
                     .Output("output")
                     .Attr("dtype", AttributeType::kInt)
                     .Infer(InferSequenceEmpty)
                     .NoGradient());
WEFT_REGISTER_OP(OpSchema::Onnx("SequenceAt")
                     .Input("input_sequence")
                     .AnyKind()
                     .Input("position", kIndexTypes)
                     .Output("tensor")
                     .Infer(InferSequenceAt)
                     .NoGradient());
WEFT_REGISTER_OP(OpSchema::Onnx("SequenceInsert")
                     .Input("input_sequence")
                     .AnyKind()
                     .Input("tensor")
                     .OptionalInput("position", kIndexTypes)
                     .Output("output_sequence")
                     .Infer(InferSequenceInsert)
                     .NoGradient());
WEFT_REGISTER_OP(OpSchema::Onnx("SequenceErase")
                     .Input("input_sequence")
                     .AnyKind()
                     .OptionalInput("position", kIndexTypes)
                     .Output("output_sequence")
                     .Infer(InferSequenceErase)
                     .NoGradient());
WEFT_REGISTER_OP(OpSchema::Onnx("SequenceLength")
                     .Input("input_sequence")
                     .AnyKind()
                     .Output("length")
                     .Infer(InferSequenceLength)
                     .NoGradient());
WEFT_REGISTER_OP(OpSchema::Onnx("SplitToSequence")
                     .Input("input")
                     .OptionalInput("split", kIndexTypes)
                     .Output("output_sequence")
                     .Attr("axis", AttributeType::kInt)
                     .Attr("keepdims", AttributeType::kInt)
                     .Infer(InferSplitToSequence)
                     .NoGradient());
WEFT_REGISTER_OP(OpSchema::Onnx("ConcatFromSequence")
                     .Input("input_sequence")
                     .AnyKind()
                     .Output("concat_result")
                     .Attr("axis", AttributeType::kInt, /*required=*/true)
                     .Attr("new_axis", AttributeType::kInt)
                     .Infer(InferConcatFromSequence)
                     .NoGradient());

// ---- Optionals

absl::Status InferOptional(InferenceContext& context) {
  ValueType type;
  if (context.HasInput(0)) {
    type = context.InputType(0);
    type.element = type.kind;
  }
  type.kind = ValueKind::kOptional;
  context.SetOutput(0, std::move(type));
  return absl::OkStatus();
}

absl::Status InferOptionalHasElement(InferenceContext& context) {
  context.SetOutput(0, ScalarOf(DType::kBool));
  return absl::OkStatus();
}

// What is no optional counts as one with an element (operator set 18).
absl::Status InferOptionalGetElement(InferenceContext& context) {
  ValueType type = context.InputType(0);
  if (type.kind == ValueKind::kOptional) {
    type.kind = type.element;
    type.element = ValueKind::kTensor;
  }
  context.SetOutput(0, std::move(type));
  return absl::OkStatus();
}

WEFT_REGISTER_OP(OpSchema::Onnx("Optional")
                     .OptionalInput("input")
                     .AnyKind()
                     .Output("output")
                     .Attr("weft.encoded.type", AttributeType::kString)
                     .Infer(InferOptional)
                     .NoGradient());
WEFT_REGISTER_OP(OpSchema::Onnx("OptionalHasElement")
                     .OptionalInput("input")
                     .AnyKind()
                     .Output("output")
                     .Infer(InferOptionalHasElement)
                     .NoGradient());
WEFT_REGISTER_OP(OpSchema::Onnx("OptionalGetElement")
                     .Input("input")
                     .AnyKind()
                     .Output("output")
                     .Infer(InferOptionalGetElement)
                     .NoGradient());

}  // namespace
}  // namespace weft
