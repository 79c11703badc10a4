// Slice and ai.weft::SliceGrad, which puts the pieces back between zeros.
#include <numeric>

#include "absl/strings/str_cat.h"
#include "graph/graph_builder.h"
#include "ops/defs/movement/shape_dims.h"
#include "ops/defs/movement/slice_range.h"
#include "ops/defs/rules/rules.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

// starts, ends, axes or steps of a Slice as far as they are known: an element is a size or nullopt.
using MaybeInts = std::optional<std::vector<int64_t>>;

// ---- Shape of a Slice

// One axis when start, end and step are known, but perhaps not its size.
Dim SlicedDim(int64_t start, int64_t end, int64_t step, const Dim& dim) {
  if (dim.is_known()) return Dim(ResolveSliceRange(start, end, step, dim.size()).count);
  // A symbolic axis is taken whole, or its new size is not known.
  const bool to_the_end = end >= kMaxDim;
  return start == 0 && step == 1 && to_the_end ? dim : Dim();
}

// One axis when start and step are known and the end is a dimension: x[0:T] of an axis T is that
// axis.
Dim SlicedToDim(int64_t start, const Dim& end, int64_t step, const Dim& dim) {
  if (end.is_known()) return SlicedDim(start, end.size(), step, dim);
  return start == 0 && step == 1 && dim == end ? dim : Dim();
}

// The axes of the node, normalized, for lists of `entries`; nullopt when not known.
absl::StatusOr<MaybeInts> SlicedAxes(InferenceContext& context, size_t entries, int rank) {
  SliceLists lists;
  lists.starts.assign(entries, 0);
  lists.ends.assign(entries, 0);
  if (context.HasInput(3)) {
    WEFT_ASSIGN_OR_RETURN(const MaybeInts axes, KnownInts(context, 3));
    if (!axes.has_value()) return MaybeInts();
    lists.axes = *axes;
  }
  if (context.HasInput(4)) {
    WEFT_ASSIGN_OR_RETURN(const MaybeInts steps, KnownInts(context, 4));
    lists.steps = steps.value_or(std::vector<int64_t>(entries, 1));
  }
  const absl::Status normalized = NormalizeSliceLists(lists, rank);
  if (!normalized.ok()) return context.Error(std::string(normalized.message()));
  return MaybeInts(lists.axes);
}

// How many axes are sliced; nullopt when not even that is known. InvalidArgument when starts and
// ends differ in length, or are longer than the input has axes: a file may declare any length.
absl::StatusOr<std::optional<size_t>> SliceEntries(InferenceContext& context) {
  std::optional<size_t> entries;
  for (int i = 1; i <= 2; ++i) {
    const SymbolicShape& shape = context.InputShape(i);
    if (!shape.has_rank() || shape.rank() != 1 || !shape.dim(0).is_known()) continue;
    const size_t length = static_cast<size_t>(shape.dim(0).size());
    if (entries.has_value() && *entries != length) {
      return context.Error(absl::StrCat("starts and ends must be equally long; they have ",
                                        *entries, " and ", length, " elements"));
    }
    entries = length;
  }
  if (const int rank = context.InputShape(0).rank();
      entries.value_or(0) > static_cast<size_t>(rank)) {
    return context.Error(absl::StrCat("starts and ends have ", *entries,
                                      " elements, but the input has ", rank, " axes"));
  }
  return entries;
}

// The steps of `entries` axes; nullopt when not known. InvalidArgument when there are others.
absl::StatusOr<MaybeInts> SliceSteps(InferenceContext& context, size_t entries) {
  const std::vector<int64_t> ones(entries, 1);
  if (!context.HasInput(4)) return MaybeInts(ones);
  WEFT_ASSIGN_OR_RETURN(const MaybeInts steps, KnownInts(context, 4));
  if (!steps.has_value() || steps->size() == entries) return steps;
  if (steps->empty()) return MaybeInts(ones);
  return context.Error(
      absl::StrCat("steps has ", steps->size(), " elements for ", entries, " axes"));
}

