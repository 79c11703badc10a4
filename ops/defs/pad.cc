// Pad and CenterCropPad.
#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "graph/graph_builder.h"
#include "graph/op_schema.h"
#include "ops/defs/pad_widths.h"
#include "ops/defs/rules.h"
#include "ops/defs/shape_dims.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

absl::StatusOr<Dim> PaddedDim(const Dim& dim, const PadWidth& width) {
  if (width.begin + width.end == 0) return dim;
  if (!dim.is_known()) return Dim();
  WEFT_ASSIGN_OR_RETURN(const int64_t size, PaddedSize(dim.size(), width));
  return Dim(size);
}

absl::Status InferPad(InferenceContext& context) {
  if (context.HasInput(2)) WEFT_RETURN_IF_ERROR(CheckSameDType(context, {0, 2}));
  const absl::StatusOr<PadMode> mode =
      ParsePadMode(context.attributes().String("mode", "constant"));
  if (!mode.ok()) return context.Error(std::string(mode.status().message()));
  const DType dtype = context.InputType(0).dtype;
  const SymbolicShape& x = context.InputShape(0);
  if (!x.has_rank()) {
    context.SetOutput(0, dtype, SymbolicShape());
    return absl::OkStatus();
  }
  WEFT_ASSIGN_OR_RETURN(const auto pads, KnownInts(context, 1));
  WEFT_ASSIGN_OR_RETURN(const auto axes, KnownInts(context, 3));
  if (!pads.has_value() || (context.HasInput(3) && !axes.has_value())) {
    context.SetOutput(0, dtype, SymbolicShape(UnknownDims(x.rank())));
    return absl::OkStatus();
  }
  const auto widths = ReadPadWidths(x.rank(), *pads, axes);
  if (!widths.ok()) return context.Error(std::string(widths.status().message()));
  Dims dims;
  for (int i = 0; i < x.rank(); ++i) {
    absl::StatusOr<Dim> dim = PaddedDim(x.dim(i), (*widths)[i]);
    if (!dim.ok()) return context.Error(std::string(dim.status().message()));
    dims.push_back(*std::move(dim));
  }
  return SetCheckedOutput(context, dtype, std::move(dims));
}

// What was added is taken away again.
absl::Status PadGradient(GradientContext& context) {
  const ValueId dy = context.OutputGradient(0);
  if (!dy.valid() || !context.NeedsInputGradient(0)) return absl::OkStatus();
  const std::string mode = context.node().attributes.String("mode", "constant");
  if (mode != "constant") {
    return absl::UnimplementedError(absl::StrCat("node '", context.node().name,
                                                 "': Pad has a gradient in mode constant only, ",
                                                 "this is ", mode));
  }
  GraphBuilder& g = context.builder();
  std::vector<ValueId> inputs = {dy, g.Op("Neg", {context.Input(1)})};
  if (context.Input(3).valid()) {
    inputs.push_back(kNoValue);
    inputs.push_back(context.Input(3));
  }
  context.SetInputGradient(0, g.Op("Pad", std::move(inputs)));
  return g.status();
}

absl::Status InferCenterCropPad(InferenceContext& context) {
  const DType dtype = context.InputType(0).dtype;
  const SymbolicShape& x = context.InputShape(0);
  if (!x.has_rank()) {
    context.SetOutput(0, dtype, SymbolicShape());
    return absl::OkStatus();
  }
  Dims dims = x.dims();
  std::vector<int64_t> axes = context.attributes().Ints("axes");
  if (!context.attributes().Has("axes")) {
    for (int i = 0; i < x.rank(); ++i) axes.push_back(i);
  }
  WEFT_ASSIGN_OR_RETURN(const std::optional<Dims> target, TargetDims(context, 1));
  if (target.has_value() && target->size() != axes.size()) {
    return context.Error(
        absl::StrCat("input 'shape' has ", target->size(), " values for ", axes.size(), " axes"));
  }
  for (size_t i = 0; i < axes.size(); ++i) {
    WEFT_ASSIGN_OR_RETURN(const int axis, AxisOf(context, axes[i], x.rank()));
    dims[axis] = target.has_value() ? (*target)[i] : Dim();
  }
  return SetCheckedOutput(context, dtype, std::move(dims));
}

}  // namespace

WEFT_REGISTER_OP(OpSchema::Onnx("Pad")
                     .Input("data")
                     .Input("pads", {DType::kInt64})
                     .OptionalInput("constant_value")
                     .NeverLearnable()
                     .OptionalInput("axes", kIndexTypes)
                     .Output("output")
                     .Attr("mode", AttributeType::kString)
                     .ValueInputs({1, 3})
                     .Elements(ElementUse::kMoves)
                     .Infer(InferPad)
                     .Gradient(PadGradient)
                     .CostOf(MovementCost));

WEFT_REGISTER_OP(OpSchema::Onnx("CenterCropPad")
                     .Input("input_data")
                     .Input("shape", kIndexTypes)
                     .Output("output_data")
                     .Attr("axes", AttributeType::kInts)
                     .ValueInputs({1})
                     .Elements(ElementUse::kMoves)
                     .Infer(InferCenterCropPad)
                     .CostOf(MovementCost));

}  // namespace weft
