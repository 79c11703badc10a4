// DeformConv and CausalConvWithState.
#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "graph/graph_builder.h"
#include "graph/op_schema.h"
#include "ops/defs/elementwise/elementwise.h"
#include "ops/defs/movement/shape_dims.h"
#include "ops/defs/rules/gradients.h"
#include "ops/defs/rules/rules.h"
#include "ops/window.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

// ---- DeformConv.

enum DeformInputs { kX, kW, kOffset, kB, kMask };

bool Fits(const SymbolicShape& shape, const Dims& expected) {
  if (!shape.has_rank()) return true;
  if (shape.rank() != static_cast<int>(expected.size())) return false;
  for (int i = 0; i < shape.rank(); ++i) {
    if (!MergeDims(shape.dim(i), expected[i]).has_value()) return false;
  }
  return true;
}

absl::Status CheckShape(const InferenceContext& context, int input, const char* name,
                        const Dims& expected) {
  if (!context.HasInput(input) || Fits(context.InputShape(input), expected)) {
    return absl::OkStatus();
  }
  return context.Error(absl::StrCat(name, " has shape ", context.InputShape(input).ToString(),
                                    ", expected ", DimsToString(expected)));
}

Dim Times(const Dim& dim, int64_t by) {
  return dim.is_known() && dim.size() <= kMaxDim / by ? Dim(dim.size() * by) : Dim();
}

absl::Status CheckDeformOperands(const InferenceContext& context, const Dims& y,
                                 const std::vector<int64_t>& sizes) {
  const int64_t group = context.attributes().Int("group", 1);
  const int64_t offset_group = context.attributes().Int("offset_group", 1);
  if (group < 1 || offset_group < 1 || group > kMaxDim || offset_group > kMaxDim) {
    return context.Error(
        absl::StrCat("attributes group and offset_group are ", group, " and ", offset_group));
  }
  const SymbolicShape& x = context.InputShape(kX);
  const SymbolicShape& w = context.InputShape(kW);
  const Dim& channels = x.dim(1);
  if (channels.is_known() &&
      (channels.size() % group != 0 || channels.size() % offset_group != 0)) {
    return context.Error(absl::StrCat("the ", channels.size(), " channels of X cannot be divided ",
                                      "into ", group, " groups and ", offset_group,
                                      " offset groups"));
  }
  if (w.has_rank()) {
    Dims expected = {w.rank() > 0 ? w.dim(0) : Dim(),
                     channels.is_known() ? Dim(channels.size() / group) : Dim()};
    for (const int64_t size : sizes) expected.push_back(Dim(size));
    WEFT_RETURN_IF_ERROR(CheckShape(context, kW, "W", expected));
    if (w.dim(0).is_known() && w.dim(0).size() % group != 0) {
      return context.Error(absl::StrCat("the ", w.dim(0).size(), " output channels cannot be ",
                                        "divided into ", group, " groups"));
    }
    WEFT_RETURN_IF_ERROR(CheckShape(context, kB, "B", {w.dim(0)}));
  }
  Dim taps(1);
  for (const int64_t size : sizes) taps = Times(taps, size);
  Dims offset = y;
  offset[1] = Times(Times(taps, static_cast<int64_t>(sizes.size())), offset_group);
  WEFT_RETURN_IF_ERROR(CheckShape(context, kOffset, "offset", offset));
  offset[1] = Times(taps, offset_group);
  return CheckShape(context, kMask, "mask", offset);
}

