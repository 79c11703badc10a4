// MaxUnpool and Col2Im: values and columns of windows back to images.
#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "graph/op_schema.h"
#include "ops/defs/rules.h"
#include "ops/defs/shape_dims.h"
#include "ops/defs/unpool_shape.h"
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
                     .CostOf(UnpoolCost));

}  // namespace weft
