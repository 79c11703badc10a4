// Conv and its gradients.
//
// ai.weft::ConvGradInput(dY, W, shape of X) -> dX and ai.weft::ConvGradWeights(X, dY) -> dW, and
// optionally dB, take the attributes of the Conv they belong to; kernel_shape is always there.
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "graph/graph_builder.h"
#include "graph/op_schema.h"
#include "ops/defs/rules/gradients.h"
#include "ops/defs/rules/rules.h"
#include "ops/window.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

// ---- Shapes.

// The window's sizes: the attribute, or the weights' image axes when they are known.
std::optional<std::vector<int64_t>> KernelSizes(const Attributes& attributes,
                                                const SymbolicShape* weights) {
  if (attributes.Has("kernel_shape")) return attributes.Ints("kernel_shape");
  if (weights == nullptr || !weights->has_rank()) return std::nullopt;
  std::vector<int64_t> sizes;
  for (int i = 2; i < weights->rank(); ++i) {
    if (!weights->dim(i).is_known()) return std::nullopt;
    sizes.push_back(weights->dim(i).size());
  }
  return sizes;
}

absl::Status CheckRanks(const InferenceContext& context, const SymbolicShape& x,
                        const SymbolicShape& w) {
  if (x.has_rank() && x.rank() < 3) {
    return context.Error(
        absl::StrCat("X has shape ", x.ToString(), ", expected [batch, channels, image...]"));
  }
  if (x.has_rank() && w.has_rank() && x.rank() != w.rank()) {
    return context.Error(absl::StrCat("X of shape ", x.ToString(), " and W of shape ", w.ToString(),
                                      " must have the same rank"));
  }
  if (w.has_rank() && w.rank() < 3) {
    return context.Error(absl::StrCat("W has shape ", w.ToString(),
                                      ", expected [outputs, channels / group, window...]"));
  }
  return absl::OkStatus();
}

absl::Status CheckChannels(const InferenceContext& context, const Dim& x_channels,
                           const SymbolicShape& w) {
  const int64_t group = context.attributes().Int("group", 1);
  if (group < 1) return context.Error(absl::StrCat("attribute 'group' is ", group));
  if (!w.has_rank()) return absl::OkStatus();
  if (w.dim(0).is_known() && w.dim(0).size() % group != 0) {
    return context.Error(absl::StrCat(
        "the ", w.dim(0).size(), " output channels cannot be divided into ", group, " groups"));
  }
  if (x_channels.is_known() && w.dim(1).is_known() &&
      (w.dim(1).size() > kMaxDim / group || x_channels.size() != w.dim(1).size() * group)) {
    return context.Error(absl::StrCat("X has ", x_channels.size(), " channels, W of shape ",
                                      w.ToString(), " expects ", w.dim(1).size(), " in each of ",
                                      group, " groups"));
  }
  return absl::OkStatus();
}

absl::Status CheckKernelSizes(const InferenceContext& context, const SymbolicShape& w,
                              const std::vector<int64_t>& sizes) {
  if (!w.has_rank()) return absl::OkStatus();
  bool fits = static_cast<int>(sizes.size()) == w.rank() - 2;
  for (int i = 2; fits && i < w.rank(); ++i) {
    fits = !w.dim(i).is_known() || w.dim(i).size() == sizes[i - 2];
  }
  if (fits) return absl::OkStatus();
  return context.Error(
      absl::StrCat("attribute 'kernel_shape' does not fit W of shape ", w.ToString()));
}

absl::Status CheckBias(const InferenceContext& context, const SymbolicShape& w) {
  if (!context.HasInput(2) || !context.InputShape(2).has_rank()) return absl::OkStatus();
  const SymbolicShape& b = context.InputShape(2);
  const bool fits = b.rank() == 1 && (!b.dim(0).is_known() || !w.has_rank() ||
                                      !w.dim(0).is_known() || b.dim(0).size() == w.dim(0).size());
  if (fits) return absl::OkStatus();
  return context.Error(absl::StrCat("B has shape ", b.ToString(),
                                    ", expected one value per output channel of W ", w.ToString()));
}

