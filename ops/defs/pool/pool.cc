// Pools over windows and over whole images, and their gradients.
//
// ai.weft::MaxPoolGrad(X, Y, dY) -> dX gives each dY to the first element of its window that equals
// the maximum: X and Y are alive in training anyway, while Indices would cost eight bytes per
// element. ai.weft::AveragePoolGrad(dY, shape of X) and ai.weft::GlobalAveragePoolGrad(dY, shape of
// X) -> dX.
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "graph/graph_builder.h"
#include "graph/op_schema.h"
#include "ops/defs/elementwise/elementwise.h"
#include "ops/defs/rules/gradients.h"
#include "ops/defs/rules/rules.h"
#include "ops/window.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

const std::vector<DType> kMaxPoolTypes = {DType::kFloat32,  DType::kFloat64, DType::kFloat16,
                                          DType::kBfloat16, DType::kInt8,    DType::kUint8};

// ---- Shapes.

absl::Status CheckImage(const InferenceContext& context, const SymbolicShape& x, int min_rank) {
  if (!x.has_rank() || x.rank() >= min_rank) return absl::OkStatus();
  return context.Error(
      absl::StrCat("X has shape ", x.ToString(), ", expected [batch, channels, image...]"));
}

absl::StatusOr<SymbolicShape> PooledShape(const InferenceContext& context, const SymbolicShape& x) {
  WEFT_RETURN_IF_ERROR(CheckImage(context, x, 3));
  const std::vector<int64_t> sizes = context.attributes().Ints("kernel_shape");
  const absl::StatusOr<WindowSpec> window = WindowSpec::Create(context.attributes(), sizes);
  if (!window.ok()) return context.Error(std::string(window.status().message()));
  if (!x.has_rank()) return SymbolicShape();
  if (x.rank() != window->rank() + 2) {
    return context.Error(absl::StrCat("attribute 'kernel_shape' has ", sizes.size(),
                                      " values, X has shape ", x.ToString()));
  }
  std::vector<Dim> y = {x.dim(0), x.dim(1)};
  for (int i = 2; i < x.rank(); ++i) {
    absl::StatusOr<Dim> dim = window->OutputDim(i - 2, x.dim(i));
    if (!dim.ok()) return context.Error(std::string(dim.status().message()));
    y.push_back(*std::move(dim));
  }
  return SymbolicShape(std::move(y));
}

absl::Status InferPool(InferenceContext& context) {
  WEFT_ASSIGN_OR_RETURN(const SymbolicShape y, PooledShape(context, context.InputShape(0)));
  context.SetOutput(0, context.InputType(0).dtype, y);
  if (context.HasOutput(1)) context.SetOutput(1, DType::kInt64, y);
  return absl::OkStatus();
}

absl::Status InferGlobalPool(InferenceContext& context) {
  const SymbolicShape& x = context.InputShape(0);
  WEFT_RETURN_IF_ERROR(CheckImage(context, x, 2));
  SymbolicShape y;
  if (x.has_rank()) {
    std::vector<Dim> dims = {x.dim(0), x.dim(1)};
    dims.resize(x.rank(), Dim(1));
    y = SymbolicShape(std::move(dims));
  }
  context.SetOutput(0, context.InputType(0).dtype, y);
  return absl::OkStatus();
}

absl::Status CheckNorm(const InferenceContext& context) {
  const int64_t p = context.attributes().Int("p", 2);
  if (p >= 1) return absl::OkStatus();
  return context.Error(absl::StrCat("attribute 'p' is ", p, ", expected 1 or more"));
}

absl::Status InferLpPool(InferenceContext& context) {
  WEFT_RETURN_IF_ERROR(CheckNorm(context));
  return InferPool(context);
}

absl::Status InferGlobalLpPool(InferenceContext& context) {
  WEFT_RETURN_IF_ERROR(CheckNorm(context));
  return InferGlobalPool(context);
}

// The shape that input 1 holds, whose pooled shape is that of dY.
absl::Status InferPoolGradient(InferenceContext& context) {
  SymbolicShape dx;
  if (std::optional<std::vector<Dim>> dims = context.InputDims(1)) {
    dx = SymbolicShape(*std::move(dims));
  }
  WEFT_RETURN_IF_ERROR(CheckImage(context, dx, 2));
  context.SetOutput(0, context.InputType(0).dtype, std::move(dx));
  return absl::OkStatus();
}

absl::Status InferMaxPoolGradient(InferenceContext& context) {
  WEFT_RETURN_IF_ERROR(CheckSameDType(context, {0, 1, 2}));
  return InferLikeFirstInput(context);
}

// ---- Gradients.

