// Einsum: sums of products along named axes.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "ops/defs/linear/einsum_equation.h"
#include "ops/defs/movement/shape_dims.h"
#include "ops/defs/rules/gradients.h"
#include "ops/defs/rules/rules.h"
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

// A letter that the equation does not use, which is then used.
char FreshLabel(std::string& used) {
  for (const char* c = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"; *c != 0; ++c) {
    if (used.find(*c) != std::string::npos) continue;
    used += *c;
    return *c;
  }
  return 0;
}

// The gradient of one operand is the Einsum of dy and the other operands. An axis that the operand
// has twice (a diagonal) gets a label of its own and a unit matrix between the two; one that no
// other term has (a sum) is repeated.
class OperandGradient {
 public:
  OperandGradient(GradientContext& context, const EinsumEquation& equation, int operand)
      : context_(context), b_(context.builder()), operand_(context.Input(operand)) {
    terms_ = {equation.output_term};
    inputs_ = {context.OutputGradient(0)};
    for (int i = 0; i < static_cast<int>(equation.operand_terms.size()); ++i) {
      if (i == operand) continue;
      terms_.push_back(equation.operand_terms[i]);
      inputs_.push_back(context.Input(i));
    }
    others_ = absl::StrJoin(terms_, "");
    used_ = absl::StrCat(others_, equation.operand_terms[operand]);
    term_ = equation.operand_terms[operand];
  }

  absl::StatusOr<ValueId> Build() {
    if (term_.find('.') != std::string::npos && others_.find('.') == std::string::npos) {
      return absl::UnimplementedError(
          absl::StrCat("no gradient of Einsum for the term '", term_,
                       "': the axes of its ellipsis are in no other term"));
    }
    const bool simple = term_.find('.') == std::string::npos;
    std::string target;
    std::vector<int64_t> summed;
    for (size_t i = 0; i < term_.size(); ++i) {
      char c = term_[i];
      const bool seen = c != '.' && term_.find(c) < i;
      if (!seen && (c == '.' || others_.find(c) != std::string::npos)) {
        target += c;
        continue;
      }
      if (!simple) return Refuse(c);
      if (!seen && term_.find(c, i + 1) == std::string::npos) {
        summed.push_back(static_cast<int64_t>(i));
        continue;
      }
      target += seen ? WithUnitMatrix(c, static_cast<int>(i)) : c;
    }
    ValueId gradient = b_.Op(
        "Einsum", inputs_, {{"equation", absl::StrCat(absl::StrJoin(terms_, ","), "->", target)}});
    if (!summed.empty()) {
      gradient = b_.Op("Unsqueeze", {gradient, b_.Ints(summed)});
      gradient = b_.Op("Expand", {gradient, ShapeOf(b_, operand_)});
    }
    return SumToLike(b_, gradient, operand_);
  }

 private:
  absl::Status Refuse(char c) const {
    return absl::UnimplementedError(absl::StrCat("no gradient of Einsum for the term '", term_,
                                                 "': beside an ellipsis, axis '", std::string(1, c),
                                                 "' is there twice or in no other term"));
  }

  // A second label for axis `i`, which has label `c` before.
  char WithUnitMatrix(char c, int i) {
    const char fresh = FreshLabel(used_);
    const ValueId size = DimOf(b_, operand_, i);
    const ValueId square =
        b_.Op("ConstantOfShape", {b_.Op("Concat", {size, size}, {{"axis", int64_t{0}}})});
    const DType dtype = b_.type(context_.OutputGradient(0)).dtype;
    inputs_.push_back(b_.Op("EyeLike", {square}, {{"dtype", static_cast<int64_t>(dtype)}}));
    terms_.push_back({c, fresh});
    return fresh;
  }

  GradientContext& context_;
  GraphBuilder& b_;
  const ValueId operand_;
  std::vector<std::string> terms_;
  std::vector<ValueId> inputs_;
  std::string others_;  // labels of the terms of dy and the other operands
  std::string used_;
  std::string term_;
};

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
    WEFT_ASSIGN_OR_RETURN(const ValueId gradient, OperandGradient(context, equation, i).Build());
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

// A label is a factor, a sum where the output lacks it. One that an operand has twice (a diagonal)
// stays whole. An axis of one that is broadcast has no factor.
absl::StatusOr<FactorRule> EinsumRule(const NodeView& view) {
  std::vector<int> ranks;
  for (int i = 0; i < view.num_inputs(); ++i) ranks.push_back(view.InputShape(i).rank());
  WEFT_ASSIGN_OR_RETURN(const EinsumEquation equation,
                        EinsumEquation::Parse(view.attributes().String("equation", ""), ranks));
  std::vector<Factor> labels(equation.label_count, {1, FactorKind::kSum});
  for (const int label : equation.output) labels[label].kind = FactorKind::kParallel;
  for (int i = 0; i < view.num_inputs(); ++i) {
    const std::vector<int>& operand = equation.operands[i];
    for (int d = 0; d < ranks[i]; ++d) {
      Factor& label = labels[operand[d]];
      label.size = view.InputShape(i).dim(d) == 1 ? label.size : view.InputShape(i).dim(d);
      if (std::count(operand.begin(), operand.end(), operand[d]) > 1) {
        label.kind = FactorKind::kWhole;
      }
    }
  }
  FactorRuleBuilder rule;
  std::vector<int> factors;
  for (const Factor& label : labels) factors.push_back(rule.Factor(label.size, label.kind));
  std::vector<std::vector<int>> linear;
  for (int i = 0; i < view.num_inputs(); ++i) {
    std::vector<int> dims;
    for (int d = 0; d < ranks[i]; ++d) {
      const int label = equation.operands[i][d];
      const bool is_broadcast = view.InputShape(i).dim(d) != labels[label].size;
      dims.push_back(is_broadcast ? -1 : factors[label]);
    }
    rule.Input(dims);
    linear.push_back({i});
  }
  std::vector<int> output;
  for (const int label : equation.output) output.push_back(factors[label]);
  return rule.Output(output).Linear(std::move(linear)).Build();
}

WEFT_REGISTER_OP(OpSchema::Onnx("Einsum")
                     .VariadicInput("Inputs", kNumericTypes)
                     .Output("Output")
                     .Attr("equation", AttributeType::kString, /*required=*/true)
                     .Infer(InferEinsum)
                     .Gradient(EinsumGradient)
                     .Sharding(EinsumRule)
                     .CostOf(EinsumCost));

}  // namespace
}  // namespace weft
