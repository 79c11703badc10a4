// The gradient of Attention.
#ifndef WEFT_OPS_DEFS_ATTENTION_ATTENTION_GRADIENT_H_
#define WEFT_OPS_DEFS_ATTENTION_ATTENTION_GRADIENT_H_

#include "graph/op_schema.h"

namespace weft {

absl::Status AttentionGradient(GradientContext& context);

}  // namespace weft

#endif  // WEFT_OPS_DEFS_ATTENTION_ATTENTION_GRADIENT_H_
