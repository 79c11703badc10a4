// Waits of the host for a device, with a deadline: CUDA's own have none.
#ifndef WEFT_TENSOR_CUDA_CUDA_WAIT_H_
#define WEFT_TENSOR_CUDA_CUDA_WAIT_H_

#include "absl/functional/function_ref.h"
#include "absl/time/time.h"
#include "platform/clock.h"
#include "tensor/cuda/cuda_runtime.h"

namespace weft {

// Asks `query` (QueryStream, QueryEvent) until it answers something else than kNotReady, and
// returns that; kNotReady when `deadline` has passed. Asks as PollUntil does
// (platform/polling.h).
CudaCode AwaitCuda(absl::FunctionRef<CudaCode()> query, Clock& clock, absl::Time deadline);

}  // namespace weft

#endif  // WEFT_TENSOR_CUDA_CUDA_WAIT_H_