absl::Status InferDeformConv(InferenceContext& context) {
  std::vector<int> floats = {kX, kW, kOffset};
  if (context.HasInput(kB)) floats.push_back(kB);
  if (context.HasInput(kMask)) floats.push_back(kMask);
  WEFT_RETURN_IF_ERROR(CheckSameDType(context, floats));
  const SymbolicShape& x = context.InputShape(kX);
  const SymbolicShape& w = context.InputShape(kW);
  const DType dtype = context.InputType(kX).dtype;
  if (!x.has_rank()) {
    context.SetOutput(0, dtype, SymbolicShape());
    return absl::OkStatus();
  }
  if (x.rank() < 3 || (w.has_rank() && w.rank() != x.rank())) {
    return context.Error(absl::StrCat("X has shape ", x.ToString(), " and W ", w.ToString(),
                                      ", expected [batch, channels, image...] and [outputs, "
                                      "channels / group, window...]"));
  }
  std::vector<int64_t> sizes = context.attributes().Ints("kernel_shape");
  if (sizes.empty() && w.has_rank()) {
    for (int i = 2; i < w.rank() && w.dim(i).is_known(); ++i) sizes.push_back(w.dim(i).size());
  }
  Dims y = {x.dim(0), w.has_rank() ? w.dim(0) : Dim()};
  if (static_cast<int>(sizes.size()) != x.rank() - 2) {
    y.resize(x.rank());
    return SetCheckedOutput(context, dtype, std::move(y));
  }
  const auto window = WindowSpec::Create(context.attributes(), sizes);
  if (!window.ok()) return context.Error(std::string(window.status().message()));
  for (int i = 2; i < x.rank(); ++i) {
    absl::StatusOr<Dim> dim = window->OutputDim(i - 2, x.dim(i));
    if (!dim.ok()) return context.Error(std::string(dim.status().message()));
    y.push_back(*std::move(dim));
  }
  WEFT_RETURN_IF_ERROR(CheckDeformOperands(context, y, sizes));
  return SetCheckedOutput(context, dtype, std::move(y));
}

// The product with W, and the interpolation of each tap.
Cost DeformConvCost(const NodeView& view) {
  const Shape& w = view.InputShape(kW);
  const Shape& y = view.OutputShape(0);
  const double columns = static_cast<double>(w.ProductOf(1, w.rank()));
  return {2.0 * static_cast<double>(y.num_elements()) * columns +
              8.0 * static_cast<double>(view.InputShape(kOffset).num_elements()),
          OperandBytes(view)};
}

// The columns that W is multiplied with: ai.weft::DeformColumns(X, offset, mask) is [batch,
// channels * taps, windows], and ai.weft::DeformColumnsGrad(dcolumns, X, offset, mask) has the
// gradients of its three operands. The rest of the gradient is products.
class DeformGradient {
 public:
  DeformGradient(GradientContext& context, ValueId dy, std::vector<int64_t> sizes, int64_t group)
      : context_(context), g_(context.builder()), group_(group), attributes_({}) {
    for (const char* name : {"dilations", "pads", "strides"}) {
      const std::vector<int64_t> values = context.node().attributes.Ints(name);
      if (!values.empty()) attributes_.Set(name, values);
    }
    attributes_.Set("offset_group", context.node().attributes.Int("offset_group", 1));
    attributes_.Set("kernel_shape", std::move(sizes));
    sampled_ = {context.Input(kX), context.Input(kOffset)};
    if (context.Input(kMask).valid()) sampled_.push_back(context.Input(kMask));
    // [batch, group, outputs / group, windows]
    dy_ = g_.Op("Reshape", {dy, Grouped(DimOf(g_, dy, 0), g_.Ints({-1}), dy)});
  }

  void SetWeights() {
    const ValueId columns = g_.WeftOp("DeformColumns", sampled_, attributes_);
    const ValueId grouped =
        g_.Op("Reshape",
              {columns, g_.Op("Concat",
                              {DimOf(g_, columns, 0), g_.Ints({group_, -1}), DimOf(g_, columns, 2)},
                              {{"axis", int64_t{0}}})});
    const ValueId products = g_.WeftOp("MatMul", {dy_, grouped}, {{"transB", int64_t{1}}});
    const ValueId sum = g_.Op("ReduceSum", {products, g_.Ints({0})}, {{"keepdims", int64_t{0}}});
    context_.SetInputGradient(kW, g_.Op("Reshape", {sum, ShapeOf(g_, context_.Input(kW))}));
  }

  void SetSampled(const std::vector<bool>& wanted) {
    const ValueId w = context_.Input(kW);
    const ValueId matrices = g_.Op(
        "Reshape", {w, g_.Op("Concat",
                             {g_.Ints({1, group_}),
                              g_.Op("Div", {DimOf(g_, w, 0), g_.Ints({group_})}), g_.Ints({-1})},
                             {{"axis", int64_t{0}}})});
    const ValueId products = g_.WeftOp("MatMul", {matrices, dy_}, {{"transA", int64_t{1}}});
    std::vector<ValueId> inputs = {g_.Op(
        "Reshape",
        {products, g_.Op("Concat", {DimOf(g_, products, 0), g_.Ints({-1}), DimOf(g_, products, 3)},
                         {{"axis", int64_t{0}}})})};
    inputs.insert(inputs.end(), sampled_.begin(), sampled_.end());
    const std::vector<ValueId> gradients = g_.Ops(std::string(kWeftDomain), "DeformColumnsGrad",
                                                  std::move(inputs), attributes_, wanted);
    const int operands[] = {kX, kOffset, kMask};
    for (size_t i = 0; i < wanted.size(); ++i) {
      if (wanted[i] && g_.status().ok()) context_.SetInputGradient(operands[i], gradients[i]);
    }
  }

