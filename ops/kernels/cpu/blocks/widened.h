// Half-precision and mixed floating operands by way of a kernel for one wider type.
#ifndef WEFT_OPS_KERNELS_CPU_BLOCKS_WIDENED_H_
#define WEFT_OPS_KERNELS_CPU_BLOCKS_WIDENED_H_

#include "ops/kernel.h"

namespace weft::cpu {

// A factory around one that takes operands whose floating types are all float32 or all float64.
// Where a node's are (float64 if one is, else float32), `factory` gets the node itself. Elsewhere
// the others are converted to that type, the inputs before each run and the outputs after it, in
// the workspace: arithmetic is done in the wider type and each result rounded once. Other operands
// pass through.
KernelFactory Widened(KernelFactory factory);

}  // namespace weft::cpu

#endif  // WEFT_OPS_KERNELS_CPU_BLOCKS_WIDENED_H_