// What is known of a list must be as long as its shape says: elements travel with symbolic shapes.
absl::Status CheckEntries(InferenceContext& context, int input, size_t known, size_t entries) {
  if (known == entries) return absl::OkStatus();
  return context.Error(
      absl::StrCat("input ", input, " has ", known, " elements for ", entries, " axes"));
}

absl::StatusOr<Dims> SlicedDims(InferenceContext& context) {
  const SymbolicShape& input = context.InputShape(0);
  WEFT_ASSIGN_OR_RETURN(const std::optional<size_t> entries, SliceEntries(context));
  if (!entries.has_value()) return UnknownDims(input.rank());
  WEFT_ASSIGN_OR_RETURN(const MaybeInts axes, SlicedAxes(context, *entries, input.rank()));
  if (!axes.has_value()) return UnknownDims(input.rank());
  WEFT_ASSIGN_OR_RETURN(const MaybeInts starts, KnownInts(context, 1));
  WEFT_ASSIGN_OR_RETURN(const MaybeInts ends, KnownInts(context, 2));
  WEFT_ASSIGN_OR_RETURN(const MaybeInts steps, SliceSteps(context, *entries));
  const std::optional<Dims> end_dims = ends.has_value() ? std::nullopt : context.InputDims(2);
  if (starts.has_value()) {
    WEFT_RETURN_IF_ERROR(CheckEntries(context, 1, starts->size(), *entries));
  }
  if (ends.has_value() || end_dims.has_value()) {
    const size_t known = ends.has_value() ? ends->size() : end_dims->size();
    WEFT_RETURN_IF_ERROR(CheckEntries(context, 2, known, *entries));
  }
  Dims dims = input.dims();
  for (size_t i = 0; i < *entries; ++i) {
    Dim& dim = dims[(*axes)[i]];
    if (!starts.has_value() || !steps.has_value()) {
      dim = Dim();
    } else if (ends.has_value()) {
      dim = SlicedDim((*starts)[i], (*ends)[i], (*steps)[i], dim);
    } else {
      dim = end_dims.has_value() ? SlicedToDim((*starts)[i], (*end_dims)[i], (*steps)[i], dim)
                                 : Dim();
    }
  }
  return dims;
}

// Hands on the chosen elements of a list of dimensions.
absl::Status SliceElements(InferenceContext& context) {
  const std::optional<Dims> elements = context.InputDims(0);
  WEFT_ASSIGN_OR_RETURN(const MaybeInts starts, KnownInts(context, 1));
  WEFT_ASSIGN_OR_RETURN(const MaybeInts ends, KnownInts(context, 2));
  if (!elements.has_value() || !starts.has_value() || !ends.has_value()) return absl::OkStatus();
  if (starts->size() != 1 || ends->size() != 1) return absl::OkStatus();
  WEFT_ASSIGN_OR_RETURN(const MaybeInts steps, SliceSteps(context, 1));
  if (!steps.has_value()) return absl::OkStatus();
  const SliceRange range = ResolveSliceRange((*starts)[0], (*ends)[0], (*steps)[0],
                                             static_cast<int64_t>(elements->size()));
  Dims chosen;
  for (int64_t i = 0; i < range.count; ++i) {
    chosen.push_back((*elements)[range.first + i * range.step]);
  }
  context.SetOutputDims(0, std::move(chosen));
  return absl::OkStatus();
}

absl::Status InferSlice(InferenceContext& context) {
  const DType dtype = context.InputType(0).dtype;
  const SymbolicShape& input = context.InputShape(0);
  if (!input.has_rank()) {
    context.SetOutput(0, dtype, SymbolicShape());
    return absl::OkStatus();
  }
  WEFT_ASSIGN_OR_RETURN(Dims dims, SlicedDims(context));
  context.SetOutput(0, dtype, SymbolicShape(std::move(dims)));
  return input.rank() == 1 ? SliceElements(context) : absl::OkStatus();
}

// ---- Gradients

