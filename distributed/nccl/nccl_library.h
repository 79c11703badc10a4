// NCCL as a library that is opened at run time.
#ifndef WEFT_DISTRIBUTED_NCCL_NCCL_LIBRARY_H_
#define WEFT_DISTRIBUTED_NCCL_NCCL_LIBRARY_H_

#include <memory>

#include "absl/status/statusor.h"
#include "distributed/nccl/nccl.h"
#include "tensor/cuda/cuda_libraries.h"

namespace weft {

// Over the library's functions, of which one that is missing is FailedPrecondition with its name.
// Borrows the library, which lives for ever or as long as this.
absl::StatusOr<std::unique_ptr<Nccl>> BindNccl(const CudaLibrary& library);

// The process's, opened by the first call (FindCudaLibrary, and its errors). Lives for ever.
// Thread-safe.
absl::StatusOr<Nccl*> SystemNccl();

}  // namespace weft

#endif  // WEFT_DISTRIBUTED_NCCL_NCCL_LIBRARY_H_
