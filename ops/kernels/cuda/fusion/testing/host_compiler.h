// HostCompiler: generated kernels on the emulated GPU.
#ifndef WEFT_OPS_KERNELS_CUDA_FUSION_TESTING_HOST_COMPILER_H_
#define WEFT_OPS_KERNELS_CUDA_FUSION_TESTING_HOST_COMPILER_H_

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "ops/kernels/cuda/fusion/kernel_compiler.h"
#include "platform/mutex.h"

namespace weft::testing {

// Compiles texts with the system's C++ compiler, for EmulatedGpu, and loads them. Thread-safe;
// compiles one at a time. What it loaded stays loaded.
class HostCompiler final : public cuda::KernelCompiler {
 public:
  // The process's. It is the KernelCompilerProvider of programs that link this library.
  static HostCompiler& Global();
  // Whether there is a compiler in PATH: g++ or c++.
  static bool IsThere();

  // Internal with what the compiler says, warnings too.
  absl::StatusOr<std::shared_ptr<cuda::GeneratedKernel>> Compile(const std::string& text) override;
  // All texts that were compiled, in order.
  std::vector<std::string> Texts();

 private:
  Mutex mutex_;
  std::map<std::string, std::shared_ptr<cuda::GeneratedKernel>> kernels_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::string> texts_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace weft::testing

#endif  // WEFT_OPS_KERNELS_CUDA_FUSION_TESTING_HOST_COMPILER_H_
