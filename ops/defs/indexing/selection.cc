// Ops whose outputs are as large as the data say: NonZero, Compress, Unique, NonMaxSuppression.
#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "graph/graph_builder.h"
#include "graph/op_schema.h"
#include "ops/defs/rules/gradients.h"
#include "ops/defs/rules/rules.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

SymbolicShape UnknownVector() { return SymbolicShape(std::vector<Dim>{Dim()}); }

absl::Status InferNonZero(InferenceContext& context) {
  const SymbolicShape& input = context.InputShape(0);
  const Dim rank = input.has_rank() ? Dim(input.rank()) : Dim();
  context.SetOutput(0, DType::kInt64, SymbolicShape(std::vector<Dim>{rank, Dim()}));
  return absl::OkStatus();
}

// The type of input 0 with an unknown size on `axis`, or flat when there is no such attribute.
absl::Status InferSelected(InferenceContext& context) {
  const SymbolicShape& input = context.InputShape(0);
  if (!context.attributes().Has("axis")) {
    context.SetOutput(0, context.InputType(0).dtype, UnknownVector());
    return absl::OkStatus();
  }
  if (!input.has_rank()) {
    context.SetOutput(0, context.InputType(0).dtype, SymbolicShape());
    return absl::OkStatus();
  }
  WEFT_ASSIGN_OR_RETURN(const int axis, AxisAttribute(context, "axis", 0, input.rank()));
  std::vector<Dim> dims = input.dims();
  dims[axis] = Dim();
  context.SetOutput(0, context.InputType(0).dtype, SymbolicShape(std::move(dims)));
  return absl::OkStatus();
}

absl::Status InferUnique(InferenceContext& context) {
  WEFT_RETURN_IF_ERROR(InferSelected(context));
  for (int i = 1; i < context.num_outputs(); ++i) {
    context.SetOutput(i, DType::kInt64, UnknownVector());
  }
  return absl::OkStatus();
}

absl::Status InferNonMaxSuppression(InferenceContext& context) {
  for (const int i : {0, 1}) {
    const SymbolicShape& shape = context.InputShape(i);
    if (shape.has_rank() && shape.rank() != 3) {
      return context.Error(
          absl::StrCat("input ", i, " has shape ", shape.ToString(), ", expected 3 dimensions"));
    }
  }
  context.SetOutput(0, DType::kInt64, SymbolicShape(std::vector<Dim>{Dim(), Dim(3)}));
  return absl::OkStatus();
}

// What was selected gets its gradient back, at the places where the condition is true.
absl::Status CompressGradient(GradientContext& context) {
  const ValueId dy = context.OutputGradient(0);
  if (!dy.valid() || !context.NeedsInputGradient(0)) return absl::OkStatus();
  GraphBuilder& b = context.builder();
  const ValueId shape = ShapeOf(b, context.Input(0));
  const ValueId places = b.Op("Squeeze", {b.Op("NonZero", {context.Input(1)}), b.Ints({0})});
  if (context.node().attributes.Has("axis")) {
    context.SetInputGradient(0, b.WeftOp("GatherGrad", {dy, places, shape},
                                         {{"axis", context.node().attributes.Int("axis", 0)}}));
    return b.status();
  }
  const ValueId size = b.Op("Unsqueeze", {b.Op("Size", {context.Input(0)}), b.Ints({0})});
  const ValueId flat = b.WeftOp("GatherGrad", {dy, places, size}, {{"axis", int64_t{0}}});
  context.SetInputGradient(0, b.Op("Reshape", {flat, shape}));
  return b.status();
}

WEFT_REGISTER_OP(OpSchema::Onnx("NonZero")
                     .Input("X")
                     .Output("Y")
                     .Infer(InferNonZero)
                     .NoGradient("positions and counts"));
WEFT_REGISTER_OP(OpSchema::Onnx("Compress")
                     .Input("input")
                     .Input("condition", {DType::kBool})
                     .Output("output")
                     .Attr("axis", AttributeType::kInt)
                     .Infer(InferSelected)
                     .Gradient(CompressGradient));
WEFT_REGISTER_OP(OpSchema::Onnx("Unique")
                     .Input("X")
                     .Output("Y")
                     .OptionalOutput("indices")
                     .OptionalOutput("inverse_indices")
                     .OptionalOutput("counts")
                     .Attr("axis", AttributeType::kInt)
                     .Attr("sorted", AttributeType::kInt)
                     .Infer(InferUnique)
                     .NoGradient("the standard says so"));
WEFT_REGISTER_OP(OpSchema::Onnx("NonMaxSuppression")
                     .Input("boxes", {DType::kFloat32})
                     .Input("scores", {DType::kFloat32})
                     .OptionalInput("max_output_boxes_per_class", {DType::kInt64})
                     .NeverLearnable()
                     .OptionalInput("iou_threshold", {DType::kFloat32})
                     .NeverLearnable()
                     .OptionalInput("score_threshold", {DType::kFloat32})
                     .NeverLearnable()
                     .Output("selected_indices")
                     .Attr("center_point_box", AttributeType::kInt)
                     .Infer(InferNonMaxSuppression)
                     .NoGradient("positions and counts"));

}  // namespace
}  // namespace weft
