// Attention through cuDNN.
#ifndef WEFT_OPS_KERNELS_CUDA_ATTENTION_ATTENTION_DNN_H_
#define WEFT_OPS_KERNELS_CUDA_ATTENTION_ATTENTION_DNN_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "ops/kernel.h"
#include "ops/kernels/cuda/dnn/dnn.h"
#include "tensor/shape.h"

namespace weft::cuda {

// How an operand lies: [samples, heads, rows, size], or packed [samples, rows, heads * size].
DnnTensor HeadsTensor(const Shape& shape, int64_t heads);

// A kernel of Attention that writes no scores to memory: plain or causal, packed or not, with heads
// of keys that are shared, in float16 or bfloat16. Null where the node does not use cuDNN, and
// where it cannot compute the node, which is logged with the reason: other types, masks, windows,
// lengths, caps, a past, other outputs than Y, no elements, or no plan. Such nodes go another way.
// Errors: those of DnnOf, with the node's name.
absl::StatusOr<std::unique_ptr<Kernel>> MakeDnnAttention(const PrepareContext& context);

}  // namespace weft::cuda

#endif  // WEFT_OPS_KERNELS_CUDA_ATTENTION_ATTENTION_DNN_H_
