// Identity, Reshape, Flatten, Squeeze, Unsqueeze: the same bytes under the same or another shape.
#include <algorithm>
#include <iterator>
#include <set>

#include "absl/strings/str_cat.h"
#include "graph/graph_builder.h"
#include "ops/defs/movement/reshape_factors.h"
#include "ops/defs/movement/shape_dims.h"
#include "ops/defs/rules/rules.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

// ---- What all of them share.

// dx has the shape of x. The shape is asked of x itself, so that the rule holds for symbolic
// shapes.
absl::Status ReshapeGradient(GradientContext& context) {
  GraphBuilder& builder = context.builder();
  const ValueId shape = builder.Op("Shape", {context.Input(0)});
  context.SetInputGradient(
      0, builder.Op("Reshape", {context.OutputGradient(0), shape}, {{"allowzero", int64_t{1}}}));
  return builder.status();
}

// Input 0 and output 0 in their common factors; any other input tells sizes or axes.
absl::StatusOr<FactorRule> ReshapeRule(const NodeView& view) {
  FactorRule rule = EmptyRule(view);
  AppendReshapeFactors(view.InputShape(0), view.OutputShape(0), rule, rule.inputs[0],
                       rule.outputs[0]);
  rule.linear = {{0}};
  AddShapeInputs(view, 1, rule);
  return rule;
}

// ---- Identity

absl::Status InferIdentity(InferenceContext& context) {
  context.SetOutput(0, context.InputType(0));
  if (context.InputType(0).kind == ValueKind::kTensor) ForwardDims(context, context.InputShape(0));
  return absl::OkStatus();
}

absl::Status IdentityGradient(GradientContext& context) {
  context.SetInputGradient(0, context.OutputGradient(0));
  return absl::OkStatus();
}

WEFT_REGISTER_OP(OpSchema::Onnx("Identity")
                     .Input("input")
                     .AnyKind()
                     .Output("output")
                     .Infer(InferIdentity)
                     .Gradient(IdentityGradient)
                     .Sharding(LinearElementwiseRule({{0}}))
                     .CostOf(AliasCost)
                     .Alias(0, 0));

// ---- Reshape

// What the shape input asks for: dims, with the position of the -1 and those taken from the input.
struct ReshapeTarget {
  Dims dims;
  int deduced = -1;      // index of the -1, or of the only one that is not known; or none
  bool asked = false;    // `deduced` certainly is a -1
  std::set<int> copied;  // indices whose dimension is the input's of the same index
};

// The index of the only dimension of which nothing is known; -1 when there are none or more. It is
// a -1 that went through a Concat, or a number that only the run knows: the same size either way.
int OnlyUnknown(const Dims& dims) {
  int only = -1;
  for (size_t i = 0; i < dims.size(); ++i) {
    if (dims[i].is_known() || dims[i].is_symbol()) continue;
    if (only >= 0) return -1;
    only = static_cast<int>(i);
  }
  return only;
}

// A target of known rank; nullopt when not even that is known.
absl::StatusOr<std::optional<ReshapeTarget>> ReadTarget(InferenceContext& context) {
  WEFT_ASSIGN_OR_RETURN(const auto values, KnownInts(context, 1));
  ReshapeTarget target;
  if (values.has_value()) {
    for (size_t i = 0; i < values->size(); ++i) {
      const int64_t size = (*values)[i];
      if (size < -1) {
        return context.Error(
            absl::StrCat("element ", i, " of the shape is ", size, "; it must be -1 or more"));
      }
      if (size == -1 && target.deduced >= 0) {
        return context.Error("the shape has -1 more than once; at most one can be deduced");
      }
      if (size == -1) target.deduced = static_cast<int>(i);
      target.asked = target.deduced >= 0;
      target.dims.push_back(size == -1 ? Dim() : Dim(size));
    }
    return std::optional(target);
  }
  if (std::optional<Dims> dims = context.InputDims(1); dims.has_value()) {
    target.dims = *std::move(dims);
    target.deduced = OnlyUnknown(target.dims);
    return std::optional(target);
  }
  const SymbolicShape& shape = context.InputShape(1);
  if (!shape.has_rank() || shape.rank() != 1 || !shape.dim(0).is_known() ||
      shape.dim(0).size() > kMaxRank) {
    return std::optional<ReshapeTarget>();
  }
  target.dims = UnknownDims(shape.dim(0).size());
  return std::optional(target);
}

