// cuDNN for the CUDA devices of this process.
#ifndef WEFT_OPS_KERNELS_CUDA_DNN_CUDNN_PROVIDER_H_
#define WEFT_OPS_KERNELS_CUDA_DNN_CUDNN_PROVIDER_H_

#include "absl/status/statusor.h"
#include "ops/kernels/cuda/dnn/dnn.h"
#include "tensor/device.h"

namespace weft::cuda {

// The library on this device, opened by the first call and never closed. An error is looked for
// anew by the next call: InvalidArgument for a device that is no card, else those of
// FindCudaLibrary and OpenCudnn. Thread-safe. It is the DnnProvider of builds with CUDA.
absl::StatusOr<Dnn*> CudnnOf(Device& device);

}  // namespace weft::cuda

#endif  // WEFT_OPS_KERNELS_CUDA_DNN_CUDNN_PROVIDER_H_
