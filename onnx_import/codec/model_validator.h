// Checks of a decoded model that need no knowledge of operators.
#ifndef WEFT_ONNX_IMPORT_CODEC_MODEL_VALIDATOR_H_
#define WEFT_ONNX_IMPORT_CODEC_MODEL_VALIDATOR_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "onnx_import/codec/wire.pb.h"

namespace weft {

// The file format and operator-set versions that are understood: those up to ONNX 1.23.
inline constexpr int64_t kOldestIrVersion = 3;
inline constexpr int64_t kNewestIrVersion = 14;
inline constexpr int64_t kOldestOpset = 1;
inline constexpr int64_t kNewestOpset = 28;
// How deep subgraphs, and calls of model-local functions, may be nested.
inline constexpr int kMaxNesting = 30;

// IR version, operator-set imports, names present and unique, types of inputs and outputs possible,
// attributes whole and of one kind, nesting. InvalidArgument naming node and attribute; the text
// does not name the file. Linear time.
absl::Status ValidateModel(const onnx::ModelProto& model);

// The same for a graph of training_info. Nothing for an empty one.
absl::Status ValidateTrainingGraph(const onnx::GraphProto& graph);

// The kind of an attribute; files that leave `type` out say it by the field they fill.
// InvalidArgument when type and contents disagree.
absl::StatusOr<onnx::AttributeProto::AttributeType> AttributeTypeOf(
    const onnx::AttributeProto& attribute);

// "node 'fc1' (Gemm)", or "node 7 (Gemm, unnamed, output 'y')".
std::string NodeLabel(const onnx::NodeProto& node, int index);

// "" for ONNX's own domain, also where it is spelled out.
std::string NormalizedDomain(const std::string& domain);

}  // namespace weft

#endif  // WEFT_ONNX_IMPORT_CODEC_MODEL_VALIDATOR_H_
