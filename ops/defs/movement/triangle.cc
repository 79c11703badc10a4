// Trilu and EyeLike: what lies beside a diagonal; Det, which is computed from triangles.
#include "absl/strings/str_cat.h"
#include "ops/defs/rules/gradients.h"
#include "ops/defs/rules/rules.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

absl::Status InferTrilu(InferenceContext& context) {
  const SymbolicShape& x = context.InputShape(0);
  if (x.has_rank() && x.rank() < 2) {
    return context.Error(absl::StrCat("the input has rank ", x.rank(), ", expected 2 or more"));
  }
  if (context.HasInput(1)) {
    const std::optional<Shape> k = context.InputShape(1).ToConcrete();
    if (k.has_value() && k->num_elements() != 1) {
      return context.Error(absl::StrCat("k has the shape ", k->ToString(), ", expected a scalar"));
    }
  }
  return InferLikeFirstInput(context);
}

absl::Status TriluGradient(GradientContext& context) {
  const ValueId dy = context.OutputGradient(0);
  if (!dy.valid() || !context.NeedsInputGradient(0)) return absl::OkStatus();
  std::vector<ValueId> inputs = {dy};
  if (context.Input(1).valid()) inputs.push_back(context.Input(1));
  context.SetInputGradient(
      0, context.builder().Op("Trilu", std::move(inputs), context.node().attributes));
  return context.builder().status();
}

// Positions in the last two axes decide; the others are a batch.
absl::StatusOr<FactorRule> TriluRule(const NodeView& view) {
  FactorRuleBuilder rule;
  const Shape& shape = view.InputShape(0);
  std::vector<int> factors;
  for (int d = 0; d < shape.rank(); ++d) {
    const bool is_batch = d < shape.rank() - 2;
    factors.push_back(
        rule.Factor(shape.dim(d), is_batch ? FactorKind::kParallel : FactorKind::kWhole));
  }
  rule.Input(factors);
  if (view.num_inputs() > 1) rule.ReplicatedInput(view.InputShape(1));
  return rule.Output(factors).Linear({{0}}).Build();
}

WEFT_REGISTER_OP(OpSchema::Onnx("Trilu")
                     .Input("input")
                     .OptionalInput("k", {DType::kInt64})
                     .NeverLearnable()
                     .Output("output")
                     .Attr("upper", AttributeType::kInt)
                     .Infer(InferTrilu)
                     .Gradient(TriluGradient)
                     .Sharding(TriluRule)
                     .Elements(ElementUse::kMoves)
                     .CostOf(FlopsPerElement(0))
                     .InPlace(0, 0));

absl::Status InferEyeLike(InferenceContext& context) {
  const ValueType& x = context.InputType(0);
  if (x.shape.has_rank() && x.shape.rank() != 2) {
    return context.Error(absl::StrCat("the input has rank ", x.shape.rank(), ", expected 2"));
  }
  const int64_t dtype = context.attributes().Int("dtype", static_cast<int64_t>(x.dtype));
  if (dtype < 0 || dtype > kDTypeCount - 1) {
    return context.Error(
        absl::StrCat("attribute dtype is ", dtype, ", expected an ONNX data type"));
  }
  context.SetOutput(0, static_cast<DType>(dtype), x.shape);
  return absl::OkStatus();
}

WEFT_REGISTER_OP(OpSchema::Onnx("EyeLike")
                     .Input("input", kRealTypes)
                     .Output("output")
                     .Attr("dtype", AttributeType::kInt)
                     .Attr("k", AttributeType::kInt)
                     .Infer(InferEyeLike)
                     .NoGradient("made of sizes, positions or attributes alone")
                     .CostOf(FlopsPerElement(0)));

absl::Status InferDet(InferenceContext& context) {
  const ValueType& x = context.InputType(0);
  if (!x.shape.has_rank()) {
    context.SetOutput(0, x.dtype, SymbolicShape());
    return absl::OkStatus();
  }
  const int rank = x.shape.rank();
  const auto is_square = [&] {
    const Dim& rows = x.shape.dim(rank - 2);
    const Dim& columns = x.shape.dim(rank - 1);
    return !rows.is_known() || !columns.is_known() || rows.size() == columns.size();
  };
  if (rank < 2 || !is_square()) {
    return context.Error(absl::StrCat("the input is ", x.shape.ToString(),
                                      ", expected square matrices in its last two axes"));
  }
  context.SetOutput(
      0, x.dtype,
      SymbolicShape(std::vector<Dim>(x.shape.dims().begin(), x.shape.dims().end() - 2)));
  return absl::OkStatus();
}

absl::Status InferDetGrad(InferenceContext& context) {
  WEFT_RETURN_IF_ERROR(CheckSameDType(context, {0, 1}));
  const SymbolicShape& x = context.InputShape(1);
  if (x.has_rank() && x.rank() < 2) {
    return context.Error(absl::StrCat("X has shape ", x.ToString(), ", expected matrices"));
  }
  context.SetOutput(0, context.InputType(1));
  return absl::OkStatus();
}

// dX = dY times the cofactors of X, which has no inverse where Y is zero.
WEFT_REGISTER_OP(
    OpSchema::Weft("DetGrad")
        .GradientMissing("part of a gradient")
        .Input("dY", kFloatTypes)
        .Input("X", kFloatTypes)
        .Output("dX")
        .Infer(InferDetGrad)
        .CostOf([](const NodeView& view) {
          const Shape& x = view.InputShape(1);
          const double n = static_cast<double>(x.dim(x.rank() - 1));
          return Cost{4 * n * static_cast<double>(x.num_elements()), OperandBytes(view)};
        }));

WEFT_REGISTER_OP(
    OpSchema::Onnx("Det")
        .Input("X", kFloatTypes)
        .Output("Y")
        .Infer(InferDet)
        .Gradient(UnaryGradient([](GraphBuilder& b, ValueId dy, ValueId x, ValueId) {
          return b.WeftOp("DetGrad", {dy, x});
        }))
        .CostOf([](const NodeView& view) {
          const Shape& x = view.InputShape(0);
          const double n = static_cast<double>(x.dim(x.rank() - 1));
          return Cost{2.0 / 3 * n * static_cast<double>(x.num_elements()), OperandBytes(view)};
        }));

}  // namespace
}  // namespace weft
