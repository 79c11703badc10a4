// Normalizations over images and rows that have no running statistics: InstanceNormalization,
// GroupNormalization, MeanVarianceNormalization, LpNormalization and LRN.
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "graph/graph_builder.h"
#include "graph/op_schema.h"
#include "ops/defs/elementwise/elementwise.h"
#include "ops/defs/movement/shape_dims.h"
#include "ops/defs/rules/gradients.h"
#include "ops/defs/rules/rules.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

// ---- Shapes.

absl::Status CheckChannels(const InferenceContext& context, const SymbolicShape& x, int min_rank) {
  if (!x.has_rank() || x.rank() >= min_rank) return absl::OkStatus();
  return context.Error(
      absl::StrCat("X has shape ", x.ToString(), ", expected [batch, channels, ...]"));
}

// Inputs 1 and 2 hold one value per channel, or per group when `groups` is not zero.
absl::Status CheckScaleAndBias(const InferenceContext& context, const SymbolicShape& x,
                               int64_t groups) {
  for (int i = 1; i < 3; ++i) {
    const SymbolicShape& shape = context.InputShape(i);
    if (!shape.has_rank()) continue;
    const bool per_channel =
        shape.rank() == 1 && (!x.has_rank() || MergeDims(shape.dim(0), x.dim(1)).has_value());
    const bool per_group =
        shape.rank() == 1 && groups > 0 && MergeDims(shape.dim(0), Dim(groups)).has_value();
    if (per_channel || per_group) continue;
    return context.Error(absl::StrCat("input ", i, " has shape ", shape.ToString(),
                                      ", expected one value per channel of X ", x.ToString()));
  }
  return absl::OkStatus();
}

absl::Status InferInstanceNormalization(InferenceContext& context) {
  WEFT_RETURN_IF_ERROR(CheckSameDType(context, {0, 1, 2}));
  const SymbolicShape& x = context.InputShape(0);
  WEFT_RETURN_IF_ERROR(CheckChannels(context, x, 3));
  WEFT_RETURN_IF_ERROR(CheckScaleAndBias(context, x, 0));
  return InferLikeFirstInput(context);
}

// Before operator set 21 scale and bias had one value per group, which is taken, too: importing
// cannot repeat them while the number of channels is not known.
absl::Status InferGroupNormalization(InferenceContext& context) {
  WEFT_RETURN_IF_ERROR(CheckSameDType(context, {0, 1, 2}));
  const SymbolicShape& x = context.InputShape(0);
  WEFT_RETURN_IF_ERROR(CheckChannels(context, x, 2));
  const int64_t groups = context.attributes().Int("num_groups", 0);
  if (groups < 1) return context.Error(absl::StrCat("attribute 'num_groups' is ", groups));
  if (x.has_rank() && x.dim(1).is_known() && x.dim(1).size() % groups != 0) {
    return context.Error(absl::StrCat("the ", x.dim(1).size(), " channels of X cannot be divided ",
                                      "into ", groups, " groups"));
  }
  WEFT_RETURN_IF_ERROR(CheckScaleAndBias(context, x, groups));
  return InferLikeFirstInput(context);
}

absl::Status InferMeanVariance(InferenceContext& context) {
  const SymbolicShape& x = context.InputShape(0);
  if (x.has_rank()) {
    for (const int64_t axis : context.attributes().Ints("axes", {0, 2, 3})) {
      WEFT_RETURN_IF_ERROR(AxisOf(context, axis, x.rank()).status());
    }
  }
  return InferLikeFirstInput(context);
}

absl::Status InferLpNormalization(InferenceContext& context) {
  const SymbolicShape& x = context.InputShape(0);
  const int64_t p = context.attributes().Int("p", 2);
  if (p != 1 && p != 2) {
    return context.Error(absl::StrCat("attribute 'p' is ", p, ", expected 1 or 2"));
  }
  if (x.has_rank()) {
    WEFT_RETURN_IF_ERROR(AxisAttribute(context, "axis", -1, x.rank()).status());
  }
  return InferLikeFirstInput(context);
}

