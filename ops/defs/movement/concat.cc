// Concat and Split: tensors side by side along one axis, and apart again. Each is the other's
// gradient.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "graph/graph_builder.h"
#include "ops/defs/movement/shape_dims.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

// The factors of a whole tensor and its parts along `axis`: the other axes are parallel. Equal
// parts make the axis (parts part), of which `part` is parallel: that is how a fused QKV matrix,
// split over ranks in three blocks, gives split Q, K and V. Unequal parts keep the axis whole.
void AppendPartFactors(const Shape& whole, const std::vector<Shape>& parts, int axis,
                       FactorRule& rule, OperandFactors& whole_factors,
                       std::vector<OperandFactors*> part_factors) {
  bool equal = true;
  for (const Shape& part : parts) equal = equal && part.dim(axis) == parts[0].dim(axis);
  for (int a = 0; a < whole.rank(); ++a) {
    if (a == axis && !equal) {
      whole_factors.dims[a] = {AddFactor(rule, whole.dim(a), FactorKind::kWhole)};
      for (size_t i = 0; i < parts.size(); ++i) {
        part_factors[i]->dims[a] = {AddFactor(rule, parts[i].dim(a), FactorKind::kWhole)};
      }
      continue;
    }
    const int shared = AddFactor(rule, parts[0].dim(a), FactorKind::kParallel);
    for (OperandFactors* factors : part_factors) factors->dims[a] = {shared};
    whole_factors.dims[a] = {shared};
    if (a == axis && parts.size() > 1) {
      const int count = AddFactor(rule, static_cast<int64_t>(parts.size()), FactorKind::kWhole);
      whole_factors.dims[a] = {count, shared};
    }
  }
}

// ---- Concat

// The shape that all inputs have but for `axis`, where it is their sum.
absl::StatusOr<Dims> ConcatDims(InferenceContext& context, int axis, int rank) {
  Dims dims = UnknownDims(rank);
  Dims along_axis;
  for (int i = 0; i < context.num_inputs(); ++i) {
    const SymbolicShape& input = context.InputShape(i);
    if (!input.has_rank()) {
      along_axis.push_back(Dim());
      continue;
    }
    if (input.rank() != rank) {
      return context.Error(absl::StrCat("input ", i, " has shape ", input.ToString(),
                                        ", whose rank is not that of the first, ", rank));
    }
    along_axis.push_back(input.dim(axis));
    for (int a = 0; a < rank; ++a) {
      if (a == axis) continue;
      const std::optional<Dim> merged = MergeDims(dims[a], input.dim(a));
      if (!merged.has_value()) {
        return context.Error(absl::StrCat("input ", i, " has shape ", input.ToString(), "; axis ",
                                          a, " must have size ", dims[a].ToString(),
                                          " as in the inputs before"));
      }
      dims[a] = *merged;
    }
  }
  dims[axis] = SumOfDims(along_axis);
  return dims;
}

// Hands on the elements of all inputs, one after the other, when all are known as dimensions.
void ConcatElements(InferenceContext& context) {
  Dims elements;
  for (int i = 0; i < context.num_inputs(); ++i) {
    const std::optional<Dims> part = context.InputDims(i);
    if (!part.has_value()) return;
    elements.insert(elements.end(), part->begin(), part->end());
  }
  context.SetOutputDims(0, std::move(elements));
}

absl::Status InferConcat(InferenceContext& context) {
  for (int i = 0; i < std::max(1, context.num_inputs()); ++i) {
    if (!context.HasInput(i)) return context.Error(absl::StrCat("input ", i, " is missing"));
  }
  const DType dtype = context.InputType(0).dtype;
  int rank = -1;
  for (int i = context.num_inputs() - 1; i >= 0; --i) {
    if (context.InputShape(i).has_rank()) rank = context.InputShape(i).rank();
  }
  if (rank < 0) {
    context.SetOutput(0, dtype, SymbolicShape());
    return absl::OkStatus();
  }
  WEFT_ASSIGN_OR_RETURN(const int axis, AxisOf(context, context.attributes().Int("axis", 0), rank));
  WEFT_ASSIGN_OR_RETURN(Dims dims, ConcatDims(context, axis, rank));
  WEFT_RETURN_IF_ERROR(SetCheckedOutput(context, dtype, std::move(dims)));
  if (rank == 1) ConcatElements(context);
  return absl::OkStatus();
}

