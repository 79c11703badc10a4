// Einsum: sums of products along named axes.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "ops/defs/einsum_equation.h"
#include "ops/defs/gradients.h"
#include "ops/defs/rules.h"
#include "ops/defs/shape_dims.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

absl::Status InferEinsum(InferenceContext& context) {
  std::vector<int> inputs;
  std::vector<int> ranks;
  bool known = true;
  for (int i = 0; i < context.num_inputs(); ++i) {
    inputs.push_back(i);
    known = known && context.InputShape(i).has_rank();
    ranks.push_back(context.InputShape(i).has_rank() ? context.InputShape(i).rank() : 0);
  }
  if (inputs.empty()) return context.Error("the op has no inputs, expected at least 1");
  WEFT_RETURN_IF_ERROR(CheckSameDType(context, inputs));
  const DType dtype = context.InputType(0).dtype;
  if (!known) {
    context.SetOutput(0, dtype, SymbolicShape());
    return absl::OkStatus();
  }
  const absl::StatusOr<EinsumEquation> equation =
      EinsumEquation::Parse(context.attributes().String("equation", ""), ranks);
  if (!equation.ok()) return context.Error(std::string(equation.status().message()));
  Dims sizes(equation->label_count, Dim(1));
  for (size_t i = 0; i < inputs.size(); ++i) {
    for (size_t d = 0; d < equation->operands[i].size(); ++d) {
      Dim& size = sizes[equation->operands[i][d]];
      const Dim& dim = context.InputShape(static_cast<int>(i)).dim(static_cast<int>(d));
      const std::optional<Dim> both = BroadcastDims(size, dim);
      if (!both.has_value()) {
        return context.Error(absl::StrCat("axis ", d, " of input ", i, " is ", dim.ToString(),
                                          ", but another axis of its label ", size.ToString()));
      }
      size = *both;
    }
  }
  Dims dims;
  for (const int label : equation->output) dims.push_back(sizes[label]);
  return SetCheckedOutput(context, dtype, std::move(dims));
}

// The gradient of one operand is the Einsum of dy and the other operands. Unimplemented where an
// axis of the operand is in none of them, or twice in its own.
absl::StatusOr<ValueId> GradientOfOperand(GradientContext& context, const EinsumEquation& equation,
                                          int operand) {
  std::vector<std::string> terms = {equation.output_term};
  std::vector<ValueId> inputs = {context.OutputGradient(0)};
  std::string others = equation.output_term;
  for (int i = 0; i < static_cast<int>(equation.operand_terms.size()); ++i) {
    if (i == operand) continue;
    terms.push_back(equation.operand_terms[i]);
    inputs.push_back(context.Input(i));
    others += equation.operand_terms[i];
  }
  const std::string& term = equation.operand_terms[operand];
  for (const char c : term) {
    const bool repeated = c != '.' && std::count(term.begin(), term.end(), c) > 1;
    if (!repeated && others.find(c) != std::string::npos) continue;
    return absl::UnimplementedError(absl::StrCat("no gradient of Einsum for the term '", term,
                                                 "': its axis '", std::string(1, c), "' is ",
                                                 repeated ? "there twice" : "in no other term"));
  }
  GraphBuilder& b = context.builder();
  const ValueId gradient =
      b.Op("Einsum", std::move(inputs),
           {{"equation", absl::StrCat(absl::StrJoin(terms, ","), "->", term)}});
  return SumToLike(b, gradient, context.Input(operand));
}

absl::Status EinsumGradient(GradientContext& context) {
  if (!context.OutputGradient(0).valid()) return absl::OkStatus();
  std::vector<int> ranks;
  for (const ValueId input : context.node().inputs) {
    const SymbolicShape& shape = context.builder().type(input).shape;
    if (!shape.has_rank()) return absl::UnimplementedError("Einsum of operands of unknown rank");
    ranks.push_back(shape.rank());
  }
  WEFT_ASSIGN_OR_RETURN(
      const EinsumEquation equation,
      EinsumEquation::Parse(context.node().attributes.String("equation", ""), ranks));
  for (int i = 0; i < static_cast<int>(ranks.size()); ++i) {
    if (!context.NeedsInputGradient(i)) continue;
    WEFT_ASSIGN_OR_RETURN(const ValueId gradient, GradientOfOperand(context, equation, i));
    context.SetInputGradient(i, gradient);
  }
  return context.builder().status();
}

// Two FLOPs for every combination of indices, as if no partial product were shared.
Cost EinsumCost(const NodeView& view) {
  std::vector<int> ranks;
  for (int i = 0; i < view.num_inputs(); ++i) ranks.push_back(view.InputShape(i).rank());
  const absl::StatusOr<EinsumEquation> equation =
      EinsumEquation::Parse(view.attributes().String("equation", ""), ranks);
  if (!equation.ok()) return Cost{0, OperandBytes(view)};
  std::vector<int64_t> sizes(equation->label_count, 1);
  for (int i = 0; i < view.num_inputs(); ++i) {
    for (int d = 0; d < ranks[i]; ++d) {
      int64_t& size = sizes[equation->operands[i][d]];
      size = std::max(size, view.InputShape(i).dim(d));
    }
  }
  double flops = 2;
  for (const int64_t size : sizes) flops *= static_cast<double>(size);
  return Cost{flops, OperandBytes(view)};
}

WEFT_REGISTER_OP(OpSchema::Onnx("Einsum")
                     .VariadicInput("Inputs", kNumericTypes)
                     .Output("Output")
                     .Attr("equation", AttributeType::kString, /*required=*/true)
                     .Infer(InferEinsum)
                     .Gradient(EinsumGradient)
                     .CostOf(EinsumCost));

}  // namespace
}  // namespace weft