absl::Status InferLrn(InferenceContext& context) {
  WEFT_RETURN_IF_ERROR(CheckChannels(context, context.InputShape(0), 2));
  const int64_t size = context.attributes().Int("size", 0);
  if (size < 1 || size > kMaxDim) {
    return context.Error(absl::StrCat("attribute 'size' is ", size, ", expected 1 or more"));
  }
  return InferLikeFirstInput(context);
}

// ---- Bodies.

DType DTypeOfInput(const ExpandContext& context, int i) {
  return context.graph().value(context.node().inputs[i]).type.dtype;
}

// The type in which half-precision values are summed.
DType Wide(DType dtype) { return dtype == DType::kFloat64 ? dtype : DType::kFloat32; }

// (x - mean) / sqrt(variance + epsilon) over `axes`, which stay as ones in the statistics.
ValueId Standardized(GraphBuilder& g, ValueId x, ValueId axes, double epsilon) {
  const ValueId centred = g.Op("Sub", {x, g.Op("ReduceMean", {x, axes})});
  const ValueId variance = g.Op("ReduceMean", {g.Op("Mul", {centred, centred}), axes});
  const ValueId deviation =
      g.Op("Sqrt", {g.Op("Add", {variance, g.Scalar(g.type(x).dtype, epsilon)})});
  return g.Op("Div", {centred, deviation});
}

// A value per channel, so that it broadcasts to [batch, channels, image...] of `rank` axes.
ValueId PerChannel(GraphBuilder& g, ValueId value, int rank) {
  std::vector<int64_t> axes(rank - 2);
  std::iota(axes.begin(), axes.end(), 1);
  if (axes.empty()) return value;
  return g.Op("Unsqueeze", {value, g.Ints(axes)});
}

absl::StatusOr<int> KnownRank(const ExpandContext& context) {
  const SymbolicShape& x = context.graph().value(context.node().inputs[0]).type.shape;
  if (x.has_rank()) return x.rank();
  return absl::UnimplementedError(absl::StrCat("node '", context.node().name, "' (",
                                               context.node().op,
                                               "): the rank of its input is not known"));
}

// Groups are rows of [batch, groups, the rest].
absl::StatusOr<std::vector<ValueId>> ExpandGroups(ExpandContext& context,
                                                  std::optional<int64_t> groups) {
  WEFT_ASSIGN_OR_RETURN(const int rank, KnownRank(context));
  GraphBuilder& g = context.builder();
  const std::vector<ValueId>& inputs = context.node().inputs;
  const DType dtype = DTypeOfInput(context, 0);
  const double epsilon = context.node().attributes.Float("epsilon", 1e-5f);
  const ValueId x = AsDType(g, inputs[0], Wide(dtype));
  const ValueId shape = g.Op("Shape", {inputs[0]});
  const ValueId rows = g.Op("Reshape", {x, g.Ints({0, groups.value_or(0), -1})});
  const ValueId normal = g.Op("Reshape", {Standardized(g, rows, g.Ints({2}), epsilon), shape});
  ValueId parameters[2];
  for (int i = 0; i < 2; ++i) {
    ValueId value = AsDType(g, inputs[i + 1], Wide(dtype));
    if (groups.has_value()) {  // [groups] or [channels] -> [groups, 1 or more] -> [channels]
      const ValueId channels = g.Op("Slice", {shape, g.Ints({1}), g.Ints({2})});
      const ValueId table = g.Op("Reshape", {value, g.Ints({*groups, -1})});
      const ValueId per_group = g.Op("Div", {channels, g.Ints({*groups})});
      const ValueId full = g.Op("Concat", {g.Ints({*groups}), per_group}, {{"axis", int64_t{0}}});
      value = g.Op("Reshape", {g.Op("Expand", {table, full}), g.Ints({-1})});
    }
    parameters[i] = PerChannel(g, value, rank);
  }
  const ValueId y = g.Op("Add", {g.Op("Mul", {normal, parameters[0]}), parameters[1]});
  const ValueId result = AsDType(g, y, dtype);
  WEFT_RETURN_IF_ERROR(g.status());
  return std::vector<ValueId>{result};
}

