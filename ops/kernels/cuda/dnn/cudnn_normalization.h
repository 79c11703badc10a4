// Normalizations through cuDNN's graphs of operations. Private to this room.
#ifndef WEFT_OPS_KERNELS_CUDA_DNN_CUDNN_NORMALIZATION_H_
#define WEFT_OPS_KERNELS_CUDA_DNN_CUDNN_NORMALIZATION_H_

#include <cstddef>
#include <memory>

#include "absl/status/statusor.h"
#include "ops/kernels/cuda/dnn/cudnn_backend.h"
#include "ops/kernels/cuda/dnn/dnn.h"

namespace weft::cuda {

// The graph is one operation: a forward normalization in its training phase, which writes the
// statistics too, or a backward one, which reads them. Running statistics are not the library's:
// its variances for them are those of a sample, not of the population. REQUIRES:
// CheckNormalization. `shared` outlives it, and its mutex is not held. Unimplemented where the
// library has no plan.
absl::StatusOr<std::unique_ptr<PreparedNormalization>> MakeCudnnNormalization(
    DnnHandle& shared, const NormalizationSpec& spec, size_t workspace_limit);

}  // namespace weft::cuda

#endif  // WEFT_OPS_KERNELS_CUDA_DNN_CUDNN_NORMALIZATION_H_
