// GridSample and AffineGrid.
#include <optional>
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

absl::Status CheckModes(const InferenceContext& context) {
  const std::string mode = context.attributes().String("mode", "linear");
  if (mode != "linear" && mode != "nearest" && mode != "cubic") {
    return context.Error(
        absl::StrCat("attribute 'mode' is '", mode, "', expected linear, nearest or cubic"));
  }
  const std::string padding = context.attributes().String("padding_mode", "zeros");
  if (padding == "zeros" || padding == "border" || padding == "reflection") return absl::OkStatus();
  return context.Error(absl::StrCat("attribute 'padding_mode' is '", padding,
                                    "', expected zeros, border or reflection"));
}

// X [batch, channels, image...], grid [batch, output image..., image axes].
absl::Status InferGridSample(InferenceContext& context) {
  WEFT_RETURN_IF_ERROR(CheckModes(context));
  const SymbolicShape& x = context.InputShape(0);
  const SymbolicShape& grid = context.InputShape(1);
  const DType dtype = context.InputType(0).dtype;
  if (!x.has_rank() && !grid.has_rank()) {
    context.SetOutput(0, dtype, SymbolicShape());
    return absl::OkStatus();
  }
  const int rank = x.has_rank() ? x.rank() : grid.rank();
  Dims y = UnknownDims(rank);
  const bool fits = rank >= 3 && (!x.has_rank() || !grid.has_rank() || x.rank() == grid.rank()) &&
                    (!grid.has_rank() || MergeDims(grid.dim(rank - 1), Dim(rank - 2)).has_value());
  const std::optional<Dim> batch = x.has_rank() && grid.has_rank() && fits
                                       ? MergeDims(x.dim(0), grid.dim(0))
                                       : std::optional<Dim>(Dim());
  if (!fits || !batch.has_value()) {
    return context.Error(absl::StrCat("X has shape ", x.ToString(), " and grid ", grid.ToString(),
                                      ", expected [batch, channels, image...] and [batch, output "
                                      "image..., number of image axes]"));
  }
  y[0] = *batch;
  if (x.has_rank()) y[1] = x.dim(1);
  for (int i = 2; grid.has_rank() && i < rank; ++i) y[i] = grid.dim(i - 1);
  return SetCheckedOutput(context, dtype, std::move(y));
}

// theta [batch, axes, axes + 1], size [batch, channels, image...].
absl::Status InferAffineGrid(InferenceContext& context) {
  const SymbolicShape& theta = context.InputShape(0);
  const DType dtype = context.InputType(0).dtype;
  WEFT_ASSIGN_OR_RETURN(const std::optional<Dims> size, TargetDims(context, 1));
  int axes = -1;
  if (size.has_value()) axes = static_cast<int>(size->size()) - 2;
  if (theta.has_rank() && theta.rank() == 3 && theta.dim(1).is_known()) {
    axes = static_cast<int>(theta.dim(1).size());
  }
  if (axes < 0) {
    context.SetOutput(0, dtype, SymbolicShape());
    return absl::OkStatus();
  }
  const bool fits =
      (axes == 2 || axes == 3) &&
      (!size.has_value() || static_cast<int>(size->size()) == axes + 2) &&
      (!theta.has_rank() || (theta.rank() == 3 && MergeDims(theta.dim(1), Dim(axes)).has_value() &&
                             MergeDims(theta.dim(2), Dim(axes + 1)).has_value()));
  if (!fits) {
    return context.Error(absl::StrCat("theta has shape ", theta.ToString(),
                                      ", expected [batch, 2, 3] for a size of 4 values or "
                                      "[batch, 3, 4] for one of 5"));
  }
  Dims grid = UnknownDims(axes + 2);
  if (theta.has_rank()) grid[0] = theta.dim(0);
  if (size.has_value()) {
    const std::optional<Dim> batch = MergeDims((*size)[0], grid[0]);
    if (!batch.has_value()) return context.Error("theta and size differ in the batch");
    grid[0] = *batch;
    for (int i = 0; i < axes; ++i) grid[i + 1] = (*size)[i + 2];
  }
  grid[axes + 1] = Dim(axes);
  return SetCheckedOutput(context, dtype, std::move(grid));
}

