// A float model, written with QuantizeLinear and DequantizeLinear nodes.
#ifndef WEFT_ONNX_IMPORT_EDIT_QUANTIZED_FORM_H_
#define WEFT_ONNX_IMPORT_EDIT_QUANTIZED_FORM_H_

#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "onnx_import/exporter.h"
#include "onnx_import/model_file.h"
#include "tensor/tensor.h"

namespace weft {

// A weight that is stored as codes.
struct QuantizedTensor {
  std::string name;   // of the float initializer, or of the output of the Constant node
  Tensor codes;       // of the float tensor's shape
  Tensor scale;       // float32, as DequantizeLinear takes it
  Tensor zero_point;  // of the type of the codes; invalid = none is written
  int64_t axis = 0;
  int64_t block = 0;  // 0 = none
};

// A value that some nodes read quantized.
struct QuantizedRead {
  std::string value;
  Tensor scale;       // float32, one element
  Tensor zero_point;  // of the type of the codes, one element; invalid = 0, and none is written
  DType codes = DType::kUint8;
  // The nodes that read it as their first input, by the name of their first output.
  std::vector<std::string> readers;
};

struct QuantizedForm {
  // The oldest of ONNX's operator sets that has what is written: 13 for scales along an axis, 19
  // for float8, 21 for int4, blocks, and inputs without a zero point.
  int64_t opset = 13;
  std::vector<QuantizedTensor> weights;
  std::vector<QuantizedRead> inputs;
};

// Names of the first outputs of the Conv, Gemm and MatMul nodes of the file's main graph: the nodes
// that WriteQuantized can find.
std::set<std::string> MainGraphProducts(const ModelFile& file);

// The encoded model in that form. A weight W becomes the initializers W_quantized, W_scale and
// W_zero_point, and a DequantizeLinear node whose output has W's name, so that all its readers read
// that. A value X gets a QuantizeLinear and a DequantizeLinear node, which the named readers read;
// names that are taken get a number. All else stays as it was where the model's operator set is
// form.opset or later. An earlier model is imported and written anew for operator set 21: nodes,
// initializers, inputs and outputs keep their names, metadata of the model is copied, functions are
// inlined, and other annotations are lost.
// InvalidArgument for bytes that are no model, and naming a weight or reader that is not there;
// Unimplemented for an earlier model that has data beside it.
absl::StatusOr<std::string> WriteQuantized(std::string_view bytes, const QuantizedForm& form);

// Whether WriteQuantized can write the export of this file, as far as sizes tell: its form needs
// the operator set `opset`, and its codes and scales take `code_bytes`. Reads no payload.
// Unimplemented for an earlier model whose export has data beside it (ExportOptions),
// ResourceExhausted where the ONNX file would have more than 2 GiB; both say what to do.
absl::Status CheckQuantizedForm(const ModelFile& file, int64_t opset, int64_t code_bytes,
                                const ExportOptions& options = {});

}  // namespace weft

#endif  // WEFT_ONNX_IMPORT_EDIT_QUANTIZED_FORM_H_
