#include "ops/defs/movement/shape_dims.h"

#include "absl/strings/str_cat.h"
#include "platform/status_macros.h"

namespace weft {

Dims UnknownDims(int64_t rank) { return Dims(static_cast<size_t>(rank)); }

std::optional<Dim> MergeDims(const Dim& a, const Dim& b) {
  if (a.is_known() && b.is_known()) {
    if (a.size() != b.size()) return std::nullopt;
    return a;
  }
  if (a.is_known()) return a;
  if (b.is_known()) return b;
  return a.is_symbol() ? a : b;
}

SymbolicShape CommonShape(const SymbolicShape& a, const SymbolicShape& b) {
  if (!a.has_rank() || !b.has_rank() || a.rank() != b.rank()) return SymbolicShape();
  Dims dims;
  for (int axis = 0; axis < a.rank(); ++axis) {
    dims.push_back(a.dim(axis) == b.dim(axis) ? a.dim(axis) : Dim());
  }
  return SymbolicShape(std::move(dims));
}

std::optional<Dim> BroadcastDims(const Dim& a, const Dim& b) {
  if (a.is_known() && a.size() == 1) return b;
  if (b.is_known() && b.size() == 1) return a;
  if (a.is_known() || b.is_known()) return MergeDims(a, b);
  if (a == b) return a;
  return Dim();
}

Dim ProductOfDims(const Dims& dims, int begin, int end) {
  int64_t known = 1;
  bool overflow = false;
  const Dim* symbol = nullptr;
  int open = 0;
  for (int axis = begin; axis < end; ++axis) {
    const Dim& dim = dims[axis];
    if (dim.is_known()) {
      if (dim.size() == 0) return Dim(0);
      overflow |= __builtin_mul_overflow(known, dim.size(), &known);
    } else {
      ++open;
      symbol = &dim;
    }
  }
  if (overflow) return Dim();
  if (open == 0) return Dim(known);
  return open == 1 && known == 1 ? *symbol : Dim();
}

Dim SumOfDims(const Dims& dims) {
  int64_t known = 0;
  const Dim* symbol = nullptr;
  int open = 0;
  for (const Dim& dim : dims) {
    if (dim.is_known()) {
      if (__builtin_add_overflow(known, dim.size(), &known)) return Dim();
    } else {
      ++open;
      symbol = &dim;
    }
  }
  if (open == 0) return Dim(known);
  return open == 1 && known == 0 ? *symbol : Dim();
}

std::string DimsToString(const Dims& dims) { return SymbolicShape(dims).ToString(); }

absl::Status SetCheckedOutput(InferenceContext& context, DType dtype, Dims dims) {
  // Dimensions that are not known count as one: the product of the others must fit already.
  std::vector<int64_t> sizes;
  for (const Dim& dim : dims) sizes.push_back(dim.is_known() ? dim.size() : 1);
  const absl::StatusOr<Shape> bounds = Shape::Create(sizes);
  if (!bounds.ok()) return context.Error(std::string(bounds.status().message()));
  context.SetOutput(0, dtype, SymbolicShape(std::move(dims)));
  return absl::OkStatus();
}

void ForwardDims(InferenceContext& context, const SymbolicShape& output) {
  if (!output.has_rank() || output.rank() > 1) return;
  std::optional<Dims> elements = context.InputDims(0);
  if (elements.has_value()) context.SetOutputDims(0, *std::move(elements));
}

absl::StatusOr<std::optional<std::vector<int64_t>>> KnownInts(InferenceContext& context, int i) {
  using Result = std::optional<std::vector<int64_t>>;
  if (!context.HasInput(i)) return Result();
  const SymbolicShape& shape = context.InputShape(i);
  if (shape.has_rank() && shape.rank() > 1) {
    return context.Error(absl::StrCat("input ", i,
                                      " must be a list of integers, of one axis; it is ",
                                      context.InputType(i).ToString()));
  }
  const Tensor* value = context.InputValue(i);
  if (value == nullptr) return Result();
  absl::StatusOr<std::vector<int64_t>> values = ToInt64s(*value);
  if (!values.ok()) return context.Error(std::string(values.status().message()));
  return Result(*std::move(values));
}

absl::StatusOr<std::optional<Dims>> TargetDims(InferenceContext& context, int i) {
  WEFT_ASSIGN_OR_RETURN(const auto values, KnownInts(context, i));
  if (values.has_value()) {
    for (const int64_t size : *values) {
      if (size < 0) {
        return context.Error(absl::StrCat("input ", i, " asks for a dimension of ", size));
      }
    }
    return std::optional<Dims>(Dims(values->begin(), values->end()));
  }
  if (std::optional<Dims> dims = context.InputDims(i); dims.has_value()) return dims;
  const SymbolicShape& shape = context.InputShape(i);
  if (!shape.has_rank() || shape.rank() > 1) return std::optional<Dims>();
  const Dim length = shape.rank() == 0 ? Dim(1) : shape.dim(0);
  if (!length.is_known() || length.size() > kMaxRank) return std::optional<Dims>();
  return std::optional<Dims>(UnknownDims(length.size()));
}

absl::StatusOr<std::vector<int64_t>> RequiredInts(const NodeView& view, int i) {
  const Tensor* value = view.HasInput(i) ? view.InputValue(i) : nullptr;
  if (value == nullptr) {
    return absl::InternalError(absl::StrCat("node '", view.node().name, "' (", view.node().op,
                                            "): the value of input ", i,
                                            " must be known when the program is compiled"));
  }
  return ToInt64s(*value);
}

std::vector<int64_t> DimsOf(const Shape& shape) {
  return std::vector<int64_t>(shape.dims().begin(), shape.dims().end());
}

Tensor IntsTensor(const std::vector<int64_t>& values) {
  return Tensor::Of<int64_t>(Shape{static_cast<int64_t>(values.size())}, values);
}

absl::StatusOr<int> AxisOf(InferenceContext& context, int64_t axis, int rank) {
  const absl::StatusOr<int> normalized = NormalizeAxis(axis, rank);
  if (!normalized.ok()) return context.Error(std::string(normalized.status().message()));
  return *normalized;
}

Cost MovementCost(const NodeView& view) {
  Cost cost;
  for (int i = 0; i < view.num_outputs(); ++i) {
    if (!view.HasOutput(i)) continue;
    // Each element is read once and written once.
    cost.bytes += 2.0 * static_cast<double>(
                            DTypeBytes(view.OutputDType(i), view.OutputShape(i).num_elements()));
  }
  return cost;
}

Cost AliasCost(const NodeView&) { return Cost{}; }

int AddFactor(FactorRule& rule, int64_t size, FactorKind kind) {
  rule.factors.push_back(Factor{size, kind});
  return static_cast<int>(rule.factors.size()) - 1;
}

FactorRule EmptyRule(const NodeView& view) {
  FactorRule rule;
  rule.inputs.resize(view.num_inputs());
  for (int i = 0; i < view.num_inputs(); ++i) {
    if (view.HasInput(i)) rule.inputs[i].dims.resize(view.InputShape(i).rank());
  }
  rule.outputs.resize(view.num_outputs());
  for (int i = 0; i < view.num_outputs(); ++i) {
    if (view.HasOutput(i)) rule.outputs[i].dims.resize(view.OutputShape(i).rank());
  }
  return rule;
}

void AddShapeInputs(const NodeView& view, int first, FactorRule& rule) {
  for (int i = first; i < view.num_inputs(); ++i) {
    if (!view.HasInput(i)) continue;
    rule.shape_inputs.push_back(i);
    for (int axis = 0; axis < view.InputShape(i).rank(); ++axis) {
      rule.inputs[i].dims[axis] = {
          AddFactor(rule, view.InputShape(i).dim(axis), FactorKind::kWhole)};
    }
  }
}

}  // namespace weft
