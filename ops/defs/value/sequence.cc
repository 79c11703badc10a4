// Sequences and optionals, and their gradients: that of a sequence is a sequence of gradients.
//
// ai.weft::SequenceSpread(element, like, position) has zeros like the elements of the sequence
// `like`, but `element` at the position; ai.weft::SequenceSplit(whole, like) cuts `whole` along the
// attribute axis into pieces as long as the elements of `like`; ai.weft::SequenceSum adds sequences
// (or optionals) element by element.
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "graph/graph_builder.h"
#include "graph/op_schema.h"
#include "ops/defs/movement/shape_dims.h"
#include "ops/defs/rules/gradients.h"
#include "ops/defs/rules/rules.h"
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

// ---- Gradients.

ValueId PositionOf(GraphBuilder& b, int64_t position) {
  return b.Constant(Tensor::Scalar<int64_t>(position));
}

absl::Status SequenceConstructGradient(GradientContext& context) {
  const ValueId dy = context.OutputGradient(0);
  if (!dy.valid()) return absl::OkStatus();
  GraphBuilder& b = context.builder();
  for (int i = 0; i < static_cast<int>(context.node().inputs.size()); ++i) {
    if (!context.NeedsInputGradient(i)) continue;
    context.SetInputGradient(i, b.Op("SequenceAt", {dy, PositionOf(b, i)}));
  }
  return b.status();
}

absl::Status SequenceAtGradient(GradientContext& context) {
  const ValueId dy = context.OutputGradient(0);
  if (!dy.valid() || !context.NeedsInputGradient(0)) return absl::OkStatus();
  context.SetInputGradient(
      0, context.builder().WeftOp("SequenceSpread", {dy, context.Input(0), context.Input(1)}));
  return context.builder().status();
}

// Where the node inserts or erases, counted from the front of its input sequence; `fallback` past
// its length without a position.
ValueId FrontPosition(GradientContext& context, int input, int64_t fallback) {
  GraphBuilder& b = context.builder();
  const ValueId length = b.Op("SequenceLength", {context.Input(0)});
  if (!context.Input(input).valid()) return b.Op("Add", {length, PositionOf(b, fallback)});
  const ValueId given =
      b.Op("Reshape", {AsDType(b, context.Input(input), DType::kInt64), b.Ints({})});
  const ValueId behind = b.Op("Less", {given, PositionOf(b, 0)});
  return b.Op("Where", {behind, b.Op("Add", {given, length}), given});
}

absl::Status SequenceInsertGradient(GradientContext& context) {
  const ValueId dy = context.OutputGradient(0);
  if (!dy.valid()) return absl::OkStatus();
  GraphBuilder& b = context.builder();
  const ValueId position = FrontPosition(context, 2, 0);
  if (context.NeedsInputGradient(0)) {
    context.SetInputGradient(0, b.Op("SequenceErase", {dy, position}));
  }
  if (context.NeedsInputGradient(1)) {
    context.SetInputGradient(1, b.Op("SequenceAt", {dy, position}));
  }
  return b.status();
}

absl::Status SequenceEraseGradient(GradientContext& context) {
  const ValueId dy = context.OutputGradient(0);
  if (!dy.valid() || !context.NeedsInputGradient(0)) return absl::OkStatus();
  GraphBuilder& b = context.builder();
  const ValueId position = FrontPosition(context, 1, -1);
  const ValueId erased = b.Op("SequenceAt", {context.Input(0), position});
  const ValueId zeros = FilledLike(b, erased, b.type(context.Input(0)).dtype, 0);
  context.SetInputGradient(0, b.Op("SequenceInsert", {dy, zeros, position}));
  return b.status();
}

absl::Status SplitToSequenceGradient(GradientContext& context) {
  const ValueId dy = context.OutputGradient(0);
  if (!dy.valid() || !context.NeedsInputGradient(0)) return absl::OkStatus();
  const Attributes& attributes = context.node().attributes;
  const bool drops = !context.Input(1).valid() && attributes.Int("keepdims", 1) == 0;
  int64_t axis = attributes.Int("axis", 0);
  if (axis < 0) {
    WEFT_ASSIGN_OR_RETURN(const int rank, RankForGradient(context, context.Input(0)));
    axis += rank;
  }
  context.SetInputGradient(
      0, context.builder().Op("ConcatFromSequence", {dy},
                              {{"axis", axis}, {"new_axis", static_cast<int64_t>(drops)}}));
  return context.builder().status();
}

absl::Status ConcatFromSequenceGradient(GradientContext& context) {
  const ValueId dy = context.OutputGradient(0);
  if (!dy.valid() || !context.NeedsInputGradient(0)) return absl::OkStatus();
  GraphBuilder& b = context.builder();
  const Attributes& attributes = context.node().attributes;
  const int64_t axis = attributes.Int("axis", 0);
  if (attributes.Int("new_axis", 0) != 0) {
    context.SetInputGradient(
        0, b.Op("SplitToSequence", {dy}, {{"axis", axis}, {"keepdims", int64_t{0}}}));
  } else {
    context.SetInputGradient(0,
                             b.WeftOp("SequenceSplit", {dy, context.Input(0)}, {{"axis", axis}}));
  }
  return b.status();
}

