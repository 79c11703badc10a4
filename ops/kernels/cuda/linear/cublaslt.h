// CublasLt: BlasLt by NVIDIA's cuBLASLt, whose functions are found at run time. With --config=cuda
// alone.
#ifndef WEFT_OPS_KERNELS_CUDA_LINEAR_CUBLASLT_H_
#define WEFT_OPS_KERNELS_CUDA_LINEAR_CUBLASLT_H_

#include <functional>
#include <memory>

#include "absl/status/statusor.h"
#include "ops/kernels/cuda/linear/blas_lt.h"
#include "tensor/cuda/symbol_source.h"

namespace weft::cuda {

struct CublasLtOptions {
  // An algorithm may want so much workspace. NVIDIA asks for 32 MiB on Hopper.
  size_t workspace_limit = size_t{32} << 20;
  // Makes the device the current one of the calling thread: before the library is opened and asked.
  std::function<absl::Status()> make_current = [] { return absl::OkStatus(); };
};

// Row-major products as column-major ones with the operands exchanged: Y^T = op(B)^T op(A)^T. The
// first algorithm of the library's heuristic whose sums have a fixed order. Errors: those of
// `symbols` and make_current; Internal with the library's status.
absl::StatusOr<std::unique_ptr<BlasLt>> OpenCublasLt(const SymbolSource& symbols,
                                                     CublasLtOptions options = {});

}  // namespace weft::cuda

#endif  // WEFT_OPS_KERNELS_CUDA_LINEAR_CUBLASLT_H_
