// Quantization-aware training: values rounded as QuantizeLinear and DequantizeLinear round them,
// with gradients that go straight through (Bengio et al. 2013, arXiv:1308.3432; Jacob et al. 2018,
// arXiv:1712.05877, section 3). training/quantization/README.md has the recipe.
//
//   ai.weft::FakeQuantizeWeight(W) -> Y, scale
//     Y = dequantized(quantized(W)). The scale is amax / limit, where amax is the largest magnitude
//     and the limit 127 (int8), 7 (int4) or 448 (float8e4m3fn); 1 where that is no normal number,
//     as for amax 0. One scale, one per index of `axis`, or with `block_size` one per block along
//     it, as DequantizeLinear has them. The zero point is 0. Nothing is cut, so that all gradients
//     pass.
//   ai.weft::FakeQuantize(X, range) -> Y, scale, zero_point
//     `range` is [3]: averages of the lowest and the highest value, each times a weight, and the
//     weight. With low <= 0 <= high, uint8 has the scale (high - low) / 255 and the zero point
//     round(-low / scale); float8e4m3fn has max(-low, high) / 448 and 0. Where the weight is 0
//     there is no range yet: Y = X, and the scale is 0. Elements that are not finite stay, unlike
//     those of QuantizeLinear, so that the loss shows them.
//   ai.weft::FakeQuantizeGrad(dY, X, range) -> dX
//     dY where X is in the range of the type or not finite, else 0.
//   ai.weft::RangeOfBatch(X) -> Y
//     [64, 2]: the lowest and the highest of 0 and the elements of X, in the row of the
//     micro-batch; other rows are 0. With more than 64 micro-batches neighbours share a row: it is
//     their mean. Sums over micro-batches then have the range of each.
//   ai.weft::UpdateRange(range, rows) -> Y
//     decay range + (1 - decay) [lowest of the rows, highest, 1]; range where a row is not finite.
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "graph/graph_builder.h"
#include "graph/op_schema.h"
#include "ops/defs/rules/rules.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

// The reference kernels compute in float64.
constexpr std::initializer_list<DType> kFakeTypes = {DType::kFloat32, DType::kFloat64};
constexpr int64_t kRangeRows = 64;
constexpr int64_t kRangeNumbers = 3;

absl::StatusOr<DType> CodeType(const InferenceContext& context,
                               std::initializer_list<DType> allowed) {
  const int64_t to = context.attributes().Int("to", 0);
  for (const DType dtype : allowed) {
    if (to == static_cast<int64_t>(dtype)) return dtype;
  }
  return context.Error(absl::StrCat("attribute to is ", to, ", which the op cannot make"));
}

absl::Status CheckRange(const InferenceContext& context, int input) {
  const std::optional<Shape> shape = context.InputShape(input).ToConcrete();
  if (!shape.has_value() || *shape == Shape{kRangeNumbers}) return absl::OkStatus();
  return context.Error(absl::StrCat("the range has the shape ", shape->ToString(), ", expected [",
                                    kRangeNumbers, "]"));
}

// ---- Weights.

int64_t BlocksOf(int64_t size, int64_t block) { return (size + block - 1) / block; }

absl::Status InferFakeQuantizeWeight(InferenceContext& context) {
  WEFT_RETURN_IF_ERROR(
      CodeType(context, {DType::kInt8, DType::kInt4, DType::kFloat8E4M3Fn}).status());
  context.SetOutput(0, context.InputType(0));
  const int64_t block = context.attributes().Int("block_size", 0);
  if (block < 0) return context.Error(absl::StrCat("attribute block_size is ", block));
  SymbolicShape scale(Shape{});
  if (context.attributes().Has("axis")) {
    const SymbolicShape& shape = context.InputShape(0);
    if (!shape.has_rank()) {
      scale = SymbolicShape();
    } else {
      WEFT_ASSIGN_OR_RETURN(const int axis, AxisAttribute(context, "axis", 0, shape.rank()));
      const std::optional<Shape> concrete = shape.ToConcrete();
      std::vector<Dim> dims = {shape.dims()[axis]};
      if (block > 0) {
        dims = shape.dims();
        dims[axis] = concrete.has_value() ? Dim(BlocksOf(concrete->dim(axis), block)) : Dim();
      }
      scale = SymbolicShape(std::move(dims));
    }
  } else if (block > 0) {
    return context.Error("attribute block_size needs an axis");
  }
  if (context.HasOutput(1)) context.SetOutput(1, context.InputType(0).dtype, scale);
  return absl::OkStatus();
}

