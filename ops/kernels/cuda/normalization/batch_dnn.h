// BatchNormalization of samples through cuDNN.
#ifndef WEFT_OPS_KERNELS_CUDA_NORMALIZATION_BATCH_DNN_H_
#define WEFT_OPS_KERNELS_CUDA_NORMALIZATION_BATCH_DNN_H_

#include <memory>

#include "absl/status/statusor.h"
#include "ops/kernel.h"

namespace weft::cuda {

// Kernels for nodes with training_mode 1. Null where the node does not use cuDNN, and where it
// cannot compute the node, which is logged with the reason: given statistics, other types,
// parameters that are not float32, no dX, no elements, or no plan. Such nodes go another way.
// Running statistics are found by a launch of ours from those of the library, and those that a
// gradient wants by one of ours from X. Errors: those of DnnOf, with the node's name.
absl::StatusOr<std::unique_ptr<Kernel>> MakeDnnBatchNormalization(const PrepareContext& context);
absl::StatusOr<std::unique_ptr<Kernel>> MakeDnnBatchNormalizationGrad(
    const PrepareContext& context);

}  // namespace weft::cuda

#endif  // WEFT_OPS_KERNELS_CUDA_NORMALIZATION_BATCH_DNN_H_
