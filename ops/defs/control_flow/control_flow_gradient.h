// The gradients of If, Loop and Scan.
#ifndef WEFT_OPS_DEFS_CONTROL_FLOW_CONTROL_FLOW_GRADIENT_H_
#define WEFT_OPS_DEFS_CONTROL_FLOW_CONTROL_FLOW_GRADIENT_H_

#include "graph/op_schema.h"

namespace weft {

absl::Status IfGradient(GradientContext& context);
absl::Status LoopGradient(GradientContext& context);
absl::Status ScanGradient(GradientContext& context);

}  // namespace weft

#endif  // WEFT_OPS_DEFS_CONTROL_FLOW_CONTROL_FLOW_GRADIENT_H_
