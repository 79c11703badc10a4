// OpenCudnn of a program that was built where there was no cudnn.h.
#include "ops/kernels/cuda/dnn/cudnn_library.h"

namespace weft::cuda {

absl::StatusOr<std::unique_ptr<Dnn>> OpenCudnn(const SymbolSource& /*symbols*/,
                                               CudnnOptions /*options*/) {
  return absl::FailedPreconditionError(
      "this program cannot call cuDNN: there was no cudnn.h where it was built; build it where "
      "cuDNN's headers are installed, or leave out --cudnn on");
}

}  // namespace weft::cuda