Attributes Without(Attributes attributes, const std::string& name) {
  attributes.Erase(name);
  return attributes;
}

absl::Status MaxPoolGradient(GradientContext& context) {
  const ValueId dy = context.OutputGradient(0);
  if (!dy.valid() || !context.NeedsInputGradient(0)) return absl::OkStatus();
  GraphBuilder& g = context.builder();
  context.SetInputGradient(0, g.WeftOp("MaxPoolGrad", {context.Input(0), context.Output(0), dy},
                                       Without(context.node().attributes, "storage_order")));
  return g.status();
}

GradientFn AverageGradient(std::string op) {
  return [op = std::move(op)](GradientContext& context) {
    const ValueId dy = context.OutputGradient(0);
    if (!dy.valid() || !context.NeedsInputGradient(0)) return absl::OkStatus();
    GraphBuilder& g = context.builder();
    context.SetInputGradient(
        0, g.WeftOp(op, {dy, ShapeOf(g, context.Input(0))}, context.node().attributes));
    return g.status();
  };
}

// All elements that equal the maximum share its gradient.
absl::Status GlobalMaxPoolGradient(GradientContext& context) {
  const ValueId dy = context.OutputGradient(0);
  if (!dy.valid() || !context.NeedsInputGradient(0)) return absl::OkStatus();
  GraphBuilder& g = context.builder();
  const ValueId x = context.Input(0);
  const ValueId equal = g.Op("Equal", {x, context.Output(0)});
  const ValueId mask = g.Op("Cast", {equal}, {{"to", static_cast<int64_t>(g.type(x).dtype)}});
  std::vector<int64_t> axes;
  if (!g.type(x).shape.has_rank()) {
    return absl::UnimplementedError(absl::StrCat(
        "node '", context.node().name, "': the gradient of GlobalMaxPool needs the rank of X"));
  }
  for (int i = 2; i < g.type(x).shape.rank(); ++i) axes.push_back(i);
  const ValueId count = g.Op("ReduceSum", {mask, g.Ints(axes)}, {{"keepdims", int64_t{1}}});
  context.SetInputGradient(0, g.Op("Mul", {mask, g.Op("Div", {dy, count})}));
  return g.status();
}

// y is the p-th root of a sum of |x|^p: dx = x |x|^(p-2) times the dy / y^(p-1) of the windows that
// x is in. Windows of zeros, where the slope has no limit, give nothing.
struct NormGradient {
  const Algebra& a;
  int64_t p;

  ValueId OfElement(ValueId x) const {
    if (p == 1) return a.Of("Sign", x);
    if (p == 2) return x;
    return a.Mul(a.Of("Sign", x), Power(a.Of("Abs", x)));
  }
  ValueId OfWindow(GraphBuilder& g, ValueId dy, ValueId y) const {
    if (p == 1) return dy;
    const ValueId share = a.Div(dy, Power(y));
    return a.Where(g.Op("Equal", {y, a.Number(0)}), a.Number(0), share);
  }

 private:
  ValueId Power(ValueId x) const { return p == 2 ? x : a.Pow(x, static_cast<double>(p - 1)); }
};

absl::Status GlobalLpPoolGradient(GradientContext& context) {
  const ValueId dy = context.OutputGradient(0);
  if (!dy.valid() || !context.NeedsInputGradient(0)) return absl::OkStatus();
  const Algebra a(context.builder(), dy);
  const NormGradient norm{a, context.node().attributes.Int("p", 2)};
  context.SetInputGradient(0, a.Mul(norm.OfElement(context.Input(0)),
                                    norm.OfWindow(context.builder(), dy, context.Output(0))));
  return context.builder().status();
}

// By what AveragePool divides: all elements of a window, padding too; but not those that ceil_mode
// adds behind the padding, whose number is found by pooling ones in two ways.
ValueId WindowDivisor(GradientContext& context, const Algebra& a, const Attributes& window) {
  GraphBuilder& g = context.builder();
  if (window.Int("ceil_mode", 0) == 0) {
    double elements = 1;
    for (const int64_t size : window.Ints("kernel_shape")) elements *= static_cast<double>(size);
    return a.Number(elements);
  }
  Attributes sum = Without(window, "count_include_pad");
  sum.Set("p", int64_t{1});
  const ValueId dy = context.OutputGradient(0);
  const ValueId ones = FilledLike(g, context.Input(0), g.type(dy).dtype, 1);
  const ValueId count = g.Op("LpPool", {ones}, sum);
  const ValueId divisor = a.Div(count, g.Op("AveragePool", {ones}, window));
  return a.Where(g.Op("Equal", {count, a.Number(0)}), a.Number(0), divisor);
}

