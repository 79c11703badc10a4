// NvrtcCompiler: generated kernels on a card.
#ifndef WEFT_OPS_KERNELS_CUDA_FUSION_NVRTC_COMPILER_H_
#define WEFT_OPS_KERNELS_CUDA_FUSION_NVRTC_COMPILER_H_

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ops/kernels/cuda/fusion/kernel_cache.h"
#include "ops/kernels/cuda/fusion/kernel_compiler.h"
#include "ops/kernels/cuda/fusion/nvrtc.h"
#include "platform/mutex.h"
#include "tensor/cuda/cuda_runtime.h"

namespace weft::cuda {

// What an NvrtcCompiler works with. Borrowed; outlives it and its kernels.
struct NvrtcCompilerOptions {
  const Nvrtc* nvrtc = nullptr;
  CudaRuntime* runtime = nullptr;
  // The compute capability of the card.
  int major = 0;
  int minor = 0;
  // Makes the card the calling thread's current device.
  std::function<absl::Status()> make_current;
  // Where compiled texts are kept for other processes; null: nowhere.
  KernelCache* cache = nullptr;
};

// Compiles texts for one card and loads them. Equal texts are compiled once; what the cache has is
// not compiled, but where the card refuses it. A kernel's code is
// unloaded when the last of its users has ended. Thread-safe; compiles one at a time.
class NvrtcCompiler final : public KernelCompiler {
 public:
  explicit NvrtcCompiler(NvrtcCompilerOptions options) : options_(std::move(options)) {}

  // Internal with NVRTC's log; the errors of make_current and of CUDA come through.
  absl::StatusOr<std::shared_ptr<GeneratedKernel>> Compile(const std::string& text) override;

 private:
  // All that the code of a text depends on.
  std::string KeyOf(const std::string& text) const;
  // The kernel that the cache has; null where it has none that the card takes.
  std::shared_ptr<GeneratedKernel> FromCache(const std::string& key);
  absl::StatusOr<std::shared_ptr<GeneratedKernel>> Load(const std::string& cubin);

  const NvrtcCompilerOptions options_;
  Mutex mutex_;
  std::map<std::string, std::weak_ptr<GeneratedKernel>> kernels_
      ABSL_GUARDED_BY(mutex_);  // by text
};

}  // namespace weft::cuda

#endif  // WEFT_OPS_KERNELS_CUDA_FUSION_NVRTC_COMPILER_H_
