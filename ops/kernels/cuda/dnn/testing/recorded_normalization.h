// Normalizations by their definition on the emulated GPU, for RecordingDnn.
#ifndef WEFT_OPS_KERNELS_CUDA_DNN_TESTING_RECORDED_NORMALIZATION_H_
#define WEFT_OPS_KERNELS_CUDA_DNN_TESTING_RECORDED_NORMALIZATION_H_

#include <cstddef>
#include <string>

#include "ops/kernels/cuda/dnn/dnn.h"
#include "ops/kernels/cuda/language/launch_grid.h"

namespace weft::testing {

// What the real library would not take of these: addresses that are null, not aligned, or there
// without being asked for, a result over an operand. "" where nothing is.
std::string FaultOfNormalization(const cuda::NormalizationSpec& spec,
                                 const cuda::NormalizationOperands& operands);

// Computes from the definition in cuda::NormalizationSpec, in double, by sizes and strides. Writes
// over all of the workspace. The emulator's code.
int LaunchRecordedNormalization(const cuda::NormalizationSpec& spec,
                                const cuda::NormalizationOperands& operands, void* workspace,
                                size_t workspace_bytes, cuda::LaunchQueue queue);

}  // namespace weft::testing

#endif  // WEFT_OPS_KERNELS_CUDA_DNN_TESTING_RECORDED_NORMALIZATION_H_