// The gradient is split by the sizes of the inputs along the axis, which are asked of the inputs
// themselves: they may be symbols now and are constants when the program is compiled.
absl::Status ConcatGradient(GradientContext& context) {
  GraphBuilder& builder = context.builder();
  const Node& node = context.node();
  const int64_t axis = node.attributes.Int("axis", 0);
  if (node.inputs.size() == 1) {
    context.SetInputGradient(0, context.OutputGradient(0));
    return builder.status();
  }
  std::vector<ValueId> sizes;
  std::vector<bool> wanted;
  Attributes one_dim{{"start", axis}};
  if (axis < -1 || (axis >= 0 && axis < kMaxRank)) one_dim.Set("end", axis + 1);
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    sizes.push_back(builder.Op("Shape", {node.inputs[i]}, one_dim));
    wanted.push_back(context.NeedsInputGradient(static_cast<int>(i)));
  }
  const ValueId split = builder.Op("Concat", sizes, {{"axis", int64_t{0}}});
  const std::vector<ValueId> gradients =
      builder.Ops("", "Split", {context.OutputGradient(0), split}, {{"axis", axis}}, wanted);
  WEFT_RETURN_IF_ERROR(builder.status());
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (wanted[i]) context.SetInputGradient(static_cast<int>(i), gradients[i]);
  }
  return absl::OkStatus();
}

absl::StatusOr<FactorRule> ConcatRule(const NodeView& view) {
  FactorRule rule = EmptyRule(view);
  const Shape& whole = view.OutputShape(0);
  WEFT_ASSIGN_OR_RETURN(const int axis,
                        NormalizeAxis(view.attributes().Int("axis", 0), whole.rank()));
  std::vector<Shape> parts;
  std::vector<OperandFactors*> part_factors;
  std::vector<int> all_inputs;
  for (int i = 0; i < view.num_inputs(); ++i) {
    parts.push_back(view.InputShape(i));
    part_factors.push_back(&rule.inputs[i]);
    all_inputs.push_back(i);
  }
  AppendPartFactors(whole, parts, axis, rule, rule.outputs[0], part_factors);
  rule.linear = {all_inputs};
  return rule;
}

WEFT_REGISTER_OP(OpSchema::Onnx("Concat")
                     .VariadicInput("inputs")
                     .Output("concat_result")
                     .Attr("axis", AttributeType::kInt, /*required=*/true)
                     .Elements(ElementUse::kMoves)
                     .Infer(InferConcat)
                     .Gradient(ConcatGradient)
                     .Sharding(ConcatRule)
                     .CostOf(MovementCost));

// ---- Split

absl::Status CheckSplitSizes(InferenceContext& context, const Dims& sizes, const Dim& whole) {
  if (static_cast<int>(sizes.size()) != context.num_outputs()) {
    return context.Error(absl::StrCat("input split has ", sizes.size(), " sizes, but the node has ",
                                      context.num_outputs(), " outputs"));
  }
  const Dim sum = SumOfDims(sizes);
  if (sum.is_known() && whole.is_known() && sum.size() != whole.size()) {
    return context.Error(absl::StrCat("the sizes ", DimsToString(sizes), " add up to ", sum.size(),
                                      ", but the axis to split has ", whole.size()));
  }
  return absl::OkStatus();
}

