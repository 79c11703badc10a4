// What a code of CUDA means, as a status.
#ifndef WEFT_TENSOR_CUDA_CUDA_STATUS_H_
#define WEFT_TENSOR_CUDA_CUDA_STATUS_H_

#include <string_view>

#include "absl/status/status.h"
#include "tensor/cuda/cuda_runtime.h"

namespace weft {

// Whether every later call of this process on the device fails, too: it has to start anew.
bool EndsTheDevice(CudaCode code);

// OK for kSuccess; else "`subject` cannot `action`: CUDA says NAME (NUMBER), text", and what to do,
// with the code of tensor/cuda/cuda_meaning.h.
absl::Status CudaStatus(CudaRuntime& runtime, CudaCode code, std::string_view subject,
                        std::string_view action);

}  // namespace weft

#endif  // WEFT_TENSOR_CUDA_CUDA_STATUS_H_