absl::StatusOr<FactorRule> FakeQuantizeWeightRule(const NodeView& view) {
  const Shape& shape = view.InputShape(0);
  const int64_t block = view.attributes().Int("block_size", 0);
  const bool has_axis = view.attributes().Has("axis");
  const int axis = has_axis ? ConcreteAxis(view, "axis", 0, shape.rank()) : -1;
  FactorRuleBuilder rule;
  std::vector<std::vector<int>> dims;
  std::vector<std::vector<int>> scale;
  for (int i = 0; i < shape.rank(); ++i) {
    const bool alone = has_axis && (block > 0 ? i != axis : i == axis);
    const FactorKind kind = alone ? FactorKind::kParallel : FactorKind::kWhole;
    if (block == 0 || i != axis) {
      dims.push_back({rule.Factor(shape.dim(i), kind)});
      if (alone) scale.push_back(dims.back());
    } else if (shape.dim(i) % block == 0) {
      const int blocks = rule.Factor(shape.dim(i) / block);
      dims.push_back({blocks, rule.Factor(block, FactorKind::kWhole)});
      scale.push_back({blocks});
    } else {
      dims.push_back({rule.Factor(shape.dim(i), FactorKind::kWhole)});
      scale.push_back({rule.Factor(BlocksOf(shape.dim(i), block), FactorKind::kWhole)});
    }
  }
  rule.FactoredInput(dims).FactoredOutput(dims);
  if (view.num_outputs() > 1) rule.FactoredOutput(scale);
  return rule.Build();
}

absl::Status FakeQuantizeWeightGradient(GradientContext& context) {
  const ValueId dy = context.OutputGradient(0);
  if (dy.valid()) context.SetInputGradient(0, dy);
  return absl::OkStatus();
}

WEFT_REGISTER_OP(OpSchema::Weft("FakeQuantizeWeight")
                     .Input("W", kFakeTypes)
                     .Output("Y")
                     .OptionalOutput("scale")
                     .Attr("to", AttributeType::kInt, /*required=*/true)
                     .Attr("axis", AttributeType::kInt)
                     .Attr("block_size", AttributeType::kInt)
                     .Infer(InferFakeQuantizeWeight)
                     .Gradient(FakeQuantizeWeightGradient)
                     .Sharding(FakeQuantizeWeightRule)
                     .CostOf(FlopsPerElement(8)));

// ---- Activations.

constexpr std::initializer_list<DType> kActivationCodes = {DType::kUint8, DType::kFloat8E4M3Fn};

absl::Status InferFakeQuantize(InferenceContext& context) {
  WEFT_RETURN_IF_ERROR(CodeType(context, kActivationCodes).status());
  WEFT_RETURN_IF_ERROR(CheckRange(context, 1));
  context.SetOutput(0, context.InputType(0));
  for (int i = 1; i < 3; ++i) {
    if (context.HasOutput(i)) context.SetOutput(i, context.InputType(0).dtype, Shape{});
  }
  return absl::OkStatus();
}

absl::StatusOr<FactorRule> FakeQuantizeRule(const NodeView& view) {
  FactorRuleBuilder rule;
  const std::vector<int> factors = rule.Factors(view.InputShape(0));
  rule.Input(factors).ReplicatedInput(view.InputShape(1)).Output(factors);
  for (int i = 1; i < view.num_outputs(); ++i) rule.Output({});
  return rule.Build();
}

