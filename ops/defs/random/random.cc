// Random numbers. Every element is a function of seed, node, step and its place in the whole tensor
// (law 10 of docs/architecture.md), not of ONNX's reference implementation, which leaves the
// generator open.
#include "absl/strings/str_cat.h"
#include "ops/defs/movement/shape_dims.h"
#include "ops/defs/rules/gradients.h"
#include "ops/defs/rules/rules.h"
#include "ops/defs/rules/type_lists.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

// The attribute dtype, or `fallback`.
absl::StatusOr<DType> DTypeAttribute(const InferenceContext& context, DType fallback) {
  const int64_t dtype = context.attributes().Int("dtype", static_cast<int64_t>(fallback));
  if (dtype >= 0 && dtype < kDTypeCount) return static_cast<DType>(dtype);
  return context.Error(absl::StrCat("attribute dtype is ", dtype, ", expected an ONNX data type"));
}

// ---- Tensors of random numbers: of a shape in an attribute, or of that of an operand.

absl::Status InferByAttribute(InferenceContext& context) {
  WEFT_ASSIGN_OR_RETURN(const DType dtype, DTypeAttribute(context, DType::kFloat32));
  Dims dims;
  for (const int64_t size : context.attributes().Ints("shape")) {
    if (size < 0) return context.Error(absl::StrCat("attribute shape has ", size));
    dims.push_back(Dim(size));
  }
  return SetCheckedOutput(context, dtype, std::move(dims));
}

absl::Status InferLikeOperand(InferenceContext& context) {
  DType like = context.InputType(0).dtype;
  if (!IsFloatingPoint(like)) like = DType::kFloat32;
  WEFT_ASSIGN_OR_RETURN(const DType dtype, DTypeAttribute(context, like));
  context.SetOutput(0, dtype, context.InputShape(0));
  return absl::OkStatus();
}

OpSchema Random(const std::string& name, const std::string& first, const std::string& second,
                bool like) {
  OpSchema schema = OpSchema::Onnx(name);
  if (like) {
    schema.Input("input").Infer(InferLikeOperand);
  } else {
    schema.Attr("shape", AttributeType::kInts, /*required=*/true).Infer(InferByAttribute);
  }
  return schema.Output("output")
      .Attr("dtype", AttributeType::kInt)
      .Attr("seed", AttributeType::kFloat)
      .Attr(first, AttributeType::kFloat)
      .Attr(second, AttributeType::kFloat)
      .NoGradient("random")
      .Stateful()
      .CostOf(FlopsPerElement(10));
}
WEFT_REGISTER_OP(Random("RandomUniform", "low", "high", /*like=*/false));
WEFT_REGISTER_OP(Random("RandomUniformLike", "low", "high", /*like=*/true));
WEFT_REGISTER_OP(Random("RandomNormal", "mean", "scale", /*like=*/false));
WEFT_REGISTER_OP(Random("RandomNormalLike", "mean", "scale", /*like=*/true));

// ---- Draws.

absl::Status InferBernoulli(InferenceContext& context) {
  WEFT_ASSIGN_OR_RETURN(const DType dtype, DTypeAttribute(context, context.InputType(0).dtype));
  context.SetOutput(0, dtype, context.InputShape(0));
  return absl::OkStatus();
}
WEFT_REGISTER_OP(OpSchema::Onnx("Bernoulli")
                     .Input("input", kFloatTypes)
                     .Output("output")
                     .Attr("dtype", AttributeType::kInt)
                     .Attr("seed", AttributeType::kFloat)
                     .Infer(InferBernoulli)
                     .NoGradient("random")
                     .Stateful()
                     .CostOf(FlopsPerElement(10)));

