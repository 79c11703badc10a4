// Whether the process's policy of operators allows all that a file has.
#ifndef WEFT_ONNX_IMPORT_CODEC_OPERATOR_CHECK_H_
#define WEFT_ONNX_IMPORT_CODEC_OPERATOR_CHECK_H_

#include "absl/status/status.h"
#include "onnx_import/codec/wire.pb.h"

namespace weft {

// PermissionDenied, naming node, operator and flag, for the first node of the model that
// CurrentOperatorPolicy (graph/policy/operator_policy.h) does not allow, wherever it is: in the
// graph, in subgraphs, in functions whether they are called or not, in training_info. A call of one
// of the model's functions is no operator. No schema is looked at. Linear time, without recursion.
absl::Status CheckOperators(const onnx::ModelProto& model);

}  // namespace weft

#endif  // WEFT_ONNX_IMPORT_CODEC_OPERATOR_CHECK_H_