absl::Status InferConv(InferenceContext& context) {
  WEFT_RETURN_IF_ERROR(CheckSameDType(
      context, context.HasInput(2) ? std::vector<int>{0, 1, 2} : std::vector<int>{0, 1}));
  const SymbolicShape& x = context.InputShape(0);
  const SymbolicShape& w = context.InputShape(1);
  const DType dtype = context.InputType(0).dtype;
  WEFT_RETURN_IF_ERROR(CheckRanks(context, x, w));
  WEFT_RETURN_IF_ERROR(CheckChannels(context, x.has_rank() ? x.dim(1) : Dim(), w));
  WEFT_RETURN_IF_ERROR(CheckBias(context, w));
  if (!x.has_rank()) {
    context.SetOutput(0, dtype, SymbolicShape());
    return absl::OkStatus();
  }
  std::vector<Dim> y = {x.dim(0), w.has_rank() ? w.dim(0) : Dim()};
  y.resize(x.rank());
  const auto sizes = KernelSizes(context.attributes(), &w);
  if (sizes.has_value()) {
    WEFT_RETURN_IF_ERROR(CheckKernelSizes(context, w, *sizes));
    if (static_cast<int>(sizes->size()) != x.rank() - 2) {
      return context.Error(absl::StrCat("attribute 'kernel_shape' has ", sizes->size(),
                                        " values, X has shape ", x.ToString()));
    }
    const absl::StatusOr<WindowSpec> window = WindowSpec::Create(context.attributes(), *sizes);
    if (!window.ok()) return context.Error(std::string(window.status().message()));
    for (int i = 2; i < x.rank(); ++i) {
      absl::StatusOr<Dim> dim = window->OutputDim(i - 2, x.dim(i));
      if (!dim.ok()) return context.Error(std::string(dim.status().message()));
      y[i] = *std::move(dim);
    }
  }
  context.SetOutput(0, dtype, SymbolicShape(std::move(y)));
  return absl::OkStatus();
}

absl::Status InferConvGradInput(InferenceContext& context) {
  WEFT_RETURN_IF_ERROR(CheckSameDType(context, {0, 1}));
  const SymbolicShape& dy = context.InputShape(0);
  const SymbolicShape& w = context.InputShape(1);
  WEFT_RETURN_IF_ERROR(CheckRanks(context, dy, w));
  SymbolicShape dx;
  if (std::optional<std::vector<Dim>> dims = context.InputDims(2)) {
    dx = SymbolicShape(*std::move(dims));
  } else if (dy.has_rank()) {
    std::vector<Dim> dims(dy.rank());
    dims[0] = dy.dim(0);
    dx = SymbolicShape(std::move(dims));
  }
  if (dx.has_rank()) {
    WEFT_RETURN_IF_ERROR(CheckRanks(context, dx, w));
    WEFT_RETURN_IF_ERROR(CheckChannels(context, dx.dim(1), w));
  }
  context.SetOutput(0, context.InputType(0).dtype, std::move(dx));
  return absl::OkStatus();
}

absl::Status InferConvGradWeights(InferenceContext& context) {
  WEFT_RETURN_IF_ERROR(CheckSameDType(context, {0, 1}));
  const SymbolicShape& x = context.InputShape(0);
  const SymbolicShape& dy = context.InputShape(1);
  const DType dtype = context.InputType(0).dtype;
  WEFT_RETURN_IF_ERROR(CheckRanks(context, x, dy));
  const int64_t group = context.attributes().Int("group", 1);
  if (group < 1) return context.Error(absl::StrCat("attribute 'group' is ", group));
  const Dim outputs = dy.has_rank() ? dy.dim(1) : Dim();
  Dim inputs;
  if (x.has_rank() && x.dim(1).is_known()) {
    if (x.dim(1).size() % group != 0) {
      return context.Error(absl::StrCat(
          "the ", x.dim(1).size(), " channels of X cannot be divided into ", group, " groups"));
    }
    inputs = Dim(x.dim(1).size() / group);
  }
  std::vector<Dim> dw = {outputs, inputs};
  for (const int64_t size : context.attributes().Ints("kernel_shape")) dw.push_back(Dim(size));
  if (x.has_rank() && static_cast<int>(dw.size()) != x.rank()) {
    return context.Error(absl::StrCat("attribute 'kernel_shape' has ", dw.size() - 2,
                                      " values, X has shape ", x.ToString()));
  }
  context.SetOutput(0, dtype, SymbolicShape(std::move(dw)));
  if (context.HasOutput(1)) context.SetOutput(1, dtype, SymbolicShape({outputs}));
  return absl::OkStatus();
}

// ---- Gradient.

