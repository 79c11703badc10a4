// DictVectorizer, CastMap and ZipMap of ai.onnx.ml. A map is a sequence of two tensors in one
// order: values [n], whose dtype is the sequence's, and keys [n], int64 or string; a sequence of
// maps is a sequence of these.
#include <string>

#include "absl/strings/str_cat.h"
#include "graph/op_schema.h"
#include "ops/defs/ml/ml_domain.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

absl::Status CheckMap(const InferenceContext& context) {
  const ValueType& type = context.InputType(0);
  // A type that a file does not give counts as a tensor of an unknown dtype.
  const bool unknown = type.kind == ValueKind::kTensor && type.dtype == DType::kInvalid;
  if (type.kind == ValueKind::kSequence || unknown) return absl::OkStatus();
  return context.Error(absl::StrCat("its input is ", type.ToString(), ", expected a map"));
}

// Exactly one of two attributes names the keys.
absl::Status CheckKeys(const InferenceContext& context, const char* strings, const char* numbers) {
  if (context.attributes().Has(strings) != context.attributes().Has(numbers)) {
    return absl::OkStatus();
  }
  return context.Error(absl::StrCat("it needs either ", strings, " or ", numbers));
}

// The standard speaks of one axis. Converters of scikit-learn declare a row, [1,C], and runtimes
// give it.
ValueType Row(DType dtype, Dim columns) {
  return {ValueKind::kTensor, dtype, SymbolicShape({Dim(1), std::move(columns)})};
}

absl::Status InferDictVectorizer(InferenceContext& context) {
  WEFT_RETURN_IF_ERROR(CheckMap(context));
  WEFT_RETURN_IF_ERROR(CheckKeys(context, "string_vocabulary", "int64_vocabulary"));
  const Attributes& attributes = context.attributes();
  const size_t columns =
      attributes.Strings("string_vocabulary").size() + attributes.Ints("int64_vocabulary").size();
  context.SetOutput(0, Row(context.InputType(0).dtype, Dim(static_cast<int64_t>(columns))));
  return absl::OkStatus();
}

absl::Status InferCastMap(InferenceContext& context) {
  WEFT_RETURN_IF_ERROR(CheckMap(context));
  const std::string to = context.attributes().String("cast_to", "TO_FLOAT");
  const std::string form = context.attributes().String("map_form", "DENSE");
  const int64_t max_map = context.attributes().Int("max_map", 1);
  if (form != "DENSE" && form != "SPARSE") {
    return context.Error(absl::StrCat("map_form is '", form, "', expected DENSE or SPARSE"));
  }
  if (form == "SPARSE" && (max_map < 1 || max_map > kMaxDim)) {
    return context.Error(absl::StrCat("max_map is ", max_map, ", expected 1 or more"));
  }
  const Dim columns = form == "SPARSE" ? Dim(max_map) : Dim();
  if (to == "TO_FLOAT") {
    context.SetOutput(0, Row(DType::kFloat32, columns));
  } else if (to == "TO_INT64") {
    context.SetOutput(0, Row(DType::kInt64, columns));
  } else if (to == "TO_STRING") {
    context.SetOutput(0, Row(DType::kString, columns));
  } else {
    return context.Error(
        absl::StrCat("cast_to is '", to, "', expected TO_FLOAT, TO_STRING or TO_INT64"));
  }
  return absl::OkStatus();
}

absl::Status InferZipMap(InferenceContext& context) {
  WEFT_RETURN_IF_ERROR(CheckKeys(context, "classlabels_strings", "classlabels_int64s"));
  context.SetOutput(0,
                    {ValueKind::kSequence, DType::kFloat32, SymbolicShape(), ValueKind::kSequence});
  return absl::OkStatus();
}

WEFT_REGISTER_OP(OpSchema(kMlDomain, "DictVectorizer")
                     .Input("X")
                     .AnyKind()
                     .Output("Y")
                     .Attr("int64_vocabulary", AttributeType::kInts)
                     .Attr("string_vocabulary", AttributeType::kStrings)
                     .Infer(InferDictVectorizer)
                     .NoGradient("labels and lookups"));

WEFT_REGISTER_OP(OpSchema(kMlDomain, "CastMap")
                     .Input("X")
                     .AnyKind()
                     .Output("Y")
                     .Attr("cast_to", AttributeType::kString)
                     .Attr("map_form", AttributeType::kString)
                     .Attr("max_map", AttributeType::kInt)
                     .Infer(InferCastMap)
                     .NoGradient("labels and lookups"));

WEFT_REGISTER_OP(OpSchema(kMlDomain, "ZipMap")
                     .Input("X", {DType::kFloat32})
                     .Output("Z")
                     .Attr("classlabels_int64s", AttributeType::kInts)
                     .Attr("classlabels_strings", AttributeType::kStrings)
                     .Infer(InferZipMap)
                     .NoGradient("labels and lookups"));

}  // namespace
}  // namespace weft