absl::Status GridSampleGradient(GradientContext& context) {
  const ValueId dy = context.OutputGradient(0);
  if (!dy.valid()) return absl::OkStatus();
  const std::vector<bool> wanted = {context.NeedsInputGradient(0), context.NeedsInputGradient(1)};
  const std::vector<ValueId> gradients = context.builder().Ops(
      std::string(kWeftDomain), "GridSampleGrad", {dy, context.Input(0), context.Input(1)},
      context.node().attributes, wanted);
  WEFT_RETURN_IF_ERROR(context.builder().status());
  for (int i = 0; i < 2; ++i) {
    if (wanted[i]) context.SetInputGradient(i, gradients[i]);
  }
  return absl::OkStatus();
}

absl::Status InferGridSampleGrad(InferenceContext& context) {
  for (int i = 0; i < 2; ++i) {
    if (context.HasOutput(i)) context.SetOutput(i, context.InputType(i + 1));
  }
  return absl::OkStatus();
}

// The grid is theta times the points of the unmoved grid and a one: dtheta = dgrid^T (points, 1).
absl::Status AffineGridGradient(GradientContext& context) {
  const ValueId dy = context.OutputGradient(0);
  if (!dy.valid() || !context.NeedsInputGradient(0)) return absl::OkStatus();
  WEFT_ASSIGN_OR_RETURN(const int rank, RankForGradient(context, dy));
  if (rank < 4) return absl::InvalidArgumentError("a grid has 4 axes or 5");
  GraphBuilder& g = context.builder();
  const int64_t axes = rank - 2;
  const DType dtype = g.type(dy).dtype;
  std::vector<float> identity;
  for (int64_t i = 0; i < axes; ++i) {
    for (int64_t k = 0; k <= axes; ++k) identity.push_back(i == k ? 1.0f : 0.0f);
  }
  const ValueId theta =
      AsDType(g, g.Constant(Tensor::Of<float>(Shape{1, axes, axes + 1}, identity)), dtype);
  const ValueId image = g.Op("Slice", {context.Input(1), g.Ints({1}), g.Ints({axes + 2})});
  const ValueId size = g.Op("Concat", {g.Ints({1}), image}, {{"axis", int64_t{0}}});
  const ValueId grid = g.Op("AffineGrid", {theta, size}, context.node().attributes);
  const ValueId points = g.Op("Reshape", {grid, g.Ints({-1, axes})});
  const ValueId one = g.Op("Pad", {points, g.Ints({0, 0, 0, 1}), g.Scalar(dtype, 1)});
  const ValueId rows = g.Op("Reshape", {dy, g.Ints({0, -1, axes})});
  const ValueId columns = g.Op("Transpose", {rows}, {{"perm", std::vector<int64_t>{0, 2, 1}}});
  context.SetInputGradient(0, g.Op("MatMul", {columns, one}));
  return g.status();
}

Cost GridSampleCost(const NodeView& view) {
  return {10.0 * static_cast<double>(view.OutputShape(0).num_elements()), OperandBytes(view)};
}

}  // namespace

WEFT_REGISTER_OP(OpSchema::Onnx("GridSample")
                     .Input("X", kRealTypes)
                     .Input("grid", kFloatTypes)
                     .Output("Y")
                     .Attr("align_corners", AttributeType::kInt)
                     .Attr("mode", AttributeType::kString)
                     .Attr("padding_mode", AttributeType::kString)
                     .Infer(InferGridSample)
                     .Gradient(GridSampleGradient)
                     .CostOf(GridSampleCost));

WEFT_REGISTER_OP(OpSchema::Weft("GridSampleGrad")
                     .GradientMissing("part of a gradient")
                     .Input("dY", kFloatTypes)
                     .Input("X", kFloatTypes)
                     .Input("grid", kFloatTypes)
                     .OptionalOutput("dX")
                     .OptionalOutput("dgrid")
                     .Attr("align_corners", AttributeType::kInt)
                     .Attr("mode", AttributeType::kString)
                     .Attr("padding_mode", AttributeType::kString)
                     .Infer(InferGridSampleGrad)
                     .CostOf([](const NodeView& view) {
                       return Cost{30.0 * static_cast<double>(view.InputShape(0).num_elements()),
                                   OperandBytes(view)};
                     }));

WEFT_REGISTER_OP(OpSchema::Onnx("AffineGrid")
                     .Input("theta", kFloatTypes)
                     .Input("size", {DType::kInt64})
                     .Output("grid")
                     .Attr("align_corners", AttributeType::kInt)
                     .ValueInputs({1})
                     .Infer(InferAffineGrid)
                     .Gradient(AffineGridGradient)
                     .CostOf(FlopsPerElement(7)));

}  // namespace weft
