#include "ops/kernels/cuda/fusion/kernel_compiler.h"

#include <atomic>

#include "absl/strings/str_cat.h"

namespace weft::cuda {
namespace {

std::atomic<KernelCompilerProvider> kernel_compiler_provider{nullptr};

}  // namespace

absl::StatusOr<KernelCompiler*> KernelCompilerOf(Device& device) {
  const KernelCompilerProvider provider = kernel_compiler_provider.load();
  if (provider != nullptr) return provider(device);
  return absl::FailedPreconditionError(
      absl::StrCat("fused nodes on ", device.info().name,
                   " need NVRTC, and this program is built without it (--config=cuda)"));
}

bool SetKernelCompilerProvider(KernelCompilerProvider provider) {
  kernel_compiler_provider.store(provider);
  return true;
}

}  // namespace weft::cuda