 private:
  // [batch, group, channels of a group, windows] of a tensor [batch, channels, windows...].
  ValueId Grouped(ValueId batch, ValueId windows, ValueId tensor) {
    const ValueId channels = g_.Op("Div", {DimOf(g_, tensor, 1), g_.Ints({group_})});
    return g_.Op("Concat", {batch, g_.Ints({group_}), channels, windows}, {{"axis", int64_t{0}}});
  }

  GradientContext& context_;
  GraphBuilder& g_;
  const int64_t group_;
  Attributes attributes_;
  std::vector<ValueId> sampled_;
  ValueId dy_;
};

// The sizes of W's axes from the third on; Unimplemented where they are not known.
absl::StatusOr<std::vector<int64_t>> WindowSizes(const GradientContext& context) {
  const ValueDef& w = context.graph().value(context.Input(1));
  const std::optional<Shape> shape = w.type.shape.ToConcrete();
  if (shape.has_value() && shape->rank() > 2) {
    return std::vector<int64_t>(shape->dims().begin() + 2, shape->dims().end());
  }
  return absl::UnimplementedError(absl::StrCat(
      "node '", context.node().name, "': the gradient of ", context.node().op,
      " needs the shape of its weights '", w.name, "', which shape inference could not find"));
}

absl::Status DeformConvGradient(GradientContext& context) {
  const ValueId dy = context.OutputGradient(0);
  if (!dy.valid()) return absl::OkStatus();
  WEFT_ASSIGN_OR_RETURN(std::vector<int64_t> sizes, WindowSizes(context));
  GraphBuilder& g = context.builder();
  if (context.Input(kB).valid() && context.NeedsInputGradient(kB)) {
    std::vector<int64_t> axes = {0};
    for (size_t i = 0; i < sizes.size(); ++i) axes.push_back(static_cast<int64_t>(i) + 2);
    context.SetInputGradient(kB, g.Op("ReduceSum", {dy, g.Ints(axes)}, {{"keepdims", int64_t{0}}}));
  }
  DeformGradient gradient(context, dy, std::move(sizes), context.node().attributes.Int("group", 1));
  if (context.NeedsInputGradient(kW)) gradient.SetWeights();
  const std::vector<bool> wanted = {
      context.NeedsInputGradient(kX), context.NeedsInputGradient(kOffset),
      context.Input(kMask).valid() && context.NeedsInputGradient(kMask)};
  if (wanted[0] || wanted[1] || wanted[2]) gradient.SetSampled(wanted);
  return g.status();
}

absl::Status InferDeformColumns(InferenceContext& context) {
  const SymbolicShape& x = context.InputShape(0);
  const SymbolicShape& offset = context.InputShape(1);
  Dims columns = UnknownDims(3);
  if (x.has_rank()) {
    if (x.rank() < 3) {
      return context.Error(
          absl::StrCat("X has shape ", x.ToString(), ", expected [batch, channels, image...]"));
    }
    columns[0] = x.dim(0);
    columns[1] = x.dim(1);
    for (const int64_t size : context.attributes().Ints("kernel_shape")) {
      columns[1] = Times(columns[1], std::max<int64_t>(size, 1));
    }
  }
  if (offset.has_rank()) columns[2] = ProductOfDims(offset.dims(), 2, offset.rank());
  return SetCheckedOutput(context, context.InputType(0).dtype, std::move(columns));
}

absl::Status InferDeformColumnsGrad(InferenceContext& context) {
  if (context.HasOutput(2) && !context.HasInput(3)) {
    return context.Error("output dmask needs the input mask");
  }
  for (int i = 0; i < context.num_outputs(); ++i) {
    if (context.HasOutput(i)) context.SetOutput(i, context.InputType(i + 1));
  }
  return absl::OkStatus();
}