// Sizes from the second input; unknown ones when its value is not known yet.
absl::StatusOr<Dims> GivenSizes(InferenceContext& context, const Dim& whole) {
  WEFT_ASSIGN_OR_RETURN(const auto values, KnownInts(context, 1));
  Dims sizes;
  if (values.has_value()) {
    for (const int64_t size : *values) {
      if (size < 0) {
        return context.Error(absl::StrCat("input split has a negative size, ", size));
      }
      sizes.push_back(Dim(size));
    }
  } else if (std::optional<Dims> dims = context.InputDims(1); dims.has_value()) {
    sizes = *std::move(dims);
  } else {
    return UnknownDims(context.num_outputs());
  }
  WEFT_RETURN_IF_ERROR(CheckSplitSizes(context, sizes, whole));
  return sizes;
}

// As equal as possible: ceil(size / n) each, the last one what remains.
absl::StatusOr<Dims> EqualSizes(InferenceContext& context, const Dim& whole) {
  const int64_t parts = context.num_outputs();
  const int64_t asked = context.attributes().Int("num_outputs", parts);
  if (asked != parts) {
    return context.Error(
        absl::StrCat("attribute num_outputs is ", asked, ", but the node has ", parts, " outputs"));
  }
  if (!whole.is_known()) return UnknownDims(parts);
  const int64_t size = (whole.size() + parts - 1) / parts;
  const int64_t last = whole.size() - size * (parts - 1);
  if (last < 0) {
    return context.Error(absl::StrCat("an axis of ", whole.size(), " cannot be split into ", parts,
                                      " parts of ", size));
  }
  Dims sizes(parts, Dim(size));
  sizes.back() = Dim(last);
  return sizes;
}

// Hands on the elements of a split list.
void SplitElements(InferenceContext& context, const Dims& sizes) {
  const std::optional<Dims> elements = context.InputDims(0);
  if (!elements.has_value()) return;
  auto first = elements->begin();
  for (int i = 0; i < context.num_outputs(); ++i) {
    if (!sizes[i].is_known() || sizes[i].size() > elements->end() - first) return;
    if (context.HasOutput(i)) context.SetOutputDims(i, Dims(first, first + sizes[i].size()));
    first += sizes[i].size();
  }
}

absl::Status InferSplit(InferenceContext& context) {
  if (context.num_outputs() == 0) return context.Error("the node has no outputs to split into");
  const DType dtype = context.InputType(0).dtype;
  const SymbolicShape& input = context.InputShape(0);
  if (!input.has_rank()) {
    for (int i = 0; i < context.num_outputs(); ++i) {
      if (context.HasOutput(i)) context.SetOutput(i, dtype, SymbolicShape());
    }
    return absl::OkStatus();
  }
  WEFT_ASSIGN_OR_RETURN(const int axis,
                        AxisOf(context, context.attributes().Int("axis", 0), input.rank()));
  const Dim& whole = input.dim(axis);
  Dims sizes;
  if (context.HasInput(1)) {
    WEFT_ASSIGN_OR_RETURN(sizes, GivenSizes(context, whole));
  } else {
    WEFT_ASSIGN_OR_RETURN(sizes, EqualSizes(context, whole));
  }
  for (int i = 0; i < context.num_outputs(); ++i) {
    if (!context.HasOutput(i)) continue;
    Dims dims = input.dims();
    dims[axis] = sizes[i];
    context.SetOutput(i, dtype, SymbolicShape(std::move(dims)));
  }
  if (input.rank() == 1 && whole.is_known()) SplitElements(context, sizes);
  return absl::OkStatus();
}