// Inputs first .. first + 3 of the node: starts, ends, axes, steps.
std::vector<ValueId> WithLists(const GradientContext& context, std::vector<ValueId> inputs,
                               int first) {
  for (int i = first; i < first + 4; ++i) inputs.push_back(context.Input(i));
  while (!inputs.back().valid()) inputs.pop_back();
  return inputs;
}

absl::Status SliceGradient(GradientContext& context) {
  GraphBuilder& builder = context.builder();
  const ValueId shape = builder.Op("Shape", {context.Input(0)});
  context.SetInputGradient(
      0, builder.WeftOp("SliceGrad", WithLists(context, {context.OutputGradient(0), shape}, 1)));
  return builder.status();
}

absl::Status SliceGradGradient(GradientContext& context) {
  GraphBuilder& builder = context.builder();
  context.SetInputGradient(0,
                           builder.Op("Slice", WithLists(context, {context.OutputGradient(0)}, 2)));
  return builder.status();
}

absl::Status InferSliceGrad(InferenceContext& context) {
  const DType dtype = context.InputType(0).dtype;
  WEFT_ASSIGN_OR_RETURN(std::optional<Dims> dims, TargetDims(context, 1));
  if (dims.has_value()) return SetCheckedOutput(context, dtype, *std::move(dims));
  context.SetOutput(0, dtype, SymbolicShape());
  return absl::OkStatus();
}

// ---- Sharding: axes that are taken as they are, are parallel. An axis of which some of several
// equal blocks are taken is (blocks rest), of which `rest` is parallel: so are query, key and value
// cut out of a fused product. Other axes are whole. `whole` is the longer tensor, the lists are
// inputs first .. first + 3 and never more than one axis long.

// The largest blocks of an axis that a range takes one by one; 1: none, or not in their order.
int64_t BlockOfRange(const SliceRange& range, int64_t size) {
  if (range.step != 1 || range.count == 0) return 1;
  return std::gcd(size, std::gcd(range.first, range.count));
}

absl::StatusOr<FactorRule> SliceRuleOf(const NodeView& view, const Shape& whole,
                                       const Shape& sliced, int first, bool forward) {
  FactorRule rule = EmptyRule(view);
  OperandFactors& whole_factors = forward ? rule.inputs[0] : rule.outputs[0];
  OperandFactors& sliced_factors = forward ? rule.outputs[0] : rule.inputs[0];
  WEFT_ASSIGN_OR_RETURN(const SliceLists lists, SliceListsOf(view, first, whole.rank()));
  const std::vector<SliceRange> ranges = ResolveSlice(lists, whole);
  for (int axis = 0; axis < whole.rank(); ++axis) {
    const int64_t block = BlockOfRange(ranges[axis], whole.dim(axis));
    if (ranges[axis].IsWhole(whole.dim(axis))) {
      const int shared = AddFactor(rule, whole.dim(axis), FactorKind::kParallel);
      whole_factors.dims[axis] = {shared};
      sliced_factors.dims[axis] = {shared};
    } else if (block > 1) {
      const int rest = AddFactor(rule, block, FactorKind::kParallel);
      const auto with_blocks = [&](int64_t size) {
        return std::vector<int>{AddFactor(rule, size / block, FactorKind::kWhole), rest};
      };
      whole_factors.dims[axis] = with_blocks(whole.dim(axis));
      sliced_factors.dims[axis] = with_blocks(sliced.dim(axis));
    } else {
      whole_factors.dims[axis] = {AddFactor(rule, whole.dim(axis), FactorKind::kWhole)};
      sliced_factors.dims[axis] = {AddFactor(rule, sliced.dim(axis), FactorKind::kWhole)};
    }
  }
  AddShapeInputs(view, 1, rule);
  rule.linear = {{0}};
  return rule;
}

absl::StatusOr<FactorRule> SliceRule(const NodeView& view) {
  return SliceRuleOf(view, view.InputShape(0), view.OutputShape(0), 1, /*forward=*/true);
}

