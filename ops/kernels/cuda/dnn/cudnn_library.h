// Cudnn: Dnn by NVIDIA's cuDNN 9, whose functions are found at run time. With --config=cuda alone,
// where cudnn.h is.
#ifndef WEFT_OPS_KERNELS_CUDA_DNN_CUDNN_LIBRARY_H_
#define WEFT_OPS_KERNELS_CUDA_DNN_CUDNN_LIBRARY_H_

#include <cstddef>
#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ops/kernels/cuda/dnn/dnn.h"
#include "tensor/cuda/symbol_source.h"

namespace weft::cuda {

struct CudnnOptions {
  // A plan may want so much workspace; plans that want more are passed over.
  size_t workspace_limit = size_t{256} << 20;
  // Makes the device the current one of the calling thread: before the library is opened and asked.
  std::function<absl::Status()> make_current = [] { return absl::OkStatus(); };
};

// Convolutions, attention and normalizations as graphs of cuDNN's backend API. Of the engine
// configurations that the library proposes (heuristics A, then those that always fit), the first
// one that makes a plan is taken whose engine gives the same bits each time and is as exact as
// ConvolutionSpec says. Errors: those of `symbols` and make_current; Internal with the library's
// status and text; FailedPrecondition in a program that was built where there was no cudnn.h.
absl::StatusOr<std::unique_ptr<Dnn>> OpenCudnn(const SymbolSource& symbols,
                                               CudnnOptions options = {});

}  // namespace weft::cuda

#endif  // WEFT_OPS_KERNELS_CUDA_DNN_CUDNN_LIBRARY_H_
