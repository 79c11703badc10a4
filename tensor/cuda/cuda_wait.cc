#include "tensor/cuda/cuda_wait.h"

#include "platform/polling.h"

namespace weft {

CudaCode AwaitCuda(absl::FunctionRef<CudaCode()> query, Clock& clock, absl::Time deadline) {
  CudaCode code = CudaCode::kNotReady;
  const auto is_known = [&] {
    code = query();
    return code != CudaCode::kNotReady;
  };
  PollUntil(is_known, clock, deadline);
  return code;
}

}  // namespace weft
