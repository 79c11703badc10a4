// MatMulInteger and QLinearMatMul.
#include "absl/strings/str_cat.h"
#include "ops/defs/movement/shape_dims.h"
#include "ops/defs/quantized/quantized.h"
#include "ops/defs/rules/rules.h"
#include "ops/defs/rules/type_lists.h"
#include "platform/status_macros.h"

namespace weft {

absl::StatusOr<SymbolicShape> MatMulShape(InferenceContext& context, int a_input, int b_input) {
  const SymbolicShape& a_shape = context.InputShape(a_input);
  const SymbolicShape& b_shape = context.InputShape(b_input);
  if (!a_shape.has_rank() || !b_shape.has_rank()) return SymbolicShape();
  Dims a = a_shape.dims();
  Dims b = b_shape.dims();
  if (a.empty() || b.empty()) {
    return context.Error("the operands must have one axis or more, but one is a scalar");
  }
  const bool row_vector = a.size() == 1;
  const bool column_vector = b.size() == 1;
  if (row_vector) a.insert(a.begin(), Dim(1));
  if (column_vector) b.push_back(Dim(1));
  if (!MergeDims(a.back(), b[b.size() - 2]).has_value()) {
    return context.Error(absl::StrCat("the operands ", a_shape.ToString(), " and ",
                                      b_shape.ToString(), " do not share the summed axis"));
  }
  const Dim m = a[a.size() - 2];
  const Dim n = b.back();
  a.resize(a.size() - 2);
  b.resize(b.size() - 2);
  if (a.size() < b.size()) std::swap(a, b);
  Dims dims = a;
  for (size_t d = 0; d < b.size(); ++d) {
    Dim& dim = dims[dims.size() - b.size() + d];
    const std::optional<Dim> both = BroadcastDims(dim, b[d]);
    if (!both.has_value()) {
      return context.Error(absl::StrCat("the operands ", a_shape.ToString(), " and ",
                                        b_shape.ToString(), " do not broadcast"));
    }
    dim = *both;
  }
  if (!row_vector) dims.push_back(m);
  if (!column_vector) dims.push_back(n);
  return SymbolicShape(std::move(dims));
}

namespace {

Cost ProductCost(const NodeView& view) {
  const Shape& a = view.InputShape(0);
  const double k = a.rank() == 0 ? 1 : static_cast<double>(a.dim(a.rank() - 1));
  return {2 * k * static_cast<double>(view.OutputShape(0).num_elements()), OperandBytes(view)};
}

absl::Status InferMatMulInteger(InferenceContext& context) {
  WEFT_ASSIGN_OR_RETURN(SymbolicShape shape, MatMulShape(context, 0, 1));
  context.SetOutput(0, DType::kInt32, std::move(shape));
  return absl::OkStatus();
}

WEFT_REGISTER_OP(OpSchema::Onnx("MatMulInteger")
                     .Input("A", kByteTypes)
                     .Input("B", kByteTypes)
                     .OptionalInput("a_zero_point", kByteTypes)
                     .OptionalInput("b_zero_point", kByteTypes)
                     .Output("Y")
                     .Infer(InferMatMulInteger)
                     .NoGradient("whole numbers")
                     .CostOf(ProductCost));

absl::Status InferQLinearMatMul(InferenceContext& context) {
  WEFT_ASSIGN_OR_RETURN(SymbolicShape shape, MatMulShape(context, 0, 3));
  context.SetOutput(0, context.InputType(7).dtype, std::move(shape));
  return absl::OkStatus();
}

constexpr std::initializer_list<DType> kFactorTypes = {
    DType::kInt8,           DType::kUint8,      DType::kFloat8E4M3Fn,
    DType::kFloat8E4M3Fnuz, DType::kFloat8E5M2, DType::kFloat8E5M2Fnuz};
constexpr std::initializer_list<DType> kScaleTypes = {DType::kFloat32, DType::kFloat16,
                                                      DType::kBfloat16};

WEFT_REGISTER_OP(OpSchema::Onnx("QLinearMatMul")
                     .Input("a", kFactorTypes)
                     .Input("a_scale", kScaleTypes)
                     .NeverLearnable()
                     .Input("a_zero_point", kFactorTypes)
                     .Input("b", kFactorTypes)
                     .Input("b_scale", kScaleTypes)
                     .NeverLearnable()
                     .Input("b_zero_point", kFactorTypes)
                     .Input("y_scale", kScaleTypes)
                     .NeverLearnable()
                     .Input("y_zero_point", kFactorTypes)
                     .Output("y")
                     .Infer(InferQLinearMatMul)
                     .NoGradient("whole numbers")
                     .CostOf(ProductCost));

}  // namespace
}  // namespace weft
