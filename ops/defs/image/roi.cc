// RoiAlign and MaxRoiPool: pools over regions of interest.
#include <string>
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

absl::Status CheckOperands(const InferenceContext& context, int64_t roi_values) {
  const SymbolicShape& x = context.InputShape(0);
  const SymbolicShape& rois = context.InputShape(1);
  if (x.has_rank() && x.rank() != 4) {
    return context.Error(
        absl::StrCat("X has shape ", x.ToString(), ", expected [batch, channels, height, width]"));
  }
  if (!rois.has_rank() ||
      (rois.rank() == 2 && MergeDims(rois.dim(1), Dim(roi_values)).has_value())) {
    return absl::OkStatus();
  }
  return context.Error(
      absl::StrCat("rois has shape ", rois.ToString(), ", expected [regions, ", roi_values, "]"));
}

absl::Status SetRegions(InferenceContext& context, int64_t height, int64_t width) {
  if (height < 1 || width < 1 || height > kMaxDim || width > kMaxDim) {
    return context.Error(absl::StrCat("the output cannot be ", height, " x ", width));
  }
  const SymbolicShape& x = context.InputShape(0);
  const SymbolicShape& rois = context.InputShape(1);
  return SetCheckedOutput(context, context.InputType(0).dtype,
                          {rois.has_rank() ? rois.dim(0) : Dim(), x.has_rank() ? x.dim(1) : Dim(),
                           Dim(height), Dim(width)});
}

absl::Status InferRoiAlign(InferenceContext& context) {
  WEFT_RETURN_IF_ERROR(CheckSameDType(context, {0, 1}));
  WEFT_RETURN_IF_ERROR(CheckOperands(context, 4));
  const Attributes& attributes = context.attributes();
  const std::string mode = attributes.String("mode", "avg");
  if (mode != "avg" && mode != "max") {
    return context.Error(absl::StrCat("attribute 'mode' is '", mode, "', expected avg or max"));
  }
  const std::string pixels = attributes.String("coordinate_transformation_mode", "half_pixel");
  if (pixels != "half_pixel" && pixels != "output_half_pixel") {
    return context.Error(absl::StrCat("attribute 'coordinate_transformation_mode' is '", pixels,
                                      "', expected half_pixel or output_half_pixel"));
  }
  const SymbolicShape& batch = context.InputShape(2);
  const SymbolicShape& rois = context.InputShape(1);
  if (batch.has_rank() &&
      (batch.rank() != 1 ||
       (rois.has_rank() && !MergeDims(batch.dim(0), rois.dim(0)).has_value()))) {
    return context.Error(absl::StrCat("batch_indices has shape ", batch.ToString(),
                                      ", expected one index for each of rois ", rois.ToString()));
  }
  return SetRegions(context, attributes.Int("output_height", 1), attributes.Int("output_width", 1));
}

absl::Status InferMaxRoiPool(InferenceContext& context) {
  WEFT_RETURN_IF_ERROR(CheckSameDType(context, {0, 1}));
  WEFT_RETURN_IF_ERROR(CheckOperands(context, 5));
  const std::vector<int64_t> pooled = context.attributes().Ints("pooled_shape");
  if (pooled.size() != 2) {
    return context.Error(
        absl::StrCat("attribute 'pooled_shape' has ", pooled.size(), " values, expected 2"));
  }
  return SetRegions(context, pooled[0], pooled[1]);
}

absl::Status RoiAlignGradient(GradientContext& context) {
  const ValueId dy = context.OutputGradient(0);
  if (!dy.valid()) return absl::OkStatus();
  const std::vector<bool> wanted = {context.NeedsInputGradient(0), context.NeedsInputGradient(1)};
  const std::vector<ValueId> gradients =
      context.builder().Ops(std::string(kWeftDomain), "RoiAlignGrad",
                            {dy, context.Input(0), context.Input(1), context.Input(2)},
                            context.node().attributes, wanted);
  WEFT_RETURN_IF_ERROR(context.builder().status());
  for (int i = 0; i < 2; ++i) {
    if (wanted[i]) context.SetInputGradient(i, gradients[i]);
  }
  return absl::OkStatus();
}

// The corners of regions are rounded: nothing flows to them.
absl::Status MaxRoiPoolGradient(GradientContext& context) {
  const ValueId dy = context.OutputGradient(0);
  if (!dy.valid() || !context.NeedsInputGradient(0)) return absl::OkStatus();
  context.SetInputGradient(
      0, context.builder().WeftOp("MaxRoiPoolGrad", {dy, context.Input(0), context.Input(1)},
                                  context.node().attributes));
  return context.builder().status();
}

absl::Status InferRoiGrad(InferenceContext& context) {
  WEFT_RETURN_IF_ERROR(CheckSameDType(context, {0, 1, 2}));
  for (int i = 0; i < context.num_outputs(); ++i) {
    if (context.HasOutput(i)) context.SetOutput(i, context.InputType(i + 1));
  }
  return absl::OkStatus();
}

// Operations for each element of dY.
CostFn RoiGradCost(double flops) {
  return [flops](const NodeView& view) {
    return Cost{flops * static_cast<double>(view.InputShape(0).num_elements()), OperandBytes(view)};
  };
}

OpSchema AlignAttributes(OpSchema schema) {
  return schema.Attr("coordinate_transformation_mode", AttributeType::kString)
      .Attr("mode", AttributeType::kString)
      .Attr("output_height", AttributeType::kInt)
      .Attr("output_width", AttributeType::kInt)
      .Attr("sampling_ratio", AttributeType::kInt)
      .Attr("spatial_scale", AttributeType::kFloat);
}

}  // namespace

WEFT_REGISTER_OP(
    AlignAttributes(OpSchema::Weft("RoiAlignGrad").GradientMissing("part of a gradient"))
        .Input("dY", kFloatTypes)
        .Input("X", kFloatTypes)
        .Input("rois", kFloatTypes)
        .Input("batch_indices", {DType::kInt64})
        .OptionalOutput("dX")
        .OptionalOutput("drois")
        .Infer(InferRoiGrad)
        .CostOf(RoiGradCost(64)));

WEFT_REGISTER_OP(OpSchema::Weft("MaxRoiPoolGrad")
                     .GradientMissing("part of a gradient")
                     .Input("dY", kFloatTypes)
                     .Input("X", kFloatTypes)
                     .Input("rois", kFloatTypes)
                     .Output("dX")
                     .Attr("pooled_shape", AttributeType::kInts, true)
                     .Attr("spatial_scale", AttributeType::kFloat)
                     .Infer(InferRoiGrad)
                     .CostOf(RoiGradCost(16)));

WEFT_REGISTER_OP(AlignAttributes(OpSchema::Onnx("RoiAlign"))
                     .Input("X", kFloatTypes)
                     .Input("rois", kFloatTypes)
                     .Input("batch_indices", {DType::kInt64})
                     .Output("Y")
                     .Infer(InferRoiAlign)
                     .Gradient(RoiAlignGradient)
                     .CostOf(FlopsPerElement(32)));

WEFT_REGISTER_OP(OpSchema::Onnx("MaxRoiPool")
                     .Input("X", kFloatTypes)
                     .Input("rois", kFloatTypes)
                     .Output("Y")
                     .Attr("pooled_shape", AttributeType::kInts, true)
                     .Attr("spatial_scale", AttributeType::kFloat)
                     .Infer(InferMaxRoiPool)
                     .Gradient(MaxRoiPoolGradient)
                     .CostOf(FlopsPerElement(16)));

}  // namespace weft
