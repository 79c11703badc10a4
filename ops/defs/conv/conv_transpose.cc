// ConvTranspose: the gradient of a convolution with respect to its input, as an op of its own.
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "graph/graph_builder.h"
#include "graph/op_schema.h"
#include "ops/defs/conv/transposed_window.h"
#include "ops/defs/movement/shape_dims.h"
#include "ops/defs/rules/rules.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

std::optional<std::vector<int64_t>> TransposedKernelSizes(const Attributes& attributes,
                                                          const SymbolicShape& weights) {
  if (weights.has_rank()) {
    std::vector<int64_t> sizes;
    for (int i = 2; i < weights.rank() && weights.dim(i).is_known(); ++i) {
      sizes.push_back(weights.dim(i).size());
    }
    if (static_cast<int>(sizes.size()) == weights.rank() - 2) return sizes;
  }
  if (attributes.Has("kernel_shape")) return attributes.Ints("kernel_shape");
  return std::nullopt;
}

absl::Status CheckOperands(const InferenceContext& context, int64_t group) {
  const SymbolicShape& x = context.InputShape(0);
  const SymbolicShape& w = context.InputShape(1);
  if (group < 1) return context.Error(absl::StrCat("attribute 'group' is ", group));
  if (w.has_rank() && w.rank() < 3) {
    return context.Error(absl::StrCat("W has shape ", w.ToString(),
                                      ", expected [channels, outputs / group, window...]"));
  }
  if (w.has_rank() && w.dim(1).is_known() && w.dim(1).size() > kMaxDim / group) {
    return context.Error(absl::StrCat(group, " groups of ", w.dim(1).size(), " channels"));
  }
  if (!x.has_rank()) return absl::OkStatus();
  if (x.rank() < 3 || (w.has_rank() && w.rank() != x.rank())) {
    return context.Error(absl::StrCat("X has shape ", x.ToString(), " and W ", w.ToString(),
                                      ", expected [batch, channels, image...] and [channels, "
                                      "outputs / group, window...]"));
  }
  if (x.dim(1).is_known() && x.dim(1).size() % group != 0) {
    return context.Error(absl::StrCat("the ", x.dim(1).size(),
                                      " channels of X cannot be divided into ", group, " groups"));
  }
  if (w.has_rank() && !MergeDims(x.dim(1), w.dim(0)).has_value()) {
    return context.Error(absl::StrCat("X of shape ", x.ToString(), " and W of shape ", w.ToString(),
                                      " differ in the number of channels"));
  }
  return absl::OkStatus();
}

absl::Status CheckTransposedBias(const InferenceContext& context, const Dim& channels) {
  if (!context.HasInput(2) || !context.InputShape(2).has_rank()) return absl::OkStatus();
  const SymbolicShape& b = context.InputShape(2);
  if (b.rank() == 1 && MergeDims(b.dim(0), channels).has_value()) return absl::OkStatus();
  return context.Error(absl::StrCat("B has shape ", b.ToString(),
                                    ", expected one value for each of ", channels.ToString(),
                                    " channels of Y"));
}

// The sizes of Y's image axes; an axis of X that is not known leaves Y's unknown.
absl::StatusOr<Dims> ImageDims(const InferenceContext& context, const SymbolicShape& x,
                               const std::vector<int64_t>& sizes) {
  if (static_cast<int>(sizes.size()) != x.rank() - 2) {
    return context.Error(
        absl::StrCat("the window has ", sizes.size(), " axes, X has shape ", x.ToString()));
  }
  std::vector<int64_t> image;
  for (int i = 2; i < x.rank(); ++i) image.push_back(x.dim(i).is_known() ? x.dim(i).size() : 64);
  const auto axes = TransposedWindows(context.attributes(), sizes, image);
  if (!axes.ok()) return context.Error(std::string(axes.status().message()));
  const bool fixed = context.attributes().Has("output_shape");
  Dims dims;
  for (int i = 2; i < x.rank(); ++i) {
    const WindowAxis& axis = (*axes)[i - 2];
    if (x.dim(i).is_known() || fixed) {
      dims.push_back(Dim(axis.input));
    } else {
      // With a stride of one, the size may stay whatever it is.
      dims.push_back(axis.stride == 1 && axis.input == axis.output ? x.dim(i) : Dim());
    }
  }
  return dims;
}

absl::Status InferConvTranspose(InferenceContext& context) {
  WEFT_RETURN_IF_ERROR(CheckSameDType(
      context, context.HasInput(2) ? std::vector<int>{0, 1, 2} : std::vector<int>{0, 1}));
  const SymbolicShape& x = context.InputShape(0);
  const SymbolicShape& w = context.InputShape(1);
  const DType dtype = context.InputType(0).dtype;
  const int64_t group = context.attributes().Int("group", 1);
  WEFT_RETURN_IF_ERROR(CheckOperands(context, group));
  Dim channels;
  if (w.has_rank() && w.dim(1).is_known()) channels = Dim(w.dim(1).size() * group);
  WEFT_RETURN_IF_ERROR(CheckTransposedBias(context, channels));
  if (!x.has_rank()) {
    context.SetOutput(0, dtype, SymbolicShape());
    return absl::OkStatus();
  }
  Dims y = {x.dim(0), channels};
  const auto sizes = TransposedKernelSizes(context.attributes(), w);
  if (sizes.has_value()) {
    WEFT_ASSIGN_OR_RETURN(const Dims image, ImageDims(context, x, *sizes));
    y.insert(y.end(), image.begin(), image.end());
  } else {
    y.resize(x.rank());
  }
  return SetCheckedOutput(context, dtype, std::move(y));
}

