// NVRTC for the CUDA devices of this process.
#ifndef WEFT_OPS_KERNELS_CUDA_FUSION_NVRTC_PROVIDER_H_
#define WEFT_OPS_KERNELS_CUDA_FUSION_NVRTC_PROVIDER_H_

#include "absl/status/statusor.h"
#include "ops/kernels/cuda/fusion/kernel_compiler.h"
#include "tensor/device.h"

namespace weft::cuda {

// NVRTC for this card, with the cache of the process; opened by the first call and never closed. An
// error is looked for anew by the next call: InvalidArgument for a device that is no card, else
// those of FindCudaLibrary and Nvrtc::Open. Thread-safe. It is the KernelCompilerProvider of builds
// with CUDA.
absl::StatusOr<KernelCompiler*> NvrtcOf(Device& device);

}  // namespace weft::cuda

#endif  // WEFT_OPS_KERNELS_CUDA_FUSION_NVRTC_PROVIDER_H_
