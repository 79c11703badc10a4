// The gradient of attention through cuDNN's graphs of operations. Private to this room.
#ifndef WEFT_OPS_KERNELS_CUDA_DNN_CUDNN_ATTENTION_GRADIENT_H_
#define WEFT_OPS_KERNELS_CUDA_DNN_CUDNN_ATTENTION_GRADIENT_H_

#include <cstddef>
#include <memory>

#include "absl/status/statusor.h"
#include "ops/kernels/cuda/dnn/cudnn_backend.h"
#include "ops/kernels/cuda/dnn/dnn.h"

namespace weft::cuda {

// The graph is the one that cuDNN's engines of the backward pass know, in the form whose dquery
// comes straight from a product: the other, which adds to a float32 dquery, gives other bits each
// time, and engines carry no note of it. (NVIDIA's cudnn-frontend calls this form deterministic.)
// The sums of rows of dresult times result go to the workspace. REQUIRES: CheckAttention. `shared`
// outlives it, and its mutex is not held. Unimplemented where the library has no plan, and for
// other than multiples of 128 keys before cuDNN 9.16, whose gradients are then wrong (the frontend
// pads there).
absl::StatusOr<std::unique_ptr<PreparedAttentionGradient>> MakeCudnnAttentionGradient(
    DnnHandle& shared, const AttentionSpec& spec, size_t workspace_limit);

}  // namespace weft::cuda

#endif  // WEFT_OPS_KERNELS_CUDA_DNN_CUDNN_ATTENTION_GRADIENT_H_