absl::StatusOr<FactorRule> SliceGradRule(const NodeView& view) {
  return SliceRuleOf(view, view.OutputShape(0), view.InputShape(0), 2, /*forward=*/false);
}

// Of a shard the same blocks are taken: everything where an axis is taken as it is.
absl::Status LocalizeLists(LocalizeContext& context, const Shape& global, const Shape& local,
                           int first) {
  SliceLists lists;
  WEFT_ASSIGN_OR_RETURN(lists.starts, ToInt64s(*context.InputValue(first)));
  WEFT_ASSIGN_OR_RETURN(lists.ends, ToInt64s(*context.InputValue(first + 1)));
  const Node& node = context.node();
  const int axes_input = first + 2;
  if (static_cast<int>(node.inputs.size()) > axes_input && node.inputs[axes_input].valid()) {
    WEFT_ASSIGN_OR_RETURN(lists.axes, ToInt64s(*context.InputValue(axes_input)));
  }
  WEFT_RETURN_IF_ERROR(NormalizeSliceLists(lists, global.rank()));
  const std::vector<SliceRange> ranges = ResolveSlice(lists, global);
  bool changed = false;
  for (size_t i = 0; i < lists.axes.size(); ++i) {
    const int axis = static_cast<int>(lists.axes[i]);
    const int64_t size = global.dim(axis);
    if (size == local.dim(axis)) continue;
    const SliceRange& range = ranges[axis];
    lists.starts[i] = range.first * local.dim(axis) / size;
    lists.ends[i] = (range.first + range.count) * local.dim(axis) / size;
    changed = true;
  }
  if (!changed) return absl::OkStatus();
  const DType dtype = context.InputValue(first)->dtype();
  WEFT_ASSIGN_OR_RETURN(Tensor starts, CastTensor(IntsTensor(lists.starts), dtype));
  WEFT_ASSIGN_OR_RETURN(Tensor ends, CastTensor(IntsTensor(lists.ends), dtype));
  context.SetConstantInput(first, std::move(starts));
  context.SetConstantInput(first + 1, std::move(ends));
  return absl::OkStatus();
}

absl::Status LocalizeSlice(LocalizeContext& context) {
  return LocalizeLists(context, context.GlobalInputShape(0), context.LocalInputShape(0), 1);
}

absl::Status LocalizeSliceGrad(LocalizeContext& context) {
  context.SetConstantInput(1, IntsTensor(DimsOf(context.LocalOutputShape(0))));
  return LocalizeLists(context, context.GlobalOutputShape(0), context.LocalOutputShape(0), 2);
}

WEFT_REGISTER_OP(OpSchema::Onnx("Slice")
                     .Input("data")
                     .Input("starts", kIndexTypes)
                     .NeverLearnable()
                     .Input("ends", kIndexTypes)
                     .NeverLearnable()
                     .OptionalInput("axes", kIndexTypes)
                     .NeverLearnable()
                     .OptionalInput("steps", kIndexTypes)
                     .NeverLearnable()
                     .Output("output")
                     .Elements(ElementUse::kMoves)
                     .Infer(InferSlice)
                     .Gradient(SliceGradient)
                     .Sharding(SliceRule)
                     .Localize(LocalizeSlice)
                     .CostOf(MovementCost)
                     .ValueInputs({1, 2, 3, 4}));

// dx of Slice: zeros of `shape` with dy where the slice was taken.
WEFT_REGISTER_OP(OpSchema::Weft("SliceGrad")
                     .Input("dy")
                     .Input("shape", {DType::kInt64})
                     .Input("starts", kIndexTypes)
                     .Input("ends", kIndexTypes)
                     .OptionalInput("axes", kIndexTypes)
                     .OptionalInput("steps", kIndexTypes)
                     .Output("dx")
                     .Infer(InferSliceGrad)
                     .Gradient(SliceGradGradient)
                     .Sharding(SliceGradRule)
                     .Localize(LocalizeSliceGrad)
                     .CostOf(MovementCost)
                     .ValueInputs({1, 2, 3, 4, 5}));

}  // namespace
}  // namespace weft
