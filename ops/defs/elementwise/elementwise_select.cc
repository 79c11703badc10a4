// Comparisons, Not and Where.
#include "ops/defs/rules/gradients.h"
#include "ops/defs/rules/rules.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

OpSchema Comparison(std::string name, std::initializer_list<DType> dtypes) {
  return OpSchema::Onnx(std::move(name))
      .Input("A", dtypes)
      .Input("B", dtypes)
      .Output("C")
      .Infer(InferComparison)
      .NoGradient("truth values")
      .Sharding(ElementwiseRule)
      .CostOf(FlopsPerElement(1));
}

WEFT_REGISTER_OP(Comparison("Equal", {DType::kFloat32, DType::kFloat64, DType::kFloat16,
                                      DType::kBfloat16, DType::kInt8, DType::kInt16, DType::kInt32,
                                      DType::kInt64, DType::kUint8, DType::kUint16, DType::kUint32,
                                      DType::kUint64, DType::kBool, DType::kString})
                     .Elements(ElementUse::kCompares));
WEFT_REGISTER_OP(Comparison("Less", kNumericTypes));
WEFT_REGISTER_OP(Comparison("Greater", kNumericTypes));

WEFT_REGISTER_OP(OpSchema::Onnx("Not")
                     .Input("X", {DType::kBool})
                     .Output("Y")
                     .Infer(InferLikeFirstInput)
                     .NoGradient("truth values")
                     .Sharding(ElementwiseRule)
                     .CostOf(FlopsPerElement(1))
                     .InPlace(0, 0));

absl::Status InferWhere(InferenceContext& context) {
  WEFT_RETURN_IF_ERROR(CheckSameDType(context, {1, 2}));
  WEFT_ASSIGN_OR_RETURN(SymbolicShape shape, BroadcastInputs(context, {0, 1, 2}));
  context.SetOutput(0, context.InputType(1).dtype, std::move(shape));
  return absl::OkStatus();
}

absl::Status WhereGradient(GradientContext& context) {
  const ValueId dy = context.OutputGradient(0);
  if (!dy.valid()) return absl::OkStatus();
  GraphBuilder& b = context.builder();
  const ValueId condition = context.Input(0);
  const ValueId zero = b.Scalar(b.type(dy).dtype, 0);
  if (context.NeedsInputGradient(1)) {
    const ValueId dx = b.Op("Where", {condition, dy, zero});
    context.SetInputGradient(1, SumToLike(b, dx, context.Input(1)));
  }
  if (context.NeedsInputGradient(2)) {
    const ValueId dx = b.Op("Where", {condition, zero, dy});
    context.SetInputGradient(2, SumToLike(b, dx, context.Input(2)));
  }
  return b.status();
}

WEFT_REGISTER_OP(OpSchema::Onnx("Where")
                     .Input("condition", {DType::kBool})
                     .Input("X")
                     .Input("Y")
                     .Output("output")
                     .Infer(InferWhere)
                     .Gradient(WhereGradient)
                     .Sharding(LinearElementwiseRule({{1, 2}}))
                     .CostOf(FlopsPerElement(1))
                     .InPlace(1, 0)
                     .InPlace(2, 0)
                     .Elements(ElementUse::kMoves));

}  // namespace
}  // namespace weft
