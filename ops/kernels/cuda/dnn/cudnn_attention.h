// Attention through cuDNN's graphs of operations. Private to this room.
#ifndef WEFT_OPS_KERNELS_CUDA_DNN_CUDNN_ATTENTION_H_
#define WEFT_OPS_KERNELS_CUDA_DNN_CUDNN_ATTENTION_H_

#include <cstddef>
#include <memory>

#include "absl/status/statusor.h"
#include "ops/kernels/cuda/dnn/cudnn_backend.h"
#include "ops/kernels/cuda/dnn/dnn.h"

namespace weft::cuda {

// The graph is the one that cuDNN's engines of scaled dot-product attention know: a product, a
// scale, a causal choice, a softmax by its parts with the logarithms of its sums, a product. The
// logarithms go to the workspace. REQUIRES: CheckAttention.
// `shared` outlives it, and its mutex is not held. Unimplemented where the library has no plan.
absl::StatusOr<std::unique_ptr<PreparedAttention>> MakeCudnnAttention(DnnHandle& shared,
                                                                      const AttentionSpec& spec,
                                                                      size_t workspace_limit);

}  // namespace weft::cuda

#endif  // WEFT_OPS_KERNELS_CUDA_DNN_CUDNN_ATTENTION_H_