absl::Status InferMultinomial(InferenceContext& context) {
  WEFT_ASSIGN_OR_RETURN(const DType dtype, DTypeAttribute(context, DType::kInt32));
  const int64_t samples = context.attributes().Int("sample_size", 1);
  const SymbolicShape& input = context.InputShape(0);
  if (samples < 0) return context.Error(absl::StrCat("attribute sample_size is ", samples));
  if (!input.has_rank()) {
    context.SetOutput(0, dtype, SymbolicShape());
    return absl::OkStatus();
  }
  if (input.rank() != 2) {
    return context.Error(
        absl::StrCat("the input has rank ", input.rank(), ", expected [batch, classes]"));
  }
  return SetCheckedOutput(context, dtype, {input.dim(0), Dim(samples)});
}
WEFT_REGISTER_OP(OpSchema::Onnx("Multinomial")
                     .Input("input", kFloatTypes)
                     .Output("output")
                     .Attr("dtype", AttributeType::kInt)
                     .Attr("sample_size", AttributeType::kInt)
                     .Attr("seed", AttributeType::kFloat)
                     .Infer(InferMultinomial)
                     .NoGradient("random")
                     .Stateful()
                     .CostOf(FlopsPerElement(20)));

// ---- Dropout(data, ratio, training_mode): outside of training it passes the data on.

absl::Status InferDropout(InferenceContext& context) {
  for (const int i : {1, 2}) {
    if (!context.HasInput(i)) continue;
    const std::optional<Shape> shape = context.InputShape(i).ToConcrete();
    if (shape.has_value() && shape->num_elements() != 1) {
      return context.Error(
          absl::StrCat("input ", i, " has the shape ", shape->ToString(), ", expected a scalar"));
    }
  }
  context.SetOutput(0, context.InputType(0));
  context.SetOutput(1, DType::kBool, context.InputShape(0));
  return absl::OkStatus();
}

// Data and results have one factor per axis; the scalars none.
absl::StatusOr<FactorRule> DropoutRule(const NodeView& view, int tensors,
                                       std::vector<std::vector<int>> linear) {
  FactorRuleBuilder rule;
  const std::vector<int> factors = rule.Factors(view.InputShape(0));
  for (int i = 0; i < view.num_inputs(); ++i) {
    if (i < tensors) {
      rule.Input(factors);
    } else {
      rule.ReplicatedInput(view.HasInput(i) ? view.InputShape(i) : Shape{});
    }
  }
  for (int i = 0; i < view.num_outputs(); ++i) {
    rule.Output(view.HasOutput(i) ? factors : std::vector<int>());
  }
  return rule.Linear(std::move(linear)).Build();
}

absl::Status DropoutGradient(GradientContext& context) {
  const ValueId dy = context.OutputGradient(0);
  if (!dy.valid() || !context.NeedsInputGradient(0)) return absl::OkStatus();
  GraphBuilder& b = context.builder();
  std::vector<ValueId> inputs = {dy, context.RequireOutput(1, "mask"), context.Input(1),
                                 context.Input(2)};
  while (!inputs.back().valid()) inputs.pop_back();
  context.SetInputGradient(0, b.WeftOp("DropoutGrad", std::move(inputs)));
  return b.status();
}

WEFT_REGISTER_OP(OpSchema::Onnx("Dropout")
                     .Input("data", kFloatAndFloat8Types)
                     .OptionalInput("ratio", kFloatAndFloat8Types)
                     .NeverLearnable()
                     .OptionalInput("training_mode", {DType::kBool})
                     .NeverLearnable()
                     .Output("output")
                     .OptionalOutput("mask")
                     .Attr("seed", AttributeType::kInt)
                     .Infer(InferDropout)
                     .Gradient(DropoutGradient)
                     .Sharding([](const NodeView& view) { return DropoutRule(view, 1, {}); })
                     .CostOf(FlopsPerElement(10))
                     .Stateful());

// dX = mask ? dY / (1 - ratio) : 0 in training, else dY.
WEFT_REGISTER_OP(OpSchema::Weft("DropoutGrad")
                     .Input("dY", kFloatTypes)
                     .Input("mask", {DType::kBool})
                     .OptionalInput("ratio", kFloatAndFloat8Types)
                     .OptionalInput("training_mode", {DType::kBool})
                     .Output("dX")
                     .Infer(InferLikeFirstInput)
                     .NoGradient("part of a gradient")
                     .Sharding([](const NodeView& view) { return DropoutRule(view, 2, {{0}}); })
                     .CostOf(FlopsPerElement(1))
                     .InPlace(0, 0));

}  // namespace
}  // namespace weft
