// ai.onnx.ml: ops on single features: lookups in tables, selection, scaling, normalizing.
#include <string>

#include "absl/strings/str_cat.h"
#include "graph/graph_builder.h"
#include "ops/defs/elementwise/elementwise.h"
#include "ops/defs/ml/ml_domain.h"
#include "ops/defs/movement/shape_dims.h"
#include "ops/defs/rules/gradients.h"
#include "ops/defs/rules/rules.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

// ---- Lookups

// The type of the list that attribute `stem`_* holds.
DType ListType(const Attributes& attributes, const std::string& stem) {
  const Attribute* tensor = attributes.Find(stem + "_tensor");
  if (tensor != nullptr && std::holds_alternative<Tensor>(*tensor)) {
    return std::get<Tensor>(*tensor).dtype();
  }
  if (attributes.Has(stem + "_strings")) return DType::kString;
  if (attributes.Has(stem + "_int64s")) return DType::kInt64;
  return attributes.Has(stem + "_floats") ? DType::kFloat32 : DType::kInvalid;
}

// Before version 2, LabelEncoder had one list of strings, whose places were the numbers.
absl::Status InferLabelEncoder(InferenceContext& context) {
  if (context.attributes().Has("classes_strings")) {
    const bool strings = context.InputType(0).dtype == DType::kString;
    context.SetOutput(0, strings ? DType::kInt64 : DType::kString, context.InputShape(0));
    return absl::OkStatus();
  }
  const DType values = ListType(context.attributes(), "values");
  if (values == DType::kInvalid || ListType(context.attributes(), "keys") == DType::kInvalid) {
    return context.Error("expected one of the attributes keys_* and one of values_*");
  }
  context.SetOutput(0, values, context.InputShape(0));
  return absl::OkStatus();
}

WEFT_REGISTER_OP(OpSchema(kMlDomain, "LabelEncoder")
                     .Input("X")
                     .Output("Y")
                     .Attr("classes_strings", AttributeType::kStrings)
                     .Attr("default_float", AttributeType::kFloat)
                     .Attr("default_int64", AttributeType::kInt)
                     .Attr("default_string", AttributeType::kString)
                     .Attr("default_tensor", AttributeType::kTensor)
                     .Attr("keys_floats", AttributeType::kFloats)
                     .Attr("keys_int64s", AttributeType::kInts)
                     .Attr("keys_strings", AttributeType::kStrings)
                     .Attr("keys_tensor", AttributeType::kTensor)
                     .Attr("values_floats", AttributeType::kFloats)
                     .Attr("values_int64s", AttributeType::kInts)
                     .Attr("values_strings", AttributeType::kStrings)
                     .Attr("values_tensor", AttributeType::kTensor)
                     .Infer(InferLabelEncoder)
                     .NoGradient("labels and lookups"));

absl::Status InferCategoryMapper(InferenceContext& context) {
  const bool strings = context.InputType(0).dtype == DType::kString;
  context.SetOutput(0, strings ? DType::kInt64 : DType::kString, context.InputShape(0));
  return absl::OkStatus();
}

WEFT_REGISTER_OP(OpSchema(kMlDomain, "CategoryMapper")
                     .Input("X", {DType::kString, DType::kInt64})
                     .Output("Y")
                     .Attr("cats_int64s", AttributeType::kInts)
                     .Attr("cats_strings", AttributeType::kStrings)
                     .Attr("default_int64", AttributeType::kInt)
                     .Attr("default_string", AttributeType::kString)
                     .Infer(InferCategoryMapper)
                     .NoGradient("labels and lookups"));

absl::Status InferOneHotEncoder(InferenceContext& context) {
  const Attributes& attributes = context.attributes();
  const SymbolicShape& x = context.InputShape(0);
  if (!x.has_rank()) {
    context.SetOutput(0, DType::kFloat32, SymbolicShape());
    return absl::OkStatus();
  }
  Dims dims = x.dims();
  dims.push_back(Dim(static_cast<int64_t>(attributes.Has("cats_strings")
                                              ? attributes.Strings("cats_strings").size()
                                              : attributes.Ints("cats_int64s").size())));
  return SetCheckedOutput(context, DType::kFloat32, std::move(dims));
}

WEFT_REGISTER_OP(OpSchema(kMlDomain, "OneHotEncoder")
                     .Input("X", {DType::kString, DType::kInt64, DType::kInt32, DType::kFloat32,
                                  DType::kFloat64})
                     .Output("Y")
                     .Attr("cats_int64s", AttributeType::kInts)
                     .Attr("cats_strings", AttributeType::kStrings)
                     .Attr("zeros", AttributeType::kInt)
                     .Infer(InferOneHotEncoder)
                     .NoGradient("labels and lookups"));

