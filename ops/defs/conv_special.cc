// DeformConv and CausalConvWithState.
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "graph/op_schema.h"
#include "ops/defs/rules.h"
#include "ops/defs/shape_dims.h"
#include "ops/window.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

// ---- DeformConv.

enum DeformInputs { kX, kW, kOffset, kB, kMask };

bool Fits(const SymbolicShape& shape, const Dims& expected) {
  if (!shape.has_rank()) return true;
  if (shape.rank() != static_cast<int>(expected.size())) return false;
  for (int i = 0; i < shape.rank(); ++i) {
    if (!MergeDims(shape.dim(i), expected[i]).has_value()) return false;
  }
  return true;
}

absl::Status CheckShape(const InferenceContext& context, int input, const char* name,
                        const Dims& expected) {
  if (!context.HasInput(input) || Fits(context.InputShape(input), expected)) {
    return absl::OkStatus();
  }
  return context.Error(absl::StrCat(name, " has shape ", context.InputShape(input).ToString(),
                                    ", expected ", DimsToString(expected)));
}

Dim Times(const Dim& dim, int64_t by) {
  return dim.is_known() && dim.size() <= kMaxDim / by ? Dim(dim.size() * by) : Dim();
}

absl::Status CheckDeformOperands(const InferenceContext& context, const Dims& y,
                                 const std::vector<int64_t>& sizes) {
  const int64_t group = context.attributes().Int("group", 1);
  const int64_t offset_group = context.attributes().Int("offset_group", 1);
  if (group < 1 || offset_group < 1 || group > kMaxDim || offset_group > kMaxDim) {
    return context.Error(
        absl::StrCat("attributes group and offset_group are ", group, " and ", offset_group));
  }
  const SymbolicShape& x = context.InputShape(kX);
  const SymbolicShape& w = context.InputShape(kW);
  const Dim& channels = x.dim(1);
  if (channels.is_known() &&
      (channels.size() % group != 0 || channels.size() % offset_group != 0)) {
    return context.Error(absl::StrCat("the ", channels.size(), " channels of X cannot be divided ",
                                      "into ", group, " groups and ", offset_group,
                                      " offset groups"));
  }
  if (w.has_rank()) {
    Dims expected = {w.rank() > 0 ? w.dim(0) : Dim(),
                     channels.is_known() ? Dim(channels.size() / group) : Dim()};
    for (const int64_t size : sizes) expected.push_back(Dim(size));
    WEFT_RETURN_IF_ERROR(CheckShape(context, kW, "W", expected));
    if (w.dim(0).is_known() && w.dim(0).size() % group != 0) {
      return context.Error(absl::StrCat("the ", w.dim(0).size(), " output channels cannot be ",
                                        "divided into ", group, " groups"));
    }
    WEFT_RETURN_IF_ERROR(CheckShape(context, kB, "B", {w.dim(0)}));
  }
  Dim taps(1);
  for (const int64_t size : sizes) taps = Times(taps, size);
  Dims offset = y;
  offset[1] = Times(Times(taps, static_cast<int64_t>(sizes.size())), offset_group);
  WEFT_RETURN_IF_ERROR(CheckShape(context, kOffset, "offset", offset));
  offset[1] = Times(taps, offset_group);
  return CheckShape(context, kMask, "mask", offset);
}

absl::Status InferDeformConv(InferenceContext& context) {
  std::vector<int> floats = {kX, kW, kOffset};
  if (context.HasInput(kB)) floats.push_back(kB);
  if (context.HasInput(kMask)) floats.push_back(kMask);
  WEFT_RETURN_IF_ERROR(CheckSameDType(context, floats));
  const SymbolicShape& x = context.InputShape(kX);
  const SymbolicShape& w = context.InputShape(kW);
  const DType dtype = context.InputType(kX).dtype;
  if (!x.has_rank()) {
    context.SetOutput(0, dtype, SymbolicShape());
    return absl::OkStatus();
  }
  if (x.rank() < 3 || (w.has_rank() && w.rank() != x.rank())) {
    return context.Error(absl::StrCat("X has shape ", x.ToString(), " and W ", w.ToString(),
                                      ", expected [batch, channels, image...] and [outputs, "
                                      "channels / group, window...]"));
  }
  std::vector<int64_t> sizes = context.attributes().Ints("kernel_shape");
  if (sizes.empty() && w.has_rank()) {
    for (int i = 2; i < w.rank() && w.dim(i).is_known(); ++i) sizes.push_back(w.dim(i).size());
  }
  Dims y = {x.dim(0), w.has_rank() ? w.dim(0) : Dim()};
  if (static_cast<int>(sizes.size()) != x.rank() - 2) {
    y.resize(x.rank());
    return SetCheckedOutput(context, dtype, std::move(y));
  }
  const auto window = WindowSpec::Create(context.attributes(), sizes);
  if (!window.ok()) return context.Error(std::string(window.status().message()));
  for (int i = 2; i < x.rank(); ++i) {
    absl::StatusOr<Dim> dim = window->OutputDim(i - 2, x.dim(i));
    if (!dim.ok()) return context.Error(std::string(dim.status().message()));
    y.push_back(*std::move(dim));
  }
  WEFT_RETURN_IF_ERROR(CheckDeformOperands(context, y, sizes));
  return SetCheckedOutput(context, dtype, std::move(y));
}