// Y is dX of the convolution with the same W and padding, whose own rules give the gradients.
absl::Status ConvTransposeGradient(GradientContext& context) {
  const ValueId dy = context.OutputGradient(0);
  if (!dy.valid()) return absl::OkStatus();
  GraphBuilder& g = context.builder();
  Attributes attributes = context.node().attributes;
  const std::string auto_pad = attributes.String("auto_pad", "NOTSET");
  const auto sizes = TransposedKernelSizes(attributes, g.type(context.Input(1)).shape);
  const bool explicit_pads = auto_pad == "NOTSET" || auto_pad == "VALID" || auto_pad.empty();
  if (!explicit_pads || attributes.Has("output_shape") || !sizes.has_value()) {
    return absl::UnimplementedError(
        absl::StrCat("node '", context.node().name,
                     "': ConvTranspose has a gradient for explicit pads and known windows only"));
  }
  attributes.Erase("output_padding");
  attributes.Set("kernel_shape", *sizes);
  if (context.NeedsInputGradient(0)) {
    context.SetInputGradient(0, g.Op("Conv", {dy, context.Input(1)}, attributes));
  }
  if (context.NeedsInputGradient(1)) {
    context.SetInputGradient(1, g.WeftOp("ConvGradWeights", {dy, context.Input(0)}, attributes));
  }
  if (context.Input(2).valid() && context.NeedsInputGradient(2)) {
    std::vector<int64_t> axes = {0};
    for (size_t i = 0; i < sizes->size(); ++i) axes.push_back(static_cast<int64_t>(i) + 2);
    context.SetInputGradient(2, g.Op("ReduceSum", {dy, g.Ints(axes)}, {{"keepdims", int64_t{0}}}));
  }
  return g.status();
}

// Two per element of X, output channel of its group and element of the window.
Cost ConvTransposeCost(const NodeView& view) {
  const Shape& w = view.InputShape(1);
  return {2.0 * static_cast<double>(view.InputShape(0).num_elements()) *
              static_cast<double>(w.ProductOf(1, w.rank())),
          OperandBytes(view)};
}

// X[n, (g c), image], W[(g c), m, window], Y[n, (g m), image]. With B present the input channels
// cannot be split: every shard would add B.
absl::StatusOr<FactorRule> ConvTransposeRule(const NodeView& view) {
  const Shape& x = view.InputShape(0);
  const Shape& w = view.InputShape(1);
  const int64_t group = view.attributes().Int("group", 1);
  const bool bias = view.HasInput(2);
  FactorRuleBuilder rule;
  const int n = rule.Factor(x.dim(0));
  const int g = rule.Factor(group);
  const int c = rule.Factor(x.dim(1) / group, bias ? FactorKind::kWhole : FactorKind::kSum);
  const int m = rule.Factor(w.dim(1));
  const auto with_axes = [&](const Shape& shape, FactorKind kind,
                             std::vector<std::vector<int>> dims) {
    for (int i = 2; i < shape.rank(); ++i) dims.push_back({rule.Factor(shape.dim(i), kind)});
    return dims;
  };
  rule.FactoredInput(with_axes(x, FactorKind::kWindow, {{n}, {g, c}}));
  rule.FactoredInput(with_axes(w, FactorKind::kWhole, {{g, c}, {m}}));
  if (bias) {
    rule.FactoredInput({{g, m}});
  } else if (view.num_inputs() > 2) {
    rule.FactoredInput({});
  }
  rule.FactoredOutput(with_axes(view.OutputShape(0), FactorKind::kWindow, {{n}, {g, m}}));
  if (bias) return rule.Linear({{0, 2}, {1, 2}}).Build();
  return rule.Linear({{0}, {1}}).Build();
}

// A shard that has some of the groups says how many.
absl::Status LocalizeConvTranspose(LocalizeContext& context) {
  const int64_t outputs_of_group = context.LocalInputShape(1).dim(1);
  if (context.node().attributes.Int("group", 1) == 1 || outputs_of_group == 0) {
    return absl::OkStatus();
  }
  context.SetAttribute("group", context.LocalOutputShape(0).dim(1) / outputs_of_group);
  return absl::OkStatus();
}

}  // namespace

WEFT_REGISTER_OP(OpSchema::Onnx("ConvTranspose")
                     .Input("X", kFloatTypes)
                     .Input("W", kFloatTypes)
                     .Learnable()
                     .OptionalInput("B", kFloatTypes)
                     .Learnable()
                     .Output("Y")
                     .Attr("auto_pad", AttributeType::kString)
                     .Attr("dilations", AttributeType::kInts)
                     .Attr("group", AttributeType::kInt)
                     .Attr("kernel_shape", AttributeType::kInts)
                     .Attr("output_padding", AttributeType::kInts)
                     .Attr("output_shape", AttributeType::kInts)
                     .Attr("pads", AttributeType::kInts)
                     .Attr("strides", AttributeType::kInts)
                     .Infer(InferConvTranspose)
                     .Gradient(ConvTransposeGradient)
                     .Sharding(ConvTransposeRule)
                     .Localize(LocalizeConvTranspose)
                     .CostOf(ConvTransposeCost));

}  // namespace weft