// ---- CausalConvWithState.

absl::Status InferCausalConv(InferenceContext& context) {
  std::vector<int> floats = {0, 1};
  for (int i = 2; i < 4; ++i) {
    if (context.HasInput(i)) floats.push_back(i);
  }
  WEFT_RETURN_IF_ERROR(CheckSameDType(context, floats));
  const std::string activation = context.attributes().String("activation", "none");
  if (activation != "none" && activation != "silu" && activation != "swish") {
    return context.Error(
        absl::StrCat("attribute 'activation' is '", activation, "', expected none, silu or swish"));
  }
  const SymbolicShape& x = context.InputShape(0);
  const SymbolicShape& w = context.InputShape(1);
  WEFT_RETURN_IF_ERROR(CheckShape(context, 0, "input", UnknownDims(3)));
  const Dim batch = x.has_rank() ? x.dim(0) : Dim();
  const Dim channels = x.has_rank() ? x.dim(1) : Dim();
  WEFT_RETURN_IF_ERROR(CheckShape(context, 1, "weight", {channels, Dim(1), Dim()}));
  WEFT_RETURN_IF_ERROR(CheckShape(context, 2, "bias", {channels}));
  Dim past;
  if (w.has_rank() && w.dim(2).is_known()) {
    if (w.dim(2).size() < 1) return context.Error("weight has no elements");
    past = Dim(w.dim(2).size() - 1);
  }
  const Dims state = {batch, channels, past};
  WEFT_RETURN_IF_ERROR(CheckShape(context, 3, "past_state", state));
  context.SetOutput(0, context.InputType(0));
  if (context.HasOutput(1)) {
    context.SetOutput(1, context.InputType(0).dtype, SymbolicShape(state));
  }
  return absl::OkStatus();
}

// y = activation(Conv(state and input, weight) + bias), the present state is the end of both.
class CausalGradient {
 public:
  CausalGradient(GradientContext& context, int64_t channels, int64_t taps)
      : context_(context),
        g_(context.builder()),
        kept_(taps - 1),
        attributes_({{"group", channels}, {"kernel_shape", std::vector<int64_t>{taps}}}) {
    const ValueId x = context.Input(0);
    const bool past = context.Input(3).valid();
    extended_ = past ? g_.Op("Concat", {context.Input(3), x}, {{"axis", int64_t{2}}})
                     : g_.Op("Pad", {x, g_.Ints({0, 0, kept_, 0, 0, 0})});
  }

  // The gradient of the convolution's result.
  ValueId BeforeActivation(ValueId dy) {
    if (context_.node().attributes.String("activation", "none") == "none") return dy;
    std::vector<ValueId> inputs = {extended_, context_.Input(1)};
    if (context_.Input(2).valid()) inputs.push_back(context_.Input(2));
    const Algebra a(g_, dy);
    const ValueId z = g_.Op("Conv", std::move(inputs), attributes_);
    const ValueId s = a.Of("Sigmoid", z);
    return a.Mul(dy, a.Add(s, a.Mul(a.Mul(z, s), a.Sub(1, s))));
  }

  void SetParameters(ValueId dz) {
    if (context_.NeedsInputGradient(1)) {
      context_.SetInputGradient(1, g_.WeftOp("ConvGradWeights", {extended_, dz}, attributes_));
    }
    if (context_.Input(2).valid() && context_.NeedsInputGradient(2)) {
      context_.SetInputGradient(
          2, g_.Op("ReduceSum", {dz, g_.Ints({0, 2})}, {{"keepdims", int64_t{0}}}));
    }
  }

  // Of input and state; either gradient may be absent.
  void SetSequence(ValueId dz, ValueId dpresent) {
    std::vector<ValueId> parts;
    if (dz.valid()) {
      parts.push_back(
          g_.WeftOp("ConvGradInput", {dz, context_.Input(1), ShapeOf(g_, extended_)}, attributes_));
    }
    if (dpresent.valid()) {
      const ValueId pads =
          g_.Op("Concat", {g_.Ints({0, 0}), DimOf(g_, context_.Input(0), 2), g_.Ints({0, 0, 0})},
                {{"axis", int64_t{0}}});
      parts.push_back(g_.Op("Pad", {dpresent, pads}));
    }
    const ValueId sum = parts.size() == 1 ? parts[0] : g_.Op("Add", parts);
    const auto piece = [&](int64_t first, int64_t last) {
      return g_.Op("Slice", {sum, g_.Ints({first}), g_.Ints({last}), g_.Ints({2})});
    };
    if (context_.NeedsInputGradient(0)) context_.SetInputGradient(0, piece(kept_, kMaxDim));
    if (context_.Input(3).valid() && context_.NeedsInputGradient(3)) {
      context_.SetInputGradient(3, piece(0, kept_));
    }
  }