// Outputs without a gradient take part with zeros.
absl::Status SplitGradient(GradientContext& context) {
  GraphBuilder& builder = context.builder();
  const Node& node = context.node();
  const DType dtype = builder.type(context.Input(0)).dtype;
  std::vector<ValueId> gradients;
  for (int i = 0; i < static_cast<int>(node.outputs.size()); ++i) {
    ValueId gradient = context.OutputGradient(i);
    if (!gradient.valid()) {
      ValueId part = context.Output(i);
      if (!part.valid()) part = context.RequireOutput(i, absl::StrCat("part_", i));
      WEFT_ASSIGN_OR_RETURN(Tensor zero, Tensor::Zeros(dtype, Shape{1}));
      gradient = builder.Op("ConstantOfShape", {builder.Op("Shape", {part})}, {{"value", zero}});
    }
    gradients.push_back(gradient);
  }
  context.SetInputGradient(
      0, builder.Op("Concat", gradients, {{"axis", node.attributes.Int("axis", 0)}}));
  return builder.status();
}

// The shapes of all parts, from the sizes: outputs that nobody wants have no shape in the view.
absl::StatusOr<std::vector<Shape>> PartShapes(const NodeView& view, int axis) {
  std::vector<int64_t> sizes;
  if (view.HasInput(1)) {
    WEFT_ASSIGN_OR_RETURN(sizes, RequiredInts(view, 1));
  } else {
    const int64_t parts = view.num_outputs();
    const int64_t whole = view.InputShape(0).dim(axis);
    const int64_t size = (whole + parts - 1) / parts;
    sizes.assign(parts, size);
    sizes.back() = whole - size * (parts - 1);
  }
  std::vector<Shape> parts;
  for (const int64_t size : sizes) {
    Shape part = view.InputShape(0);
    part.set_dim(axis, size);
    parts.push_back(part);
  }
  return parts;
}

absl::StatusOr<FactorRule> SplitRule(const NodeView& view) {
  FactorRule rule = EmptyRule(view);
  const Shape& whole = view.InputShape(0);
  WEFT_ASSIGN_OR_RETURN(const int axis,
                        NormalizeAxis(view.attributes().Int("axis", 0), whole.rank()));
  WEFT_ASSIGN_OR_RETURN(const std::vector<Shape> parts, PartShapes(view, axis));
  std::vector<OperandFactors> outputs(parts.size());
  std::vector<OperandFactors*> part_factors;
  for (OperandFactors& output : outputs) {
    output.dims.resize(whole.rank());
    part_factors.push_back(&output);
  }
  AppendPartFactors(whole, parts, axis, rule, rule.inputs[0], part_factors);
  for (int i = 0; i < view.num_outputs(); ++i) {
    if (view.HasOutput(i)) rule.outputs[i] = outputs[i];
  }
  AddShapeInputs(view, 1, rule);
  rule.linear = {{0}};
  return rule;
}

// Equal parts of the global axis are equal parts of the local one.
absl::Status LocalizeSplit(LocalizeContext& context) {
  const Node& node = context.node();
  const Shape& local = context.LocalInputShape(0);
  WEFT_ASSIGN_OR_RETURN(const int axis,
                        NormalizeAxis(node.attributes.Int("axis", 0), local.rank()));
  const bool has_sizes = node.inputs.size() > 1 && node.inputs[1].valid();
  if (!has_sizes || local.dim(axis) == context.GlobalInputShape(0).dim(axis)) {
    return absl::OkStatus();
  }
  const int64_t parts = static_cast<int64_t>(node.outputs.size());
  context.SetConstantInput(1, IntsTensor(std::vector<int64_t>(parts, local.dim(axis) / parts)));
  return absl::OkStatus();
}

WEFT_REGISTER_OP(OpSchema::Onnx("Split")
                     .Input("input")
                     .OptionalInput("split", {DType::kInt64})
                     .NeverLearnable()
                     .VariadicOutput("outputs")
                     .Attr("axis", AttributeType::kInt)
                     .Attr("num_outputs", AttributeType::kInt)
                     .Elements(ElementUse::kMoves)
                     .Infer(InferSplit)
                     .Gradient(SplitGradient)
                     .Sharding(SplitRule)
                     .Localize(LocalizeSplit)
                     .CostOf(MovementCost)
                     .ValueInputs({1}));

}  // namespace
}  // namespace weft