// Resolves the zeros that mean "as in the input".
absl::Status CopyDims(InferenceContext& context, ReshapeTarget& target) {
  if (context.attributes().Int("allowzero", 0) != 0) return absl::OkStatus();
  const SymbolicShape& input = context.InputShape(0);
  for (int i = 0; i < static_cast<int>(target.dims.size()); ++i) {
    Dim& dim = target.dims[i];
    if (!dim.is_known() || dim.size() != 0) continue;
    if (!input.has_rank()) {
      dim = Dim();
      continue;
    }
    if (i >= input.rank()) {
      return context.Error(absl::StrCat("element ", i,
                                        " of the shape is 0 (as in the input), but the input ",
                                        input.ToString(), " has no axis ", i));
    }
    dim = input.dim(i);
    target.copied.insert(i);
  }
  return absl::OkStatus();
}

// The dims without those at `skip`.
Dims Without(const Dims& dims, const std::set<int>& skip) {
  Dims rest;
  for (int i = 0; i < static_cast<int>(dims.size()); ++i) {
    if (!skip.contains(i)) rest.push_back(dims[i]);
  }
  return rest;
}

// Takes out of both lists what certainly is the same symbol: it cancels.
void CancelSymbols(Dims& a, Dims& b) {
  for (auto dim = a.begin(); dim != a.end();) {
    const auto same = dim->is_symbol() ? std::find(b.begin(), b.end(), *dim) : b.end();
    if (same == b.end()) {
      ++dim;
    } else {
      b.erase(same);
      dim = a.erase(dim);
    }
  }
}

// Takes the known sizes out of both lists where their products are equal, and so cancel: of
// [28, batch, 192] and (28, -1, 3, 64), batch stays.
void CancelKnown(Dims& a, Dims& b) {
  const auto known = [](const Dims& dims) {
    Dims sizes;
    std::copy_if(dims.begin(), dims.end(), std::back_inserter(sizes),
                 [](const Dim& dim) { return dim.is_known(); });
    return ProductOfDims(sizes, 0, static_cast<int>(sizes.size()));
  };
  const Dim of_a = known(a);
  const Dim of_b = known(b);
  if (!of_a.is_known() || !of_b.is_known() || of_a.size() != of_b.size() || of_a.size() == 0)
    return;
  std::erase_if(a, [](const Dim& dim) { return dim.is_known(); });
  std::erase_if(b, [](const Dim& dim) { return dim.is_known(); });
}

// The dimension that makes the element counts equal, or unknown. Copied dimensions cancel, so that
// [0, 3] reshaped to (0, -1) is [0, 3] although 0 / 0 is anything.
absl::StatusOr<Dim> DeduceDim(InferenceContext& context, const ReshapeTarget& target) {
  const SymbolicShape& input = context.InputShape(0);
  if (!input.has_rank()) return Dim();
  std::set<int> skipped = target.copied;
  Dims from = Without(input.dims(), skipped);
  skipped.insert(target.deduced);
  Dims to = Without(target.dims, skipped);
  CancelSymbols(from, to);
  CancelKnown(from, to);
  const Dim have = ProductOfDims(from, 0, static_cast<int>(from.size()));
  const Dim want = ProductOfDims(to, 0, static_cast<int>(to.size()));
  if (want.is_known() && want.size() == 1) return have;
  if (!have.is_known() || !want.is_known()) return Dim();
  if (want.size() == 0 && !target.asked) return Dim();
  if (want.size() == 0) {
    return context.Error(absl::StrCat("-1 cannot be deduced in the shape ",
                                      DimsToString(target.dims),
                                      ": its other dimensions hold no elements"));
  }
  if (have.size() % want.size() != 0) {
    return context.Error(absl::StrCat("the ", have.size(), " elements of ", input.ToString(),
                                      " do not divide into ", want.size(), ", as the shape ",
                                      DimsToString(target.dims), " asks"));
  }
  return Dim(have.size() / want.size());
}