 private:
  GradientContext& context_;
  GraphBuilder& g_;
  const int64_t kept_;  // elements of the state
  const Attributes attributes_;
  ValueId extended_;
};

absl::Status CausalConvGradient(GradientContext& context) {
  const ValueId dy = context.OutputGradient(0);
  const ValueId dpresent = context.OutputGradient(1);
  if (!dy.valid() && !dpresent.valid()) return absl::OkStatus();
  WEFT_ASSIGN_OR_RETURN(const std::vector<int64_t> taps, WindowSizes(context));
  const Dim channels = context.graph().value(context.Input(1)).type.shape.dim(0);
  CausalGradient gradient(context, channels.size(), taps[0]);
  const ValueId dz = dy.valid() ? gradient.BeforeActivation(dy) : kNoValue;
  if (dz.valid()) gradient.SetParameters(dz);
  gradient.SetSequence(dz, dpresent);
  return context.builder().status();
}

Cost CausalConvCost(const NodeView& view) {
  return {2.0 * static_cast<double>(view.InputShape(0).num_elements()) *
              static_cast<double>(view.InputShape(1).dim(2)),
          OperandBytes(view)};
}

OpSchema WithDeformAttributes(OpSchema schema) {
  return schema.Attr("dilations", AttributeType::kInts)
      .Attr("kernel_shape", AttributeType::kInts)
      .Attr("offset_group", AttributeType::kInt)
      .Attr("pads", AttributeType::kInts)
      .Attr("strides", AttributeType::kInts);
}

}  // namespace

WEFT_REGISTER_OP(WithDeformAttributes(OpSchema::Onnx("DeformConv"))
                     .Input("X", kFloatTypes)
                     .Input("W", kFloatTypes)
                     .Learnable()
                     .Input("offset", kFloatTypes)
                     .OptionalInput("B", kFloatTypes)
                     .Learnable()
                     .OptionalInput("mask", kFloatTypes)
                     .Output("Y")
                     .Attr("group", AttributeType::kInt)
                     .Infer(InferDeformConv)
                     .Gradient(DeformConvGradient)
                     .CostOf(DeformConvCost));

WEFT_REGISTER_OP(
    WithDeformAttributes(
        OpSchema::Weft("DeformColumns").GradientMissing("part of DeformConv, which has the rule"))
        .Input("X", kFloatTypes)
        .Input("offset", kFloatTypes)
        .OptionalInput("mask", kFloatTypes)
        .Output("columns")
        .Infer(InferDeformColumns)
        .CostOf(FlopsPerElement(8)));

WEFT_REGISTER_OP(
    WithDeformAttributes(OpSchema::Weft("DeformColumnsGrad").GradientMissing("part of a gradient"))
        .Input("dcolumns", kFloatTypes)
        .Input("X", kFloatTypes)
        .Input("offset", kFloatTypes)
        .OptionalInput("mask", kFloatTypes)
        .OptionalOutput("dX")
        .OptionalOutput("doffset")
        .OptionalOutput("dmask")
        .Infer(InferDeformColumnsGrad)
        .CostOf([](const NodeView& view) {
          return Cost{24.0 * static_cast<double>(view.InputShape(0).num_elements()),
                      OperandBytes(view)};
        }));

WEFT_REGISTER_OP(OpSchema::Onnx("CausalConvWithState")
                     .Input("input", kFloatTypes)
                     .Input("weight", kFloatTypes)
                     .Learnable()
                     .OptionalInput("bias", kFloatTypes)
                     .Learnable()
                     .OptionalInput("past_state", kFloatTypes)
                     .NeverLearnable()
                     .Output("output")
                     .OptionalOutput("present_state")
                     .Attr("activation", AttributeType::kString)
                     .Infer(InferCausalConv)
                     .Gradient(CausalConvGradient)
                     .CostOf(CausalConvCost));

}  // namespace weft
