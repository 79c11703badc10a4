// Convolutions without Winograd's algorithm, for comparisons with it.
#ifndef WEFT_OPS_KERNELS_CPU_CONV_CONV_ONEDNN_H_
#define WEFT_OPS_KERNELS_CPU_CONV_CONV_ONEDNN_H_

#include <memory>

#include "absl/status/statusor.h"
#include "ops/kernel.h"

namespace weft::cpu {

// The kernel of Conv as it is where Winograd does not pay. Thread-safe; Unimplemented for what
// Conv has no kernel for.
absl::StatusOr<std::unique_ptr<Kernel>> PrepareOnednnConv(const PrepareContext& context);

}  // namespace weft::cpu

#endif  // WEFT_OPS_KERNELS_CPU_CONV_CONV_ONEDNN_H_
