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

// For a code other than 0: the kernel, CUDA's error number with its name, and what to do, with the
// code that tensor/cuda/cuda_meaning.h gives it.
absl::Status RefusedLaunch(int code, absl::string_view kernel);

// OK for 0; else RefusedLaunch.
inline absl::Status LaunchStatus(int code, absl::string_view kernel) {
  return code == 0 ? absl::OkStatus() : RefusedLaunch(code, kernel);
}

}  // namespace weft::cuda

#endif  // WEFT_OPS_KERNELS_CUDA_BLOCKS_LAUNCH_STATUS_H_
