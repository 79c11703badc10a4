#include "ops/defs/rules/rules.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

// The broadcast of two dimensions; nullopt when two known sizes clash.
std::optional<Dim> BroadcastDim(const Dim& a, const Dim& b) {
  const bool a_is_one = a.is_known() && a.size() == 1;
  const bool b_is_one = b.is_known() && b.size() == 1;
  if (a == b || b_is_one) return a;
  if (a_is_one) return b;
  if (a.is_known() && b.is_known()) return std::nullopt;
  // A known size other than one decides: the other side must be equal to it or one.
  if (a.is_known()) return a;
  if (b.is_known()) return b;
  return Dim();
}

std::vector<int> PresentInputs(const InferenceContext& context) {
  std::vector<int> inputs;
  for (int i = 0; i < context.num_inputs(); ++i) {
    if (context.HasInput(i)) inputs.push_back(i);
  }
  return inputs;
}

}  // namespace

absl::Status InferLikeFirstInput(InferenceContext& context) {
  context.SetOutput(0, context.InputType(0));
  return absl::OkStatus();
}

absl::Status InferBroadcast(InferenceContext& context) {
  const std::vector<int> inputs = PresentInputs(context);
  WEFT_RETURN_IF_ERROR(CheckSameDType(context, inputs));
  WEFT_ASSIGN_OR_RETURN(SymbolicShape shape, BroadcastInputs(context, inputs));
  context.SetOutput(0, context.InputType(0).dtype, std::move(shape));
  return absl::OkStatus();
}

absl::Status InferComparison(InferenceContext& context) {
  const std::vector<int> inputs = PresentInputs(context);
  WEFT_RETURN_IF_ERROR(CheckSameDType(context, inputs));
  WEFT_ASSIGN_OR_RETURN(SymbolicShape shape, BroadcastInputs(context, inputs));
  context.SetOutput(0, DType::kBool, std::move(shape));
  return absl::OkStatus();
}

absl::StatusOr<SymbolicShape> BroadcastInputs(const InferenceContext& context,
                                              const std::vector<int>& inputs) {
  size_t rank = 0;
  for (const int i : inputs) {
    if (!context.InputShape(i).has_rank()) return SymbolicShape();
    rank = std::max(rank, context.InputShape(i).dims().size());
  }
  std::vector<Dim> dims(rank, Dim(1));
  for (const int i : inputs) {
    const std::vector<Dim>& input = context.InputShape(i).dims();
    const size_t first = rank - input.size();
    for (size_t d = 0; d < input.size(); ++d) {
      const std::optional<Dim> dim = BroadcastDim(dims[first + d], input[d]);
      if (!dim.has_value()) {
        return context.Error(absl::StrCat("the shapes do not broadcast: axis ", first + d, " is ",
                                          dims[first + d].ToString(), " and, in input ", i, ", ",
                                          input[d].ToString(), "; sizes must be equal or 1"));
      }
      dims[first + d] = *dim;
    }
  }
  return SymbolicShape(std::move(dims));
}

absl::StatusOr<Shape> BroadcastShapes(const Shape& a, const Shape& b) {
  const Shape& longer = a.rank() >= b.rank() ? a : b;
  const Shape& shorter = a.rank() >= b.rank() ? b : a;
  Shape result = longer;
  const int first = longer.rank() - shorter.rank();
  for (int d = 0; d < shorter.rank(); ++d) {
    const std::optional<Dim> dim = BroadcastDim(longer.dim(first + d), shorter.dim(d));
    if (!dim.has_value()) {
      return absl::InvalidArgumentError(
          absl::StrCat("the shapes ", a.ToString(), " and ", b.ToString(), " do not broadcast"));
    }
    result.set_dim(first + d, dim->size());
  }
  return result;
}

