// Small models for the tests of onnx_import.
#ifndef WEFT_ONNX_IMPORT_TESTING_TEST_MODELS_H_
#define WEFT_ONNX_IMPORT_TESTING_TEST_MODELS_H_

#include <string>

#include "absl/status/statusor.h"
#include "onnx_import/codec/wire.pb.h"
#include "onnx_import/importer.h"

namespace weft::testing {

// ONNX's textual syntax, parsed by libonnx. A mistake in the text fails the test and gives an empty
// model.
onnx::ModelProto ModelFromText(const std::string& text);

// `body` in a model of operator set `opset`, IR version 8; "body" is what follows the header:
//   agraph (float[N] x) => (float[N] y) { y = Relu(x) }
onnx::ModelProto ModelOf(int opset, const std::string& body);

// Serializes, loads and imports, as "test.onnx".
absl::StatusOr<ImportedModel> Import(const onnx::ModelProto& model,
                                     const ImportOptions& options = {});

// The message of the error that importing gives; fails the test when there is none.
std::string ImportError(const onnx::ModelProto& model);

// $WEFT_CORPORA; "" when it is not set: skip then, and say so.
std::string CorporaFolder();

}  // namespace weft::testing

#endif  // WEFT_ONNX_IMPORT_TESTING_TEST_MODELS_H_
