// ReverseSequence.
#include "absl/strings/str_cat.h"
#include "graph/graph_builder.h"
#include "graph/op_schema.h"
#include "ops/defs/movement/shape_dims.h"
#include "ops/defs/rules/rules.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

absl::Status InferReverseSequence(InferenceContext& context) {
  const SymbolicShape& x = context.InputShape(0);
  const SymbolicShape& lengths = context.InputShape(1);
  if (x.has_rank()) {
    if (x.rank() < 2) {
      return context.Error(
          absl::StrCat("input has shape ", x.ToString(), ", expected a batch and a time axis"));
    }
    WEFT_ASSIGN_OR_RETURN(const int batch, AxisAttribute(context, "batch_axis", 1, x.rank()));
    WEFT_ASSIGN_OR_RETURN(const int time, AxisAttribute(context, "time_axis", 0, x.rank()));
    if (batch == time) {
      return context.Error(absl::StrCat("batch_axis and time_axis are both ", time));
    }
    if (lengths.has_rank() &&
        (lengths.rank() != 1 || !MergeDims(lengths.dim(0), x.dim(batch)).has_value())) {
      return context.Error(absl::StrCat("sequence_lens has shape ", lengths.ToString(),
                                        ", expected one length for each of ",
                                        x.dim(batch).ToString(), " sequences"));
    }
  }
  return InferLikeFirstInput(context);
}

// Reversing again puts everything back.
absl::Status ReverseSequenceGradient(GradientContext& context) {
  const ValueId dy = context.OutputGradient(0);
  if (!dy.valid() || !context.NeedsInputGradient(0)) return absl::OkStatus();
  GraphBuilder& g = context.builder();
  context.SetInputGradient(
      0, g.Op("ReverseSequence", {dy, context.Input(1)}, context.node().attributes));
  return g.status();
}

}  // namespace

WEFT_REGISTER_OP(OpSchema::Onnx("ReverseSequence")
                     .Input("input")
                     .Input("sequence_lens", {DType::kInt64})
                     .Output("Y")
                     .Attr("batch_axis", AttributeType::kInt)
                     .Attr("time_axis", AttributeType::kInt)
                     .Elements(ElementUse::kMoves)
                     .Infer(InferReverseSequence)
                     .Gradient(ReverseSequenceGradient)
                     .CostOf(MovementCost));

}  // namespace weft
