// CUDA's runtime in builds without it.
#include "tensor/cuda/cuda_runtime.h"

namespace weft {

absl::StatusOr<CudaRuntime*> SystemCudaRuntime() {
  return absl::UnimplementedError(
      "this build has no CUDA: it was made without --config=cuda; use one that was made with it");
}

}  // namespace weft