absl::Status FakeQuantizeGradient(GradientContext& context) {
  const ValueId dy = context.OutputGradient(0);
  if (!dy.valid() || !context.NeedsInputGradient(0)) return absl::OkStatus();
  GraphBuilder& b = context.builder();
  context.SetInputGradient(0, b.WeftOp("FakeQuantizeGrad", {dy, context.Input(0), context.Input(1)},
                                       {{"to", context.node().attributes.Int("to", 0)}}));
  return b.status();
}

WEFT_REGISTER_OP(OpSchema::Weft("FakeQuantize")
                     .Input("X", kFakeTypes)
                     .Input("range", kFakeTypes)
                     .NeverLearnable()
                     .Output("Y")
                     .OptionalOutput("scale")
                     .OptionalOutput("zero_point")
                     .Attr("to", AttributeType::kInt, /*required=*/true)
                     .Infer(InferFakeQuantize)
                     .Gradient(FakeQuantizeGradient)
                     .Sharding(FakeQuantizeRule)
                     .CostOf(FlopsPerElement(6)));

absl::Status InferFakeQuantizeGrad(InferenceContext& context) {
  WEFT_RETURN_IF_ERROR(CodeType(context, kActivationCodes).status());
  WEFT_RETURN_IF_ERROR(CheckRange(context, 2));
  context.SetOutput(0, context.InputType(0));
  return absl::OkStatus();
}

absl::StatusOr<FactorRule> FakeQuantizeGradRule(const NodeView& view) {
  FactorRuleBuilder rule;
  const std::vector<int> factors = rule.Factors(view.InputShape(0));
  rule.Input(factors).Input(factors).ReplicatedInput(view.InputShape(2)).Output(factors);
  return rule.Linear({{0}}).Build();
}

WEFT_REGISTER_OP(OpSchema::Weft("FakeQuantizeGrad")
                     .Input("dY", kFakeTypes)
                     .Input("X", kFakeTypes)
                     .Input("range", kFakeTypes)
                     .NeverLearnable()
                     .Output("dX")
                     .Attr("to", AttributeType::kInt, /*required=*/true)
                     .Infer(InferFakeQuantizeGrad)
                     .NoGradient("part of a gradient")
                     .Sharding(FakeQuantizeGradRule)
                     .CostOf(FlopsPerElement(4)));

// ---- Ranges.

absl::Status InferRangeOfBatch(InferenceContext& context) {
  context.SetOutput(0, DType::kFloat32, Shape{kRangeRows, 2});
  return absl::OkStatus();
}

// Without a sharding rule: it needs the tensor whole.
WEFT_REGISTER_OP(OpSchema::Weft("RangeOfBatch")
                     .Input("X", {DType::kFloat32})
                     .Output("Y")
                     .Infer(InferRangeOfBatch)
                     .NoGradient("it observes")
                     .CostOf([](const NodeView& view) {
                       const auto count = static_cast<double>(view.InputShape(0).num_elements());
                       return Cost{2 * count, OperandBytes(view)};
                     })
                     .Stateful());

absl::Status InferUpdateRange(InferenceContext& context) {
  WEFT_RETURN_IF_ERROR(CheckRange(context, 0));
  const std::optional<Shape> rows = context.InputShape(1).ToConcrete();
  if (rows.has_value() && (rows->rank() != 2 || rows->dim(1) != 2)) {
    return context.Error(
        absl::StrCat("the rows have the shape ", rows->ToString(), ", expected [N, 2]"));
  }
  context.SetOutput(0, context.InputType(0));
  return absl::OkStatus();
}

WEFT_REGISTER_OP(OpSchema::Weft("UpdateRange")
                     .Input("range", {DType::kFloat32})
                     .NeverLearnable()
                     .Input("rows", {DType::kFloat32})
                     .Output("Y")
                     .Attr("decay", AttributeType::kFloat, /*required=*/true)
                     .Infer(InferUpdateRange)
                     .NoGradient("it ends a step")
                     .CostOf(FlopsPerElement(100)));

}  // namespace
}  // namespace weft
