// MaxUnpool and Col2Im: values and columns of windows back to images.
#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "graph/graph_builder.h"
#include "graph/op_schema.h"
#include "ops/defs/movement/shape_dims.h"
#include "ops/defs/pool/unpool_shape.h"
#include "ops/defs/rules/gradients.h"
#include "ops/defs/rules/rules.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

absl::Status InferMaxUnpool(InferenceContext& context) {
  const SymbolicShape& x = context.InputShape(0);
  const SymbolicShape& indices = context.InputShape(1);
  const DType dtype = context.InputType(0).dtype;
  if (!x.has_rank()) {
    context.SetOutput(0, dtype, SymbolicShape());
    return absl::OkStatus();
  }
  bool fits = !indices.has_rank() || indices.rank() == x.rank();
  for (int i = 0; fits && indices.has_rank() && i < x.rank(); ++i) {
    fits = MergeDims(x.dim(i), indices.dim(i)).has_value();
  }
  if (!fits || x.rank() < 3) {
    return context.Error(absl::StrCat("X has shape ", x.ToString(), " and I ", indices.ToString(),
                                      ", expected both [batch, channels, image...]"));
  }
  Shape known;
  for (const Dim& dim : x.dims()) known.AddDim(dim.is_known() ? dim.size() : 64);
  const auto pooled_from = UnpooledShape(context.attributes(), known);
  if (!pooled_from.ok()) return context.Error(std::string(pooled_from.status().message()));
  Dims y = {x.dim(0), x.dim(1)};
  for (int i = 2; i < x.rank(); ++i) {
    y.push_back(x.dim(i).is_known() ? Dim(pooled_from->dim(i)) : Dim());
  }
  if (context.HasInput(2)) {
    WEFT_ASSIGN_OR_RETURN(const std::optional<Dims> wanted, TargetDims(context, 2));
    if (wanted.has_value() && static_cast<int>(wanted->size()) != x.rank()) {
      return context.Error(absl::StrCat("input 'output_shape' has ", wanted->size(),
                                        " values, X has shape ", x.ToString()));
    }
    y = wanted.value_or(UnknownDims(x.rank()));
  }
  return SetCheckedOutput(context, dtype, std::move(y));
}

absl::Status InferCol2Im(InferenceContext& context) {
  const SymbolicShape& x = context.InputShape(0);
  const DType dtype = context.InputType(0).dtype;
  if (x.has_rank() && x.rank() != 3) {
    return context.Error(absl::StrCat("input has shape ", x.ToString(),
                                      ", expected [batch, channels * block, blocks]"));
  }
  WEFT_ASSIGN_OR_RETURN(const std::optional<Dims> image, TargetDims(context, 1));
  WEFT_ASSIGN_OR_RETURN(const auto block, KnownInts(context, 2));
  if (!image.has_value()) {
    context.SetOutput(0, dtype, SymbolicShape());
    return absl::OkStatus();
  }
  Dim channels;
  if (block.has_value() && x.has_rank() && x.dim(1).is_known()) {
    int64_t elements = 1;
    for (const int64_t size : *block) {
      if (size < 1 || size > kMaxDim / elements) {
        return context.Error(absl::StrCat("input 'block_shape' holds ", size));
      }
      elements *= size;
    }
    if (x.dim(1).size() % elements != 0) {
      return context.Error(absl::StrCat("the ", x.dim(1).size(), " rows of input ", x.ToString(),
                                        " cannot be divided into blocks of ", elements));
    }
    channels = Dim(x.dim(1).size() / elements);
  }
  Dims y = {x.has_rank() ? x.dim(0) : Dim(), channels};
  y.insert(y.end(), image->begin(), image->end());
  return SetCheckedOutput(context, dtype, std::move(y));
}

const std::vector<DType> kCol2ImTypes = {
    DType::kFloat32, DType::kFloat64, DType::kFloat16, DType::kBfloat16,  DType::kInt8,
    DType::kInt16,   DType::kInt32,   DType::kInt64,   DType::kUint8,     DType::kUint16,
    DType::kUint32,  DType::kUint64,  DType::kBool,    DType::kComplex64, DType::kComplex128};

// ---- Gradients.

// Every element reads what it was written to.
absl::Status MaxUnpoolGradient(GradientContext& context) {
  ValueId dy = context.OutputGradient(0);
  if (!dy.valid() || !context.NeedsInputGradient(0)) return absl::OkStatus();
  GraphBuilder& g = context.builder();
  const ValueId x = context.Input(0);
  if (context.Input(2).valid()) {
    // The indices count in the image that the windows cover: dy is cut to it, or grown by zeros.
    const ValueId image = g.Op("MaxUnpool", {x, context.Input(1)}, context.node().attributes);
    const ValueId shape = ShapeOf(g, image);
    const ValueId behind = g.Op("Sub", {shape, ShapeOf(g, dy)});
    const ValueId before = g.Op("Sub", {shape, shape});
    dy = g.Op("Pad", {dy, g.Op("Concat", {before, behind}, {{"axis", int64_t{0}}})});
  }
  const ValueId flat = g.Ints({-1});
  const ValueId places = g.Op("Reshape", {context.Input(1), flat});
  const ValueId values = g.Op("GatherElements", {g.Op("Reshape", {dy, flat}), places});
  context.SetInputGradient(0, g.Op("Reshape", {values, ShapeOf(g, x)}));
  return g.status();
}

