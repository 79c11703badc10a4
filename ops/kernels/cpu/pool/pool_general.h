// Pools over any number of image axes, for what the faster kernels do not take.
#ifndef WEFT_OPS_KERNELS_CPU_POOL_POOL_GENERAL_H_
#define WEFT_OPS_KERNELS_CPU_POOL_POOL_GENERAL_H_

#include <memory>

#include "ops/kernel.h"

namespace weft::cpu {

absl::StatusOr<std::unique_ptr<Kernel>> PrepareGeneralMaxPool(const PrepareContext& context);
// float32 and float64.
absl::StatusOr<std::unique_ptr<Kernel>> PrepareGeneralAveragePool(const PrepareContext& context);

}  // namespace weft::cpu

#endif  // WEFT_OPS_KERNELS_CPU_POOL_POOL_GENERAL_H_