absl::Status CheckSameDType(const InferenceContext& context, const std::vector<int>& inputs) {
  DType first = DType::kInvalid;
  for (const int i : inputs) {
    const DType dtype = context.InputType(i).dtype;
    if (dtype == DType::kInvalid) continue;
    if (first == DType::kInvalid) first = dtype;
    if (dtype != first) {
      return context.Error(absl::StrCat("the operands must have one type, but input ", i, " is ",
                                        std::string(DTypeName(dtype)), " and an earlier one ",
                                        std::string(DTypeName(first)), "; add a Cast"));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<int> AxisAttribute(const InferenceContext& context, const std::string& name,
                                  int64_t fallback, int rank) {
  const int64_t axis = context.attributes().Int(name, fallback);
  const absl::StatusOr<int> normalized = NormalizeAxis(axis, rank);
  if (normalized.ok()) return *normalized;
  return context.Error(absl::StrCat("attribute ", name, " is ", axis, ", expected a value in [",
                                    -rank, ", ", rank, ") for an input of rank ", rank));
}

int ConcreteAxis(const NodeView& view, const std::string& name, int64_t fallback, int rank) {
  const int64_t axis = view.attributes().Int(name, fallback);
  return static_cast<int>(axis < 0 ? axis + rank : axis);
}

int FactorRuleBuilder::Factor(int64_t size, FactorKind kind) {
  rule_.factors.push_back({size, kind});
  return static_cast<int>(rule_.factors.size()) - 1;
}

std::vector<int> FactorRuleBuilder::Factors(const Shape& shape, FactorKind kind) {
  std::vector<int> factors;
  for (const int64_t dim : shape.dims()) factors.push_back(Factor(dim, kind));
  return factors;
}

FactorRuleBuilder& FactorRuleBuilder::FactoredInput(std::vector<std::vector<int>> dims) {
  rule_.inputs.push_back({std::move(dims)});
  return *this;
}

FactorRuleBuilder& FactorRuleBuilder::FactoredOutput(std::vector<std::vector<int>> dims) {
  rule_.outputs.push_back({std::move(dims)});
  return *this;
}

namespace {
std::vector<std::vector<int>> OneFactorEach(const std::vector<int>& dims) {
  std::vector<std::vector<int>> factors;
  for (const int dim : dims) {
    factors.push_back(dim < 0 ? std::vector<int>() : std::vector<int>{dim});
  }
  return factors;
}
}  // namespace

FactorRuleBuilder& FactorRuleBuilder::Input(const std::vector<int>& dims) {
  return FactoredInput(OneFactorEach(dims));
}

FactorRuleBuilder& FactorRuleBuilder::Output(const std::vector<int>& dims) {
  return FactoredOutput(OneFactorEach(dims));
}

OperandFactors FactorRuleBuilder::Whole(const Shape& shape) {
  return {OneFactorEach(Factors(shape, FactorKind::kWhole))};
}

FactorRuleBuilder& FactorRuleBuilder::ReplicatedInput(const Shape& shape) {
  rule_.inputs.push_back(Whole(shape));
  return *this;
}

FactorRuleBuilder& FactorRuleBuilder::ShapeInput(const Shape& shape) {
  rule_.shape_inputs.push_back(static_cast<int>(rule_.inputs.size()));
  return ReplicatedInput(shape);
}

FactorRuleBuilder& FactorRuleBuilder::Linear(std::vector<std::vector<int>> sets) {
  rule_.linear = std::move(sets);
  return *this;
}

absl::StatusOr<FactorRule> ElementwiseRule(const NodeView& view) {
  FactorRuleBuilder rule;
  const Shape& output = view.OutputShape(0);
  const std::vector<int> factors = rule.Factors(output);
  for (int i = 0; i < view.num_inputs(); ++i) {
    const Shape& input = view.InputShape(i);
    const int first = output.rank() - input.rank();
    std::vector<int> dims;
    for (int d = 0; d < input.rank(); ++d) {
      dims.push_back(input.dim(d) == output.dim(first + d) ? factors[first + d] : -1);
    }
    rule.Input(dims);
  }
  for (int i = 0; i < view.num_outputs(); ++i) {
    rule.Output(view.HasOutput(i) ? factors : std::vector<int>());
  }
  return rule.Build();
}

ShardingFn LinearElementwiseRule(std::vector<std::vector<int>> linear) {
  return [linear = std::move(linear)](const NodeView& view) -> absl::StatusOr<FactorRule> {
    WEFT_ASSIGN_OR_RETURN(FactorRule rule, ElementwiseRule(view));
    rule.linear = linear;
    return rule;
  };
}

ShardingFn WholeAxisRule(std::string name, int64_t fallback, std::vector<std::vector<int>> linear) {
  return [name = std::move(name), fallback,
          linear = std::move(linear)](const NodeView& view) -> absl::StatusOr<FactorRule> {
    WEFT_ASSIGN_OR_RETURN(FactorRule rule, ElementwiseRule(view));
    const int rank = view.InputShape(0).rank();
    if (rank > 0) {
      rule.factors[ConcreteAxis(view, name, fallback, rank)].kind = FactorKind::kWhole;
    }
    rule.linear = linear;
    return rule;
  };
}

FactorRule WholeRuleOf(const NodeView& view) {
  std::vector<Shape> inputs;
  std::vector<Shape> outputs;
  for (int i = 0; i < view.num_inputs(); ++i) inputs.push_back(view.InputShape(i));
  for (int i = 0; i < view.num_outputs(); ++i) outputs.push_back(view.OutputShape(i));
  return WholeRule(inputs, outputs);
}

double OperandBytes(const NodeView& view) {
  double bytes = 0;
  for (int i = 0; i < view.num_inputs(); ++i) {
    if (!view.HasInput(i)) continue;
    bytes += static_cast<double>(DTypeBytes(view.InputDType(i), view.InputShape(i).num_elements()));
  }
  for (int i = 0; i < view.num_outputs(); ++i) {
    if (!view.HasOutput(i)) continue;
    bytes +=
        static_cast<double>(DTypeBytes(view.OutputDType(i), view.OutputShape(i).num_elements()));
  }
  return bytes;
}

CostFn FlopsPerElement(double flops) {
  return [flops](const NodeView& view) {
    const double elements = static_cast<double>(view.OutputShape(0).num_elements());
    return Cost{flops * elements, OperandBytes(view)};
  };
}

}  // namespace weft