// ---- ArrayFeatureExtractor: a Gather along the last axis; a vector gives one row.

absl::Status InferArrayFeatureExtractor(InferenceContext& context) {
  const DType dtype = context.InputType(0).dtype;
  const SymbolicShape& x = context.InputShape(0);
  const SymbolicShape& y = context.InputShape(1);
  if (!x.has_rank()) {
    context.SetOutput(0, dtype, SymbolicShape());
    return absl::OkStatus();
  }
  if (x.rank() == 0) return context.Error("X is a scalar, expected features along its last axis");
  Dims dims(x.dims().begin(), x.dims().end() - 1);
  if (dims.empty()) dims.push_back(Dim(1));
  dims.push_back(y.has_rank() ? ProductOfDims(y.dims(), 0, y.rank()) : Dim());
  return SetCheckedOutput(context, dtype, std::move(dims));
}

absl::StatusOr<std::vector<ValueId>> ExpandArrayFeatureExtractor(ExpandContext& context) {
  GraphBuilder& b = context.builder();
  const Node& node = context.node();
  const SymbolicShape& x = b.type(node.inputs[0]).shape;
  if (!x.has_rank()) {
    return absl::UnimplementedError(
        absl::StrCat("node '", node.name, "': the rank of its input X is not known"));
  }
  const ValueId flat = b.Op("Reshape", {node.inputs[1], b.Ints({-1})});
  ValueId chosen = b.Op("Gather", {node.inputs[0], flat}, {{"axis", int64_t{-1}}});
  if (x.rank() == 1) chosen = b.Op("Unsqueeze", {chosen, b.Ints({0})});
  WEFT_RETURN_IF_ERROR(b.status());
  return std::vector<ValueId>{chosen};
}

WEFT_REGISTER_OP(OpSchema(kMlDomain, "ArrayFeatureExtractor")
                     .Input("X")
                     .Input("Y", {DType::kInt64})
                     .Output("Z")
                     .Infer(InferArrayFeatureExtractor)
                     .Expand(ExpandArrayFeatureExtractor));

// ---- Numbers

absl::Status InferFloatsLikeInput(InferenceContext& context) {
  context.SetOutput(0, DType::kFloat32, context.InputShape(0));
  return absl::OkStatus();
}

OpSchema OfFeatures(std::string name, InferFn infer) {
  return OpSchema(kMlDomain, std::move(name)).Input("X", kMlRowTypes).Output("Y").Infer(infer);
}

// y = x / n: dx = (dy - s sum(dy y)) / n with s the slope of n. Rows of zeros stay as they are.
absl::Status NormalizerGradient(GradientContext& context) {
  const ValueId dy = context.OutputGradient(0);
  if (!dy.valid() || !context.NeedsInputGradient(0)) return absl::OkStatus();
  GraphBuilder& b = context.builder();
  const Algebra a(b, dy);
  const std::string mode = context.node().attributes.String("norm", "MAX");
  const DType dtype = b.type(dy).dtype;
  const ValueId x = AsDType(b, context.Input(0), dtype);
  const ValueId y = context.Output(0);
  const ValueId axes = b.Ints({-1});
  const ValueId magnitude = a.Of("Abs", x);
  const char* const op = mode == "L1" ? "ReduceSum" : mode == "L2" ? "ReduceL2" : "ReduceMax";
  const ValueId norm = b.Op(op, {magnitude, axes});
  ValueId slope = mode == "L2" ? y : a.Of("Sign", x);
  if (mode == "MAX") {
    slope = a.Mul(slope, MaskOf(b, b.Op("Equal", {magnitude, norm}), dtype));
  }
  const ValueId along = b.Op("ReduceSum", {a.Mul(dy, y), axes});
  const ValueId divided = a.Div(a.Sub(dy, a.Mul(slope, along)), norm);
  const ValueId dx = a.Where(b.Op("Equal", {norm, a.Number(0)}), dy, divided);
  context.SetInputGradient(0, AsDType(b, dx, b.type(context.Input(0)).dtype));
  return b.status();
}

absl::Status ScalerGradient(GradientContext& context) {
  const ValueId dy = context.OutputGradient(0);
  if (!dy.valid() || !context.NeedsInputGradient(0)) return absl::OkStatus();
  GraphBuilder& b = context.builder();
  const std::vector<float> scale = context.node().attributes.Floats("scale");
  const ValueId factors =
      b.Constant(Tensor::Of<float>(Shape{static_cast<int64_t>(scale.size())}, scale));
  context.SetInputGradient(0,
                           AsDType(b, b.Op("Mul", {dy, factors}), b.type(context.Input(0)).dtype));
  return b.status();
}

