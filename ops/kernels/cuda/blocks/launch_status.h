// What a launch returned, as a status. For factories.
#ifndef WEFT_OPS_KERNELS_CUDA_BLOCKS_LAUNCH_STATUS_H_
#define WEFT_OPS_KERNELS_CUDA_BLOCKS_LAUNCH_STATUS_H_

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "ops/kernel.h"
#include "ops/kernels/cuda/language/launch_grid.h"

namespace weft::cuda {

// The queue of a kernel's run.
inline LaunchQueue QueueOf(const KernelContext& context) {
  return {context.stream->native_handle()};
}

// OK for 0; else Internal with the kernel and CUDA's error number.
inline absl::Status LaunchStatus(int code, absl::string_view kernel) {
  if (code == 0) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("CUDA refuses to launch ", kernel, " with error ", code));
}

}  // namespace weft::cuda

#endif  // WEFT_OPS_KERNELS_CUDA_BLOCKS_LAUNCH_STATUS_H_