absl::StatusOr<std::vector<ValueId>> ExpandInstance(ExpandContext& context) {
  WEFT_ASSIGN_OR_RETURN(const int rank, KnownRank(context));
  GraphBuilder& g = context.builder();
  const std::vector<ValueId>& inputs = context.node().inputs;
  const DType dtype = DTypeOfInput(context, 0);
  std::vector<int64_t> axes(rank - 2);
  std::iota(axes.begin(), axes.end(), 2);
  const ValueId normal = Standardized(g, AsDType(g, inputs[0], Wide(dtype)), g.Ints(axes),
                                      context.node().attributes.Float("epsilon", 1e-5f));
  const ValueId scale = PerChannel(g, AsDType(g, inputs[1], Wide(dtype)), rank);
  const ValueId bias = PerChannel(g, AsDType(g, inputs[2], Wide(dtype)), rank);
  const ValueId y = AsDType(g, g.Op("Add", {g.Op("Mul", {normal, scale}), bias}), dtype);
  WEFT_RETURN_IF_ERROR(g.status());
  return std::vector<ValueId>{y};
}

absl::StatusOr<std::vector<ValueId>> ExpandGroup(ExpandContext& context) {
  return ExpandGroups(context, context.node().attributes.Int("num_groups", 1));
}

// The deviation, not the variance, has the small number added.
absl::StatusOr<std::vector<ValueId>> ExpandMeanVariance(ExpandContext& context) {
  GraphBuilder& g = context.builder();
  const DType dtype = DTypeOfInput(context, 0);
  const ValueId x = AsDType(g, context.node().inputs[0], Wide(dtype));
  const ValueId axes = g.Ints(context.node().attributes.Ints("axes", {0, 2, 3}));
  const ValueId centred = g.Op("Sub", {x, g.Op("ReduceMean", {x, axes})});
  const ValueId variance = g.Op("ReduceMean", {g.Op("Mul", {centred, centred}), axes});
  const ValueId deviation = g.Op("Add", {g.Op("Sqrt", {variance}), g.Scalar(Wide(dtype), 1e-9)});
  const ValueId y = AsDType(g, g.Op("Div", {centred, deviation}), dtype);
  WEFT_RETURN_IF_ERROR(g.status());
  return std::vector<ValueId>{y};
}

// ---- Gradients.

// y = x / n: dx = (dy - s sum(dy y)) / n with s the slope of n, which is y for the root of squares
// and the sign of x for the sum of magnitudes. What is zero throughout stays zero.
absl::Status LpNormalizationGradient(GradientContext& context) {
  const ValueId dy = context.OutputGradient(0);
  if (!dy.valid() || !context.NeedsInputGradient(0)) return absl::OkStatus();
  GraphBuilder& g = context.builder();
  const Algebra a(g, dy);
  const Attributes& attributes = context.node().attributes;
  const bool squares = attributes.Int("p", 2) == 2;
  const ValueId x = context.Input(0);
  const ValueId y = context.Output(0);
  const ValueId axes = g.Ints({attributes.Int("axis", -1)});
  const ValueId norm = g.Op(squares ? "ReduceL2" : "ReduceL1", {x, axes});
  const ValueId along = g.Op("ReduceSum", {a.Mul(dy, y), axes});
  const ValueId dx = a.Div(a.Sub(dy, a.Mul(squares ? y : a.Of("Sign", x), along)), norm);
  context.SetInputGradient(0, a.Where(g.Op("Equal", {norm, a.Number(0)}), a.Number(0), dx));
  return g.status();
}

