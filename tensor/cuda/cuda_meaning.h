// What a code of CUDA's runtime means for a user, without a runtime to ask.
#ifndef WEFT_TENSOR_CUDA_CUDA_MEANING_H_
#define WEFT_TENSOR_CUDA_CUDA_MEANING_H_

#include <string_view>

#include "absl/status/status.h"
#include "tensor/cuda/cuda_runtime.h"

namespace weft {

// The texts live for ever.
struct CudaMeaning {
  // ResourceExhausted for memory; Unavailable where the card failed or is taken; FailedPrecondition
  // where the machine's set-up does not fit this build, or work cannot be recorded; Internal where
  // a kernel did wrong, and for what should not happen.
  absl::StatusCode code = absl::StatusCode::kInternal;
  // "cudaErrorNoKernelImageForDevice"; empty where this table has no row for the code.
  std::string_view name;
  // What is wrong, where a user can tell, and what to do: a clause without a full stop.
  std::string_view advice;
};

// REQUIRES: not kSuccess. Thread-safe.
CudaMeaning MeaningOf(CudaCode code);

}  // namespace weft

#endif  // WEFT_TENSOR_CUDA_CUDA_MEANING_H_