absl::Status ConvGradient(GradientContext& context) {
  const ValueId dy = context.OutputGradient(0);
  if (!dy.valid()) return absl::OkStatus();
  GraphBuilder& g = context.builder();
  const ValueId x = context.Input(0);
  const ValueId w = context.Input(1);
  Attributes attributes = context.node().attributes;
  const auto sizes = KernelSizes(attributes, &g.type(w).shape);
  if (!sizes.has_value()) {
    return absl::UnimplementedError(absl::StrCat(
        "node '", context.node().name, "': the gradient of Conv needs the shape of its weights '",
        context.graph().value(w).name, "', which shape inference could not find"));
  }
  attributes.Set("kernel_shape", *sizes);
  if (context.NeedsInputGradient(0)) {
    context.SetInputGradient(0, g.WeftOp("ConvGradInput", {dy, w, ShapeOf(g, x)}, attributes));
  }
  const bool bias = context.Input(2).valid() && context.NeedsInputGradient(2);
  if (context.NeedsInputGradient(1)) {
    const std::vector<ValueId> gradients =
        g.Ops(std::string(kWeftDomain), "ConvGradWeights", {x, dy}, attributes, {true, bias});
    WEFT_RETURN_IF_ERROR(g.status());
    context.SetInputGradient(1, gradients[0]);
    if (bias) context.SetInputGradient(2, gradients[1]);
  } else if (bias) {
    std::vector<int64_t> axes = {0};
    for (size_t i = 0; i < sizes->size(); ++i) axes.push_back(static_cast<int64_t>(i) + 2);
    context.SetInputGradient(2, g.Op("ReduceSum", {dy, g.Ints(axes)}, {{"keepdims", int64_t{0}}}));
  }
  return g.status();
}

// ---- Sharding rules. X[n, (g c), image], W[(g m), c, kernel], Y[n, (g m), image].

struct ConvFactors {
  FactorRuleBuilder rule;
  int batch;
  std::vector<int> inputs;   // X's channels: (g c)
  std::vector<int> outputs;  // Y's channels: (g m)
  int inputs_of_group;       // c

  // `x` and `w` are the shapes of the operands with those roles.
  ConvFactors(const Shape& x, const Shape& w, int64_t group, FactorKind n, FactorKind c,
              FactorKind m) {
    batch = rule.Factor(x.dim(0), n);
    inputs_of_group = rule.Factor(w.dim(1), c);
    const int outputs_of_group = rule.Factor(w.dim(0) / group, m);
    if (group > 1) inputs.push_back(rule.Factor(group));
    outputs = inputs;
    inputs.push_back(inputs_of_group);
    outputs.push_back(outputs_of_group);
  }

  std::vector<std::vector<int>> Image(const Shape& shape, const std::vector<int>& channels) {
    std::vector<std::vector<int>> dims = {{batch}, channels};
    AddAxes(shape, FactorKind::kWindow, dims);
    return dims;
  }
  std::vector<std::vector<int>> Weights(const Shape& shape) {
    std::vector<std::vector<int>> dims = {outputs, {inputs_of_group}};
    AddAxes(shape, FactorKind::kWhole, dims);
    return dims;
  }

 private:
  void AddAxes(const Shape& shape, FactorKind kind, std::vector<std::vector<int>>& dims) {
    for (int i = 2; i < shape.rank(); ++i) dims.push_back({rule.Factor(shape.dim(i), kind)});
  }
};

// With B present the input channels cannot be split: every shard would add B.
absl::StatusOr<FactorRule> ConvRule(const NodeView& view) {
  const Shape& x = view.InputShape(0);
  const Shape& w = view.InputShape(1);
  const bool bias = view.HasInput(2);
  ConvFactors factors(x, w, view.attributes().Int("group", 1), FactorKind::kParallel,
                      bias ? FactorKind::kWhole : FactorKind::kSum, FactorKind::kParallel);
  factors.rule.FactoredInput(factors.Image(x, factors.inputs));
  factors.rule.FactoredInput(factors.Weights(w));
  if (bias) {
    factors.rule.FactoredInput({factors.outputs});
  } else if (view.num_inputs() > 2) {
    factors.rule.FactoredInput({});
  }
  factors.rule.FactoredOutput(factors.Image(view.OutputShape(0), factors.outputs));
  if (bias) return factors.rule.Linear({{0, 2}, {1, 2}}).Build();
  return factors.rule.Linear({{0}, {1}}).Build();
}

absl::StatusOr<FactorRule> ConvGradInputRule(const NodeView& view) {
  const Shape& dy = view.InputShape(0);
  const Shape& w = view.InputShape(1);
  ConvFactors factors(dy, w, view.attributes().Int("group", 1), FactorKind::kParallel,
                      FactorKind::kParallel, FactorKind::kSum);
  factors.rule.FactoredInput(factors.Image(dy, factors.outputs));
  factors.rule.FactoredInput(factors.Weights(w));
  factors.rule.ShapeInput(view.InputShape(2));
  factors.rule.FactoredOutput(factors.Image(view.OutputShape(0), factors.inputs));
  return factors.rule.Linear({{0}, {1}}).Build();
}