// With s = bias + alpha mean of x^2 over the channels around, and y = x s^-beta:
// dx = dy s^-beta - 2 alpha beta x (the same mean's transpose of dy x s^(-beta - 1)).
absl::Status LrnGradient(GradientContext& context) {
  const ValueId dy = context.OutputGradient(0);
  if (!dy.valid() || !context.NeedsInputGradient(0)) return absl::OkStatus();
  GraphBuilder& g = context.builder();
  const Algebra a(g, dy);
  const Attributes& attributes = context.node().attributes;
  const int64_t size = attributes.Int("size", 1);
  const double alpha = attributes.Float("alpha", 1e-4f);
  const double beta = attributes.Float("beta", 0.75f);
  const double bias = attributes.Float("bias", 1.0f);
  const ValueId x = context.Input(0);
  // Channels as the rows of an image of one channel.
  const ValueId shape = ShapeOf(g, x);
  const ValueId rows = g.Op("Concat", {DimOf(g, x, 0), g.Ints({1}), DimOf(g, x, 1), g.Ints({-1})},
                            {{"axis", int64_t{0}}});
  const std::vector<int64_t> pads = {(size - 1) / 2, 0, size / 2, 0};
  const Attributes window = {{"kernel_shape", std::vector<int64_t>{size, 1}},
                             {"pads", pads},
                             {"count_include_pad", int64_t{1}}};
  const ValueId squares = g.Op("Reshape", {a.Square(x), rows});
  const ValueId means = g.Op("Reshape", {g.Op("AveragePool", {squares}, window), shape});
  const ValueId scale = a.Add(bias, a.Mul(alpha, means));
  const ValueId share = a.Mul(dy, a.Pow(scale, -beta));
  const ValueId inner = g.Op("Reshape", {a.Div(a.Mul(share, x), scale), rows});
  const ValueId back = g.WeftOp("AveragePoolGrad", {inner, ShapeOf(g, inner)}, window);
  const ValueId others = a.Mul(2 * alpha * beta, a.Mul(x, g.Op("Reshape", {back, shape})));
  context.SetInputGradient(0, a.Sub(share, others));
  return g.status();
}

}  // namespace

WEFT_REGISTER_OP(OpSchema::Onnx("InstanceNormalization")
                     .Input("input", kFloatTypes)
                     .Input("scale", kFloatTypes)
                     .Learnable()
                     .Input("B", kFloatTypes)
                     .Learnable()
                     .Output("output")
                     .Attr("epsilon", AttributeType::kFloat)
                     .Infer(InferInstanceNormalization)
                     .Expand(ExpandInstance)
                     .CostOf(FlopsPerElement(6)));

WEFT_REGISTER_OP(OpSchema::Onnx("GroupNormalization")
                     .Input("X", kFloatTypes)
                     .Input("scale", kFloatTypes)
                     .Learnable()
                     .Input("bias", kFloatTypes)
                     .Learnable()
                     .Output("Y")
                     .Attr("epsilon", AttributeType::kFloat)
                     .Attr("num_groups", AttributeType::kInt, true)
                     .Attr("stash_type", AttributeType::kInt)
                     .Infer(InferGroupNormalization)
                     .Expand(ExpandGroup)
                     .CostOf(FlopsPerElement(6)));

WEFT_REGISTER_OP(OpSchema::Onnx("MeanVarianceNormalization")
                     .Input("X", kFloatTypes)
                     .Output("Y")
                     .Attr("axes", AttributeType::kInts)
                     .Infer(InferMeanVariance)
                     .Expand(ExpandMeanVariance)
                     .CostOf(FlopsPerElement(6)));

WEFT_REGISTER_OP(OpSchema::Onnx("LpNormalization")
                     .Input("input", kFloatTypes)
                     .Output("output")
                     .Attr("axis", AttributeType::kInt)
                     .Attr("p", AttributeType::kInt)
                     .Infer(InferLpNormalization)
                     .Gradient(LpNormalizationGradient)
                     .CostOf(FlopsPerElement(3)));

WEFT_REGISTER_OP(OpSchema::Onnx("LRN")
                     .Input("X", kFloatTypes)
                     .Output("Y")
                     .Attr("alpha", AttributeType::kFloat)
                     .Attr("beta", AttributeType::kFloat)
                     .Attr("bias", AttributeType::kFloat)
                     .Attr("size", AttributeType::kInt, true)
                     .Infer(InferLrn)
                     .Gradient(LrnGradient)
                     .CostOf(FlopsPerElement(24)));

}  // namespace weft
