// Attention by its definition on the emulated GPU, for RecordingDnn.
#ifndef WEFT_OPS_KERNELS_CUDA_DNN_TESTING_RECORDED_ATTENTION_H_
#define WEFT_OPS_KERNELS_CUDA_DNN_TESTING_RECORDED_ATTENTION_H_

#include <cstddef>

#include "ops/kernels/cuda/dnn/dnn.h"
#include "ops/kernels/cuda/language/launch_grid.h"

namespace weft::testing {

// Computes each row of each head from the definition in cuda::AttentionSpec, in double, by sizes
// and strides. Writes over all of the workspace. The emulator's code.
int LaunchRecordedAttention(const cuda::AttentionSpec& spec,
                            const cuda::AttentionOperands& operands, void* workspace,
                            size_t workspace_bytes, cuda::LaunchQueue queue);

// The same of the gradient in cuda::AttentionGradientOperands.
int LaunchRecordedAttentionGradient(const cuda::AttentionSpec& spec,
                                    const cuda::AttentionGradientOperands& operands,
                                    void* workspace, size_t workspace_bytes,
                                    cuda::LaunchQueue queue);

}  // namespace weft::testing

#endif  // WEFT_OPS_KERNELS_CUDA_DNN_TESTING_RECORDED_ATTENTION_H_
