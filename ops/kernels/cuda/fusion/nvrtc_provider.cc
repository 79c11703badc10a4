#include "ops/kernels/cuda/fusion/nvrtc_provider.h"

#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "ops/kernels/cuda/fusion/kernel_cache.h"
#include "ops/kernels/cuda/fusion/kernel_compiler.h"
#include "ops/kernels/cuda/fusion/nvrtc.h"
#include "ops/kernels/cuda/fusion/nvrtc_compiler.h"
#include "platform/mutex.h"
#include "platform/private_folder.h"
#include "platform/status_macros.h"
#include "tensor/cuda/cuda_device.h"
#include "tensor/cuda/cuda_libraries.h"
#include "tensor/cuda/cuda_runtime.h"

namespace weft::cuda {
namespace {

// Live for ever, as the process's devices do.
struct NvrtcOfCards {
  Mutex mutex;
  std::unique_ptr<Nvrtc> nvrtc ABSL_GUARDED_BY(mutex);
  std::map<const Device*, std::unique_ptr<NvrtcCompiler>> by_device ABSL_GUARDED_BY(mutex);
};

// The process's; null where the environment turns it off.
KernelCache* CacheOfProcess() {
  static KernelCache* const cache = []() -> KernelCache* {
    const std::string folder =
        KernelCacheFolder([](const char* name) -> const char* { return std::getenv(name); });
    if (folder.empty()) return nullptr;
    return new KernelCache([folder] { return OpenPrivateFolder(folder); });
  }();
  return cache;
}

[[maybe_unused]] const bool is_the_compiler = SetKernelCompilerProvider(NvrtcOf);

}  // namespace

absl::StatusOr<KernelCompiler*> NvrtcOf(Device& device) {
  auto* const card = dynamic_cast<CudaDevice*>(&device);
  if (card == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("NVRTC compiles for CUDA devices, not for ", device.info().name));
  }
  static auto* const cards = new NvrtcOfCards;
  const MutexLock lock(cards->mutex);
  std::unique_ptr<NvrtcCompiler>& compiler = cards->by_device[&device];
  if (compiler != nullptr) return compiler.get();
  if (cards->nvrtc == nullptr) {
    WEFT_ASSIGN_OR_RETURN(const CudaLibrary* const library,
                          FindCudaLibrary(CudaLibraryKind::kNvrtc));
    WEFT_ASSIGN_OR_RETURN(cards->nvrtc, Nvrtc::Open([library](const std::string& name) {
                            return library->Symbol(name);
                          }));
  }
  NvrtcCompilerOptions options;
  options.nvrtc = cards->nvrtc.get();
  WEFT_ASSIGN_OR_RETURN(options.runtime, SystemCudaRuntime());
  options.major = card->properties().major;
  options.minor = card->properties().minor;
  options.make_current = [card] { return card->MakeCurrent(); };
  options.cache = CacheOfProcess();
  compiler = std::make_unique<NvrtcCompiler>(std::move(options));
  return compiler.get();
}

}  // namespace weft::cuda
