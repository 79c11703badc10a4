// Convolutions without Winograd's algorithm, for comparisons with it.
#ifndef WEFT_OPS_KERNELS_CPU_CONV_CONV_ONEDNN_H_
#define WEFT_OPS_KERNELS_CPU_CONV_CONV_ONEDNN_H_

#include <memory>

#include "absl/status/statusor.h"
#include "ops/kernel.h"

namespace weft::cpu {

// The kernels of Conv and ConvGradInput as they are where Winograd does not pay. Thread-safe;
// Unimplemented for what the operators have no kernel for.
absl::StatusOr<std::unique_ptr<Kernel>> PrepareOnednnConv(const PrepareContext& context);
absl::StatusOr<std::unique_ptr<Kernel>> PrepareOnednnConvGradInput(const PrepareContext& context);

}  // namespace weft::cpu

#endif  // WEFT_OPS_KERNELS_CPU_CONV_CONV_ONEDNN_H_