absl::Status InferReshape(InferenceContext& context) {
  const DType dtype = context.InputType(0).dtype;
  WEFT_ASSIGN_OR_RETURN(std::optional<ReshapeTarget> target, ReadTarget(context));
  if (!target.has_value()) {
    context.SetOutput(0, dtype, SymbolicShape());
    return absl::OkStatus();
  }
  WEFT_RETURN_IF_ERROR(CopyDims(context, *target));
  if (target->deduced >= 0) {
    WEFT_ASSIGN_OR_RETURN(target->dims[target->deduced], DeduceDim(context, *target));
  }
  WEFT_RETURN_IF_ERROR(SetCheckedOutput(context, dtype, target->dims));
  const std::optional<Shape> from = context.InputShape(0).ToConcrete();
  const SymbolicShape output(target->dims);
  const std::optional<Shape> to = output.ToConcrete();
  if (from.has_value() && to.has_value() && from->num_elements() != to->num_elements()) {
    return context.Error(absl::StrCat("cannot reshape ", from->ToString(), " (",
                                      from->num_elements(), " elements) to ", to->ToString(), " (",
                                      to->num_elements(), " elements)"));
  }
  ForwardDims(context, output);
  return absl::OkStatus();
}

absl::Status LocalizeReshape(LocalizeContext& context) {
  const Shape& local = context.LocalOutputShape(0);
  context.SetConstantInput(1, IntsTensor(DimsOf(local)));
  // The shape is literal now: a zero in it is a shard without elements.
  context.SetAttribute("allowzero", int64_t{1});
  return absl::OkStatus();
}

WEFT_REGISTER_OP(OpSchema::Onnx("Reshape")
                     .Input("data")
                     .Input("shape", {DType::kInt64})
                     .NeverLearnable()
                     .Output("reshaped")
                     .Attr("allowzero", AttributeType::kInt)
                     .Infer(InferReshape)
                     .Gradient(ReshapeGradient)
                     .Sharding(ReshapeRule)
                     .Localize(LocalizeReshape)
                     .CostOf(AliasCost)
                     .Alias(0, 0)
                     .ValueInputs({1}));

// ---- Flatten

absl::Status InferFlatten(InferenceContext& context) {
  const DType dtype = context.InputType(0).dtype;
  const SymbolicShape& input = context.InputShape(0);
  if (!input.has_rank()) {
    context.SetOutput(0, dtype, SymbolicShape(UnknownDims(2)));
    return absl::OkStatus();
  }
  const int64_t attribute = context.attributes().Int("axis", 1);
  const int64_t axis = attribute < 0 ? attribute + input.rank() : attribute;
  if (axis < 0 || axis > input.rank()) {
    return context.Error(absl::StrCat("axis ", attribute, " is outside [", -input.rank(), ", ",
                                      input.rank(), "] of ", input.ToString()));
  }
  context.SetOutput(
      0, dtype,
      SymbolicShape(Dims{ProductOfDims(input.dims(), 0, static_cast<int>(axis)),
                         ProductOfDims(input.dims(), static_cast<int>(axis), input.rank())}));
  return absl::OkStatus();
}

WEFT_REGISTER_OP(OpSchema::Onnx("Flatten")
                     .Input("input")
                     .Output("output")
                     .Attr("axis", AttributeType::kInt)
                     .Infer(InferFlatten)
                     .Gradient(ReshapeGradient)
                     .Sharding(ReshapeRule)
                     .CostOf(AliasCost)
                     .Alias(0, 0));

// ---- Squeeze, Unsqueeze

// The axes of input 1 (values known), counted in `rank`, sorted; a repeated one is an error.
absl::StatusOr<std::set<int>> AxisSet(InferenceContext& context, const std::vector<int64_t>& axes,
                                      int rank) {
  std::set<int> set;
  for (const int64_t axis : axes) {
    WEFT_ASSIGN_OR_RETURN(const int normalized, AxisOf(context, axis, rank));
    if (!set.insert(normalized).second) {
      return context.Error(absl::StrCat("axis ", normalized, " is named twice"));
    }
  }
  return set;
}

// Rank of the output when only the number of axes is known; unknown rank otherwise.
SymbolicShape RankOnly(InferenceContext& context, int direction) {
  const SymbolicShape& input = context.InputShape(0);
  if (!input.has_rank() || !context.HasInput(1)) return SymbolicShape();
  const SymbolicShape& axes = context.InputShape(1);
  if (!axes.has_rank() || axes.rank() > 1) return SymbolicShape();
  if (axes.rank() == 1 && !axes.dim(0).is_known()) return SymbolicShape();
  const int64_t rank = input.rank() + direction * (axes.rank() == 0 ? 1 : axes.dim(0).size());
  if (rank < 0 || rank > kMaxRank) return SymbolicShape();
  return SymbolicShape(UnknownDims(rank));
}