absl::StatusOr<FactorRule> ConvGradWeightsRule(const NodeView& view) {
  const Shape& x = view.InputShape(0);
  const Shape& dy = view.InputShape(1);
  ConvFactors factors(x, view.OutputShape(0), view.attributes().Int("group", 1), FactorKind::kSum,
                      FactorKind::kParallel, FactorKind::kParallel);
  factors.rule.FactoredInput(factors.Image(x, factors.inputs));
  factors.rule.FactoredInput(factors.Image(dy, factors.outputs));
  factors.rule.FactoredOutput(factors.Weights(view.OutputShape(0)));
  if (view.num_outputs() > 1) {
    std::vector<std::vector<int>> bias;
    if (view.HasOutput(1)) bias = {factors.outputs};
    factors.rule.FactoredOutput(std::move(bias));
  }
  // dB does not depend on X.
  if (view.HasOutput(1)) return factors.rule.Linear({{1}}).Build();
  return factors.rule.Linear({{0}, {1}}).Build();
}

// A shard that has some of the groups says how many.
void LocalizeGroup(LocalizeContext& context, int64_t channels, int64_t channels_of_group) {
  if (context.node().attributes.Int("group", 1) == 1 || channels_of_group == 0) return;
  context.SetAttribute("group", channels / channels_of_group);
}

absl::Status LocalizeConv(LocalizeContext& context) {
  LocalizeGroup(context, context.LocalInputShape(0).dim(1), context.LocalInputShape(1).dim(1));
  return absl::OkStatus();
}

absl::Status LocalizeConvGradInput(LocalizeContext& context) {
  const Shape& dx = context.LocalOutputShape(0);
  LocalizeGroup(context, dx.dim(1), context.LocalInputShape(1).dim(1));
  context.SetConstantInput(2, Tensor::Of<int64_t>({dx.rank()}, dx.dims()));
  return absl::OkStatus();
}

absl::Status LocalizeConvGradWeights(LocalizeContext& context) {
  LocalizeGroup(context, context.LocalInputShape(0).dim(1), context.LocalOutputShape(0).dim(1));
  return absl::OkStatus();
}

// ---- Costs: two per element of Y, input channel of its group and element of the window.

Cost ConvolutionCost(const NodeView& view, const Shape& y, const Shape& w) {
  return {
      2.0 * static_cast<double>(y.num_elements()) * static_cast<double>(w.ProductOf(1, w.rank())),
      OperandBytes(view)};
}

Cost ConvCost(const NodeView& view) {
  return ConvolutionCost(view, view.OutputShape(0), view.InputShape(1));
}
Cost ConvGradInputCost(const NodeView& view) {
  return ConvolutionCost(view, view.InputShape(0), view.InputShape(1));
}
Cost ConvGradWeightsCost(const NodeView& view) {
  return ConvolutionCost(view, view.InputShape(1), view.OutputShape(0));
}

OpSchema WithConvAttributes(OpSchema schema) {
  return schema.Attr("auto_pad", AttributeType::kString)
      .Attr("dilations", AttributeType::kInts)
      .Attr("group", AttributeType::kInt)
      .Attr("kernel_shape", AttributeType::kInts)
      .Attr("pads", AttributeType::kInts)
      .Attr("strides", AttributeType::kInts);
}

}  // namespace

WEFT_REGISTER_OP(WithConvAttributes(OpSchema::Onnx("Conv"))
                     .Input("X", kFloatTypes)
                     .Input("W", kFloatTypes)
                     .Learnable()
                     .OptionalInput("B", kFloatTypes)
                     .Learnable()
                     .Output("Y")
                     .Infer(InferConv)
                     .Gradient(ConvGradient)
                     .Sharding(ConvRule)
                     .Localize(LocalizeConv)
                     .CostOf(ConvCost));

WEFT_REGISTER_OP(
    WithConvAttributes(OpSchema::Weft("ConvGradInput").GradientMissing("part of a gradient"))
        .Input("dY", kFloatTypes)
        .Input("W", kFloatTypes)
        .Input("shape", {DType::kInt64})
        .Output("dX")
        .ValueInputs({2})
        .Infer(InferConvGradInput)
        .Sharding(ConvGradInputRule)
        .Localize(LocalizeConvGradInput)
        .CostOf(ConvGradInputCost));

WEFT_REGISTER_OP(
    WithConvAttributes(OpSchema::Weft("ConvGradWeights").GradientMissing("part of a gradient"))
        .Input("X", kFloatTypes)
        .Input("dY", kFloatTypes)
        .Output("dW")
        .OptionalOutput("dB")
        .Infer(InferConvGradWeights)
        .Sharding(ConvGradWeightsRule)
        .Localize(LocalizeConvGradWeights)
        .CostOf(ConvGradWeightsCost));

}  // namespace weft
