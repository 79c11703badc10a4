// What declarations of quantized ops share.
#ifndef WEFT_OPS_DEFS_QUANTIZED_QUANTIZED_H_
#define WEFT_OPS_DEFS_QUANTIZED_QUANTIZED_H_

#include "absl/status/statusor.h"
#include "graph/op_schema.h"

namespace weft {

// The shape of the matrix product of two inputs, as MatMul defines it.
absl::StatusOr<SymbolicShape> MatMulShape(InferenceContext& context, int a_input, int b_input);

}  // namespace weft

#endif  // WEFT_OPS_DEFS_QUANTIZED_QUANTIZED_H_