// The axes to squeeze: those named, or all of size one; nullopt when that is not known yet.
absl::StatusOr<std::optional<std::set<int>>> SqueezedAxes(InferenceContext& context) {
  using Result = std::optional<std::set<int>>;
  const SymbolicShape& input = context.InputShape(0);
  if (!input.has_rank()) return Result();
  if (context.HasInput(1)) {
    WEFT_ASSIGN_OR_RETURN(const auto values, KnownInts(context, 1));
    if (!values.has_value()) return Result();
    WEFT_ASSIGN_OR_RETURN(std::set<int> axes, AxisSet(context, *values, input.rank()));
    return Result(std::move(axes));
  }
  std::set<int> ones;
  for (int axis = 0; axis < input.rank(); ++axis) {
    if (!input.dim(axis).is_known()) return Result();
    if (input.dim(axis).size() == 1) ones.insert(axis);
  }
  return Result(std::move(ones));
}

absl::Status InferSqueeze(InferenceContext& context) {
  const DType dtype = context.InputType(0).dtype;
  const SymbolicShape& input = context.InputShape(0);
  WEFT_ASSIGN_OR_RETURN(const std::optional<std::set<int>> axes, SqueezedAxes(context));
  if (!axes.has_value()) {
    context.SetOutput(0, dtype, RankOnly(context, -1));
    return absl::OkStatus();
  }
  for (const int axis : *axes) {
    if (input.dim(axis).is_known() && input.dim(axis).size() != 1) {
      return context.Error(absl::StrCat("cannot squeeze axis ", axis, " of ", input.ToString(),
                                        ": its size must be 1"));
    }
  }
  const SymbolicShape output(Without(input.dims(), *axes));
  context.SetOutput(0, dtype, output);
  ForwardDims(context, output);
  return absl::OkStatus();
}

absl::Status InferUnsqueeze(InferenceContext& context) {
  const DType dtype = context.InputType(0).dtype;
  const SymbolicShape& input = context.InputShape(0);
  WEFT_ASSIGN_OR_RETURN(const auto values, KnownInts(context, 1));
  if (!values.has_value() || !input.has_rank()) {
    context.SetOutput(0, dtype, RankOnly(context, +1));
    return absl::OkStatus();
  }
  const int64_t rank = input.rank() + static_cast<int64_t>(values->size());
  if (rank > kMaxRank) {
    return context.Error(
        absl::StrCat("the output has ", rank, " dimensions; at most ", kMaxRank, " are supported"));
  }
  WEFT_ASSIGN_OR_RETURN(const std::set<int> axes,
                        AxisSet(context, *values, static_cast<int>(rank)));
  Dims dims;
  int from = 0;
  for (int axis = 0; axis < rank; ++axis) {
    dims.push_back(axes.contains(axis) ? Dim(1) : input.dim(from++));
  }
  const SymbolicShape output(std::move(dims));
  context.SetOutput(0, dtype, output);
  ForwardDims(context, output);
  return absl::OkStatus();
}

// Without axes, the axes of size one are meant, and a shard may have more of them: nothing is
// split.
absl::StatusOr<FactorRule> SqueezeRule(const NodeView& view) {
  if (view.HasInput(1)) return ReshapeRule(view);
  return WholeRule(std::vector<Shape>(view.num_inputs(), view.InputShape(0)),
                   {view.OutputShape(0)});
}

WEFT_REGISTER_OP(OpSchema::Onnx("Squeeze")
                     .Input("data")
                     .OptionalInput("axes", {DType::kInt64})
                     .NeverLearnable()
                     .Output("squeezed")
                     .Infer(InferSqueeze)
                     .Gradient(ReshapeGradient)
                     .Sharding(SqueezeRule)
                     .CostOf(AliasCost)
                     .Alias(0, 0)
                     .ValueInputs({1}));

WEFT_REGISTER_OP(OpSchema::Onnx("Unsqueeze")
                     .Input("data")
                     .Input("axes", {DType::kInt64})
                     .NeverLearnable()
                     .Output("expanded")
                     .Infer(InferUnsqueeze)
                     .Gradient(ReshapeGradient)
                     .Sharding(ReshapeRule)
                     .CostOf(AliasCost)
                     .Alias(0, 0)
                     .ValueInputs({1}));

}  // namespace
}  // namespace weft