absl::Status LpPoolGradient(GradientContext& context) {
  const ValueId dy = context.OutputGradient(0);
  if (!dy.valid() || !context.NeedsInputGradient(0)) return absl::OkStatus();
  GraphBuilder& g = context.builder();
  const Algebra a(g, dy);
  const ValueId x = context.Input(0);
  const NormGradient norm{a, context.node().attributes.Int("p", 2)};
  Attributes window = Without(context.node().attributes, "p");
  window.Set("count_include_pad", int64_t{1});
  const ValueId share = norm.OfWindow(g, dy, context.Output(0));
  const ValueId sums = g.WeftOp(
      "AveragePoolGrad", {a.Mul(share, WindowDivisor(context, a, window)), ShapeOf(g, x)}, window);
  context.SetInputGradient(0, a.Mul(norm.OfElement(x), sums));
  return g.status();
}

// ---- Sharding: samples and channels stand alone.

class PoolFactors {
 public:
  PoolFactors(FactorRuleBuilder& rule, const Shape& x, FactorKind image,
              FactorKind plane = FactorKind::kParallel)
      : rule_(rule),
        image_(image),
        batch_(rule.Factor(x.dim(0), plane)),
        channel_(rule.Factor(x.dim(1), plane)) {}
  // Every operand's image axes have factors of their own.
  std::vector<int> Dims(const Shape& shape) {
    std::vector<int> dims = {batch_, channel_};
    for (int i = 2; i < shape.rank(); ++i) dims.push_back(rule_.Factor(shape.dim(i), image_));
    return dims;
  }

 private:
  FactorRuleBuilder& rule_;
  const FactorKind image_;
  const int batch_;
  const int channel_;
};

// Indices are positions in the whole tensor. A shard in blocks (of a batch of two, say) is no one
// run of it, and its place is told by one offset: then nothing is split.
absl::StatusOr<FactorRule> MaxPoolRule(const NodeView& view) {
  FactorRuleBuilder rule;
  const FactorKind plane = view.HasOutput(1) ? FactorKind::kWhole : FactorKind::kParallel;
  PoolFactors factors(rule, view.InputShape(0), FactorKind::kWindow, plane);
  rule.Input(factors.Dims(view.InputShape(0)));
  const std::vector<int> y = factors.Dims(view.OutputShape(0));
  rule.Output(y);
  if (view.num_outputs() > 1) rule.Output(view.HasOutput(1) ? y : std::vector<int>{});
  return rule.Build();
}

absl::StatusOr<FactorRule> MaxPoolGradientRule(const NodeView& view) {
  FactorRuleBuilder rule;
  PoolFactors factors(rule, view.InputShape(0), FactorKind::kWindow);
  const std::vector<int> x = factors.Dims(view.InputShape(0));
  const std::vector<int> y = factors.Dims(view.InputShape(1));
  rule.Input(x).Input(y).Input(y).Output(x);
  return rule.Linear({{2}}).Build();
}

absl::StatusOr<FactorRule> GlobalMaxPoolRule(const NodeView& view) {
  FactorRuleBuilder rule;
  PoolFactors factors(rule, view.InputShape(0), FactorKind::kWhole);
  rule.Input(factors.Dims(view.InputShape(0))).Output(factors.Dims(view.OutputShape(0)));
  return rule.Build();
}

ShardingFn AverageRule(FactorKind image) {
  return [image](const NodeView& view) -> absl::StatusOr<FactorRule> {
    FactorRuleBuilder rule;
    PoolFactors factors(rule, view.InputShape(0), image);
    rule.Input(factors.Dims(view.InputShape(0)));
    if (view.num_inputs() > 1) rule.ShapeInput(view.InputShape(1));
    rule.Output(factors.Dims(view.OutputShape(0)));
    return rule.Linear({{0}}).Build();
  };
}

absl::Status LocalizePoolGradient(LocalizeContext& context) {
  const Shape& dx = context.LocalOutputShape(0);
  context.SetConstantInput(1, Tensor::Of<int64_t>({dx.rank()}, dx.dims()));
  return absl::OkStatus();
}

// ---- Costs: one per element of each window.

double WindowElements(const NodeView& view) {
  double elements = 1;
  for (const int64_t size : view.attributes().Ints("kernel_shape")) {
    elements *= static_cast<double>(size);
  }
  return elements;
}

Cost PoolCost(const NodeView& view) {
  return {WindowElements(view) * static_cast<double>(view.OutputShape(0).num_elements()),
          OperandBytes(view)};
}
Cost MaxPoolGradientCost(const NodeView& view) {
  return {WindowElements(view) * static_cast<double>(view.InputShape(1).num_elements()),
          OperandBytes(view)};
}
Cost AveragePoolGradientCost(const NodeView& view) {
  return {WindowElements(view) * static_cast<double>(view.InputShape(0).num_elements()),
          OperandBytes(view)};
}
Cost GlobalPoolCost(const NodeView& view) {
  return {static_cast<double>(view.InputShape(0).num_elements()), OperandBytes(view)};
}

