// Transpose: output axis i is input axis perm[i].
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "graph/graph_builder.h"
#include "ops/defs/movement/shape_dims.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

// Attribute perm; the axes in reverse order when it is absent.
std::vector<int64_t> Permutation(const Attributes& attributes, int rank) {
  if (attributes.Has("perm")) return attributes.Ints("perm");
  std::vector<int64_t> reversed(rank);
  for (int axis = 0; axis < rank; ++axis) reversed[axis] = rank - 1 - axis;
  return reversed;
}

absl::Status InferTranspose(InferenceContext& context) {
  const DType dtype = context.InputType(0).dtype;
  const SymbolicShape& input = context.InputShape(0);
  const bool has_perm = context.attributes().Has("perm");
  const int rank =
      input.has_rank() ? input.rank() : static_cast<int>(context.attributes().Ints("perm").size());
  const std::vector<int64_t> perm = Permutation(context.attributes(), rank);
  std::vector<bool> seen(rank, false);
  bool is_permutation = static_cast<int>(perm.size()) == rank;
  for (const int64_t axis : perm) {
    is_permutation = is_permutation && axis >= 0 && axis < rank && !seen[axis];
    if (is_permutation) seen[axis] = true;
  }
  if (!is_permutation) {
    return context.Error(absl::StrCat("attribute perm [", absl::StrJoin(perm, ","),
                                      "] must name each of the ", rank, " axes of ",
                                      input.ToString(), " once"));
  }
  if (!input.has_rank()) {
    context.SetOutput(0, dtype, has_perm ? SymbolicShape(UnknownDims(rank)) : SymbolicShape());
    return absl::OkStatus();
  }
  Dims dims;
  for (const int64_t axis : perm) dims.push_back(input.dim(static_cast<int>(axis)));
  const SymbolicShape output(std::move(dims));
  context.SetOutput(0, dtype, output);
  ForwardDims(context, output);
  return absl::OkStatus();
}

absl::Status TransposeGradient(GradientContext& context) {
  const Attributes& attributes = context.node().attributes;
  Attributes inverse;  // of the reversed axes: again the reversed axes
  if (attributes.Has("perm")) {
    const std::vector<int64_t> perm = attributes.Ints("perm");
    std::vector<int64_t> inverse_perm(perm.size());
    for (size_t i = 0; i < perm.size(); ++i) inverse_perm[perm[i]] = static_cast<int64_t>(i);
    inverse.Set("perm", inverse_perm);
  }
  GraphBuilder& builder = context.builder();
  context.SetInputGradient(0, builder.Op("Transpose", {context.OutputGradient(0)}, inverse));
  return builder.status();
}

absl::StatusOr<FactorRule> TransposeRule(const NodeView& view) {
  FactorRule rule = EmptyRule(view);
  const Shape& input = view.InputShape(0);
  const std::vector<int64_t> perm = Permutation(view.attributes(), input.rank());
  for (int axis = 0; axis < input.rank(); ++axis) {
    const int from = static_cast<int>(perm[axis]);
    const int factor = AddFactor(rule, input.dim(from), FactorKind::kParallel);
    rule.inputs[0].dims[from] = {factor};
    rule.outputs[0].dims[axis] = {factor};
  }
  rule.linear = {{0}};
  return rule;
}

WEFT_REGISTER_OP(OpSchema::Onnx("Transpose")
                     .Input("data")
                     .Output("transposed")
                     .Attr("perm", AttributeType::kInts)
                     .Elements(ElementUse::kMoves)
                     .Infer(InferTranspose)
                     .Gradient(TransposeGradient)
                     .Sharding(TransposeRule)
                     .CostOf(MovementCost));

}  // namespace
}  // namespace weft