// Each input gets its columns of dy, those that were cut off nothing.
absl::Status FeatureVectorizerGradient(GradientContext& context) {
  const ValueId dy = context.OutputGradient(0);
  if (!dy.valid()) return absl::OkStatus();
  GraphBuilder& b = context.builder();
  const std::vector<int64_t> sizes = context.node().attributes.Ints("inputdimensions");
  ValueId first = b.Ints({0});
  for (int i = 0; i < static_cast<int>(context.node().inputs.size()); ++i) {
    const ValueId x = context.Input(i);
    WEFT_ASSIGN_OR_RETURN(const int rank, RankForGradient(context, x));
    const ValueId columns = DimOf(b, x, rank - 1);
    const ValueId taken = sizes.empty() ? columns : b.Ints({sizes[i]});
    const ValueId last = b.Op("Add", {first, taken});
    if (context.NeedsInputGradient(i)) {
      const ValueId part = b.Op("Slice", {dy, first, last, b.Ints({1})});
      const ValueId pads =
          b.Op("Concat", {b.Ints({0}), b.Op("Sub", {columns, taken})}, {{"axis", int64_t{0}}});
      const ValueId whole = b.Op("Pad", {part, pads, kNoValue, b.Ints({1})});
      context.SetInputGradient(
          i, AsDType(b, b.Op("Reshape", {whole, ShapeOf(b, x)}), b.type(x).dtype));
    }
    first = last;
  }
  return b.status();
}

WEFT_REGISTER_OP(OfFeatures("Binarizer", InferLikeFirstInput)
                     .Attr("threshold", AttributeType::kFloat)
                     .NoGradient("constant between its steps"));
WEFT_REGISTER_OP(OfFeatures("Imputer", InferLikeFirstInput)
                     .Attr("imputed_value_floats", AttributeType::kFloats)
                     .Attr("imputed_value_int64s", AttributeType::kInts)
                     .Attr("replaced_value_float", AttributeType::kFloat)
                     .Attr("replaced_value_int64", AttributeType::kInt)
                     .NoGradient("features are made whole before training"));
WEFT_REGISTER_OP(OfFeatures("Normalizer", InferFloatsLikeInput)
                     .Attr("norm", AttributeType::kString)
                     .Gradient(NormalizerGradient));
WEFT_REGISTER_OP(OfFeatures("Scaler", InferFloatsLikeInput)
                     .Attr("offset", AttributeType::kFloats)
                     .Attr("scale", AttributeType::kFloats)
                     .Gradient(ScalerGradient));

absl::Status InferFeatureVectorizer(InferenceContext& context) {
  const std::vector<int64_t> sizes = context.attributes().Ints("inputdimensions");
  if (!sizes.empty() && static_cast<int>(sizes.size()) != context.num_inputs()) {
    return context.Error(absl::StrCat("attribute inputdimensions has ", sizes.size(),
                                      " elements for ", context.num_inputs(), " inputs"));
  }
  Dim rows;
  Dims columns;
  for (int i = 0; i < context.num_inputs(); ++i) {
    const SymbolicShape& x = context.InputShape(i);
    if (x.has_rank() && x.rank() != 1 && x.rank() != 2) {
      return context.Error(absl::StrCat("input ", i, " is ", x.ToString(), ", expected [N,C]"));
    }
    const bool matrix = x.has_rank() && x.rank() == 2;
    const std::optional<Dim> merged = MergeDims(rows, matrix ? x.dim(0) : Dim(1));
    if (x.has_rank() && !merged.has_value()) {
      return context.Error("the inputs have different numbers of rows");
    }
    if (x.has_rank()) rows = *merged;
    const Dim own = !x.has_rank() ? Dim() : x.dim(matrix ? 1 : 0);
    columns.push_back(sizes.empty() ? own : Dim(sizes[i]));
    if (!sizes.empty() && sizes[i] < 0) return context.Error("inputdimensions has a negative size");
  }
  return SetCheckedOutput(context, DType::kFloat32, {rows, SumOfDims(columns)});
}

WEFT_REGISTER_OP(OpSchema(kMlDomain, "FeatureVectorizer")
                     .VariadicInput("X", kMlRowTypes)
                     .Output("Y")
                     .Attr("inputdimensions", AttributeType::kInts)
                     .Infer(InferFeatureVectorizer)
                     .Gradient(FeatureVectorizerGradient));

}  // namespace
}  // namespace weft