// The type of a sequence operand.
InferFn InferLike(int input) {
  return [input](InferenceContext& context) {
    context.SetOutput(0, context.InputType(input));
    return absl::OkStatus();
  };
}

WEFT_REGISTER_OP(OpSchema::Weft("SequenceSpread")
                     .GradientMissing("part of a gradient")
                     .Input("element")
                     .Input("like")
                     .AnyKind()
                     .Input("position", kIndexTypes)
                     .Output("sequence")
                     .Infer(InferLike(1)));
WEFT_REGISTER_OP(OpSchema::Weft("SequenceSplit")
                     .GradientMissing("part of a gradient")
                     .Input("whole")
                     .Input("like")
                     .AnyKind()
                     .Output("sequence")
                     .Attr("axis", AttributeType::kInt)
                     .Infer(InferLike(1)));
WEFT_REGISTER_OP(OpSchema::Weft("SequenceSum")
                     .GradientMissing("part of a gradient")
                     .VariadicInput("sequences")
                     .AnyKind()
                     .Output("sum")
                     .Infer(InferLike(0)));

WEFT_REGISTER_OP(OpSchema::Onnx("SequenceConstruct")
                     .VariadicInput("inputs")
                     .Output("output_sequence")
                     .Infer(InferSequenceConstruct)
                     .Gradient(SequenceConstructGradient));
WEFT_REGISTER_OP(OpSchema::Onnx("SequenceEmpty")
                     .Output("output")
                     .Attr("dtype", AttributeType::kInt)
                     .Infer(InferSequenceEmpty)
                     .NoGradient("made of sizes, positions or attributes alone"));
WEFT_REGISTER_OP(OpSchema::Onnx("SequenceAt")
                     .Input("input_sequence")
                     .AnyKind()
                     .Input("position", kIndexTypes)
                     .Output("tensor")
                     .Infer(InferSequenceAt)
                     .Gradient(SequenceAtGradient));
WEFT_REGISTER_OP(OpSchema::Onnx("SequenceInsert")
                     .Input("input_sequence")
                     .AnyKind()
                     .Input("tensor")
                     .OptionalInput("position", kIndexTypes)
                     .Output("output_sequence")
                     .Infer(InferSequenceInsert)
                     .Gradient(SequenceInsertGradient));
WEFT_REGISTER_OP(OpSchema::Onnx("SequenceErase")
                     .Input("input_sequence")
                     .AnyKind()
                     .OptionalInput("position", kIndexTypes)
                     .Output("output_sequence")
                     .Infer(InferSequenceErase)
                     .Gradient(SequenceEraseGradient));
WEFT_REGISTER_OP(OpSchema::Onnx("SequenceLength")
                     .Input("input_sequence")
                     .AnyKind()
                     .Output("length")
                     .Infer(InferSequenceLength)
                     .NoGradient("positions and counts"));
WEFT_REGISTER_OP(OpSchema::Onnx("SplitToSequence")
                     .Input("input")
                     .OptionalInput("split", kIndexTypes)
                     .Output("output_sequence")
                     .Attr("axis", AttributeType::kInt)
                     .Attr("keepdims", AttributeType::kInt)
                     .Infer(InferSplitToSequence)
                     .Gradient(SplitToSequenceGradient));
WEFT_REGISTER_OP(OpSchema::Onnx("ConcatFromSequence")
                     .Input("input_sequence")
                     .AnyKind()
                     .Output("concat_result")
                     .Attr("axis", AttributeType::kInt, /*required=*/true)
                     .Attr("new_axis", AttributeType::kInt)
                     .Infer(InferConcatFromSequence)
                     .Gradient(ConcatFromSequenceGradient));

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

absl::Status OptionalGradient(GradientContext& context) {
  const ValueId dy = context.OutputGradient(0);
  if (!dy.valid() || !context.Input(0).valid() || !context.NeedsInputGradient(0)) {
    return absl::OkStatus();
  }
  context.SetInputGradient(0, context.builder().Op("OptionalGetElement", {dy}));
  return context.builder().status();
}

absl::Status OptionalGetElementGradient(GradientContext& context) {
  const ValueId dy = context.OutputGradient(0);
  if (!dy.valid() || !context.NeedsInputGradient(0)) return absl::OkStatus();
  GraphBuilder& b = context.builder();
  const bool optional = b.type(context.Input(0)).kind == ValueKind::kOptional;
  context.SetInputGradient(0, optional ? b.Op("Optional", {dy}) : dy);
  return b.status();
}

WEFT_REGISTER_OP(OpSchema::Onnx("Optional")
                     .OptionalInput("input")
                     .AnyKind()
                     .Output("output")
                     .Attr("weft.encoded.type", AttributeType::kString)
                     .Infer(InferOptional)
                     .Gradient(OptionalGradient));
WEFT_REGISTER_OP(OpSchema::Onnx("OptionalHasElement")
                     .OptionalInput("input")
                     .AnyKind()
                     .Output("output")
                     .Infer(InferOptionalHasElement)
                     .NoGradient("truth values"));
WEFT_REGISTER_OP(OpSchema::Onnx("OptionalGetElement")
                     .Input("input")
                     .AnyKind()
                     .Output("output")
                     .Infer(InferOptionalGetElement)
                     .Gradient(OptionalGetElementGradient));

}  // namespace
}  // namespace weft