OpSchema WithWindowAttributes(OpSchema schema) {
  return schema.Attr("auto_pad", AttributeType::kString)
      .Attr("ceil_mode", AttributeType::kInt)
      .Attr("dilations", AttributeType::kInts)
      .Attr("kernel_shape", AttributeType::kInts, true)
      .Attr("pads", AttributeType::kInts)
      .Attr("strides", AttributeType::kInts);
}

}  // namespace

WEFT_REGISTER_OP(WithWindowAttributes(OpSchema::Onnx("MaxPool"))
                     .Input("X", kMaxPoolTypes)
                     .Output("Y")
                     .OptionalOutput("Indices")
                     .Attr("storage_order", AttributeType::kInt)
                     .Infer(InferPool)
                     .Gradient(MaxPoolGradient)
                     .Sharding(MaxPoolRule)
                     .CostOf(PoolCost));

WEFT_REGISTER_OP(
    WithWindowAttributes(OpSchema::Weft("MaxPoolGrad").GradientMissing("part of a gradient"))
        .Input("X", kFloatTypes)
        .Input("Y", kFloatTypes)
        .Input("dY", kFloatTypes)
        .Output("dX")
        .Infer(InferMaxPoolGradient)
        .Sharding(MaxPoolGradientRule)
        .CostOf(MaxPoolGradientCost));

WEFT_REGISTER_OP(WithWindowAttributes(OpSchema::Onnx("AveragePool"))
                     .Input("X", kFloatTypes)
                     .Output("Y")
                     .Attr("count_include_pad", AttributeType::kInt)
                     .Infer(InferPool)
                     .Gradient(AverageGradient("AveragePoolGrad"))
                     .Sharding(AverageRule(FactorKind::kWindow))
                     .CostOf(PoolCost));

WEFT_REGISTER_OP(
    WithWindowAttributes(OpSchema::Weft("AveragePoolGrad").GradientMissing("part of a gradient"))
        .Input("dY", kFloatTypes)
        .Input("shape", {DType::kInt64})
        .Output("dX")
        .Attr("count_include_pad", AttributeType::kInt)
        .ValueInputs({1})
        .Infer(InferPoolGradient)
        .Sharding(AverageRule(FactorKind::kWindow))
        .Localize(LocalizePoolGradient)
        .CostOf(AveragePoolGradientCost));

WEFT_REGISTER_OP(OpSchema::Onnx("GlobalAveragePool")
                     .Input("X", kFloatTypes)
                     .Output("Y")
                     .Infer(InferGlobalPool)
                     .Gradient(AverageGradient("GlobalAveragePoolGrad"))
                     .Sharding(AverageRule(FactorKind::kWhole))
                     .CostOf(GlobalPoolCost));

WEFT_REGISTER_OP(WithWindowAttributes(OpSchema::Onnx("LpPool"))
                     .Input("X", kFloatTypes)
                     .Output("Y")
                     .Attr("p", AttributeType::kInt)
                     .Infer(InferLpPool)
                     .Gradient(LpPoolGradient)
                     .CostOf(PoolCost));

WEFT_REGISTER_OP(OpSchema::Onnx("GlobalMaxPool")
                     .Input("X", kFloatTypes)
                     .Output("Y")
                     .Infer(InferGlobalPool)
                     .Gradient(GlobalMaxPoolGradient)
                     .Sharding(GlobalMaxPoolRule)
                     .CostOf(GlobalPoolCost));

WEFT_REGISTER_OP(OpSchema::Onnx("GlobalLpPool")
                     .Input("X", kFloatTypes)
                     .Output("Y")
                     .Attr("p", AttributeType::kInt)
                     .Infer(InferGlobalLpPool)
                     .Gradient(GlobalLpPoolGradient)
                     .CostOf(GlobalPoolCost));

WEFT_REGISTER_OP(OpSchema::Weft("GlobalAveragePoolGrad")
                     .GradientMissing("part of a gradient")
                     .Input("dY", kFloatTypes)
                     .Input("shape", {DType::kInt64})
                     .Output("dX")
                     .ValueInputs({1})
                     .Infer(InferPoolGradient)
                     .Sharding(AverageRule(FactorKind::kWhole))
                     .Localize(LocalizePoolGradient)
                     .CostOf(FlopsPerElement(1)));

}  // namespace weft
