// ImageDecoder.
#include <string>

#include "absl/strings/str_cat.h"
#include "graph/op_schema.h"
#include "ops/defs/movement/shape_dims.h"
#include "ops/defs/rules/rules.h"

namespace weft {
namespace {

absl::Status InferImageDecoder(InferenceContext& context) {
  const SymbolicShape& stream = context.InputShape(0);
  if (stream.has_rank() && stream.rank() != 1) {
    return context.Error(
        absl::StrCat("encoded_stream has shape ", stream.ToString(), ", expected one axis"));
  }
  const std::string format = context.attributes().String("pixel_format", "RGB");
  if (format != "RGB" && format != "BGR" && format != "Grayscale") {
    return context.Error(
        absl::StrCat("attribute 'pixel_format' is '", format, "', expected RGB, BGR or Grayscale"));
  }
  return SetCheckedOutput(context, DType::kUint8,
                          {Dim(), Dim(), Dim(format == "Grayscale" ? 1 : 3)});
}

}  // namespace

WEFT_REGISTER_OP(OpSchema::Onnx("ImageDecoder")
                     .Input("encoded_stream", {DType::kUint8})
                     .Output("image")
                     .Attr("pixel_format", AttributeType::kString)
                     .Infer(InferImageDecoder)
                     .NoGradient("encoded images"));

}  // namespace weft