// The product with W, and the interpolation of each tap.
Cost DeformConvCost(const NodeView& view) {
  const Shape& w = view.InputShape(kW);
  const Shape& y = view.OutputShape(0);
  const double columns = static_cast<double>(w.ProductOf(1, w.rank()));
  return {2.0 * static_cast<double>(y.num_elements()) * columns +
              8.0 * static_cast<double>(view.InputShape(kOffset).num_elements()),
          OperandBytes(view)};
}

// ---- CausalConvWithState.

absl::Status InferCausalConv(InferenceContext& context) {
  std::vector<int> floats = {0, 1};
  for (int i = 2; i < 4; ++i) {
    if (context.HasInput(i)) floats.push_back(i);
  }
  WEFT_RETURN_IF_ERROR(CheckSameDType(context, floats));
  const std::string activation = context.attributes().String("activation", "none");
  if (activation != "none" && activation != "silu" && activation != "swish") {
    return context.Error(
        absl::StrCat("attribute 'activation' is '", activation, "', expected none, silu or swish"));
  }
  const SymbolicShape& x = context.InputShape(0);
  const SymbolicShape& w = context.InputShape(1);
  WEFT_RETURN_IF_ERROR(CheckShape(context, 0, "input", UnknownDims(3)));
  const Dim batch = x.has_rank() ? x.dim(0) : Dim();
  const Dim channels = x.has_rank() ? x.dim(1) : Dim();
  WEFT_RETURN_IF_ERROR(CheckShape(context, 1, "weight", {channels, Dim(1), Dim()}));
  WEFT_RETURN_IF_ERROR(CheckShape(context, 2, "bias", {channels}));
  Dim past;
  if (w.has_rank() && w.dim(2).is_known()) {
    if (w.dim(2).size() < 1) return context.Error("weight has no elements");
    past = Dim(w.dim(2).size() - 1);
  }
  const Dims state = {batch, channels, past};
  WEFT_RETURN_IF_ERROR(CheckShape(context, 3, "past_state", state));
  context.SetOutput(0, context.InputType(0));
  if (context.HasOutput(1)) {
    context.SetOutput(1, context.InputType(0).dtype, SymbolicShape(state));
  }
  return absl::OkStatus();
}

Cost CausalConvCost(const NodeView& view) {
  return {2.0 * static_cast<double>(view.InputShape(0).num_elements()) *
              static_cast<double>(view.InputShape(1).dim(2)),
          OperandBytes(view)};
}

const std::vector<DType> kCausalTypes = {DType::kFloat32, DType::kFloat16, DType::kBfloat16};

}  // namespace

WEFT_REGISTER_OP(OpSchema::Onnx("DeformConv")
                     .Input("X", kFloatTypes)
                     .Input("W", kFloatTypes)
                     .Learnable()
                     .Input("offset", kFloatTypes)
                     .OptionalInput("B", kFloatTypes)
                     .Learnable()
                     .OptionalInput("mask", kFloatTypes)
                     .Output("Y")
                     .Attr("dilations", AttributeType::kInts)
                     .Attr("group", AttributeType::kInt)
                     .Attr("kernel_shape", AttributeType::kInts)
                     .Attr("offset_group", AttributeType::kInt)
                     .Attr("pads", AttributeType::kInts)
                     .Attr("strides", AttributeType::kInts)
                     .Infer(InferDeformConv)
                     .CostOf(DeformConvCost));

WEFT_REGISTER_OP(OpSchema::Onnx("CausalConvWithState")
                     .Input("input", kCausalTypes)
                     .Input("weight", kCausalTypes)
                     .Learnable()
                     .OptionalInput("bias", kCausalTypes)
                     .Learnable()
                     .OptionalInput("past_state", kCausalTypes)
                     .NeverLearnable()
                     .Output("output")
                     .OptionalOutput("present_state")
                     .Attr("activation", AttributeType::kString)
                     .Infer(InferCausalConv)
                     .CostOf(CausalConvCost));

}  // namespace weft