// `values[i]` or `fallback` where the attribute is absent.
int64_t AlongAxis(const std::vector<int64_t>& values, size_t i, int64_t fallback) {
  return i < values.size() ? values[i] : fallback;
}

// The rows of one axis of the padded image that each tap reads in each block, [taps, blocks]:
// tap * dilation + block * stride.
ValueId BlockRows(GraphBuilder& g, ValueId padded, ValueId taps, int64_t dilation, int64_t stride) {
  const auto times = [&](ValueId value, int64_t factor) {
    return factor == 1 ? value : g.Op("Mul", {value, g.Ints({factor})});
  };
  const ValueId last = times(g.Op("Sub", {taps, g.Ints({1})}), dilation);
  const ValueId room = g.Op("Sub", {g.Op("Sub", {padded, last}), g.Ints({1})});
  const ValueId blocks = g.Op("Add", {g.Op("Div", {room, g.Ints({stride})}), g.Ints({1})});
  const ValueId tap_rows =
      g.Op("Unsqueeze", {times(PositionsBelow(g, taps), dilation), g.Ints({1})});
  return g.Op("Add", {tap_rows, times(PositionsBelow(g, blocks), stride)});
}

// The columns of dy: what Col2Im does, backwards. dy is padded, its axes become [taps, blocks] one
// after the other, and the taps go before the blocks.
absl::Status Col2ImGradient(GradientContext& context) {
  const ValueId dy = context.OutputGradient(0);
  if (!dy.valid() || !context.NeedsInputGradient(0)) return absl::OkStatus();
  WEFT_ASSIGN_OR_RETURN(const int rank, RankForGradient(context, dy));
  if (rank < 2) return absl::InvalidArgumentError("an image has axes for batch and channels");
  GraphBuilder& g = context.builder();
  const Attributes& attributes = context.node().attributes;
  const std::vector<int64_t> pads = attributes.Ints("pads");
  const size_t axes = static_cast<size_t>(rank) - 2;
  std::vector<int64_t> widths(2 * static_cast<size_t>(rank), 0);
  for (size_t i = 0; i < axes; ++i) {
    widths[2 + i] = AlongAxis(pads, i, 0);
    widths[2 + i + static_cast<size_t>(rank)] = AlongAxis(pads, axes + i, 0);
  }
  const ValueId padded = g.Op("Pad", {dy, g.Ints(widths)});
  ValueId columns = padded;
  std::vector<int64_t> order = {0, 1};
  for (size_t i = 0; i < axes; ++i) {
    const int64_t at = static_cast<int64_t>(i);
    const ValueId taps = g.Op("Slice", {context.Input(2), g.Ints({at}), g.Ints({at + 1})});
    const ValueId rows = BlockRows(g, DimOf(g, padded, static_cast<int>(i) + 2), taps,
                                   AlongAxis(attributes.Ints("dilations"), i, 1),
                                   AlongAxis(attributes.Ints("strides"), i, 1));
    columns = g.Op("Gather", {columns, rows}, {{"axis", 2 + 2 * at}});
    order.push_back(2 + 2 * at);
  }
  for (size_t i = 0; i < axes; ++i) order.push_back(3 + 2 * static_cast<int64_t>(i));
  columns = g.Op("Transpose", {columns}, {{"perm", order}});
  context.SetInputGradient(0, g.Op("Reshape", {columns, ShapeOf(g, context.Input(0))}));
  return g.status();
}

Cost UnpoolCost(const NodeView& view) {
  return {static_cast<double>(view.InputShape(0).num_elements()), OperandBytes(view)};
}

}  // namespace

WEFT_REGISTER_OP(OpSchema::Onnx("MaxUnpool")
                     .Input("X", kFloatTypes)
                     .Input("I", {DType::kInt64})
                     .OptionalInput("output_shape", {DType::kInt64})
                     .Output("output")
                     .Attr("kernel_shape", AttributeType::kInts, true)
                     .Attr("pads", AttributeType::kInts)
                     .Attr("strides", AttributeType::kInts)
                     .ValueInputs({2})
                     .Infer(InferMaxUnpool)
                     .Gradient(MaxUnpoolGradient)
                     .CostOf(UnpoolCost));

WEFT_REGISTER_OP(OpSchema::Onnx("Col2Im")
                     .Input("input", kCol2ImTypes)
                     .Input("image_shape", {DType::kInt64})
                     .Input("block_shape", {DType::kInt64})
                     .Output("output")
                     .Attr("dilations", AttributeType::kInts)
                     .Attr("pads", AttributeType::kInts)
                     .Attr("strides", AttributeType::kInts)
                     .ValueInputs({1, 2})
                     .Infer(InferCol2Im)
                     .Gradient(Col2ImGradient)
                     .CostOf(UnpoolCost));

}  // namespace weft
