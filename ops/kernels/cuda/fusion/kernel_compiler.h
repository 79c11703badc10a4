// Compiles generated text for a device.
#ifndef WEFT_OPS_KERNELS_CUDA_FUSION_KERNEL_COMPILER_H_
#define WEFT_OPS_KERNELS_CUDA_FUSION_KERNEL_COMPILER_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ops/kernels/cuda/fusion/generated_arguments.h"
#include "ops/kernels/cuda/language/launch_grid.h"
#include "tensor/device.h"

namespace weft::cuda {

// The function that each text has for GPUs: extern "C", with GeneratedArguments as its parameter.
inline constexpr char kGeneratedKernel[] = "weft_generated";

// A compiled text on one device. Launched by one thread at a time.
class GeneratedKernel {
 public:
  virtual ~GeneratedKernel() = default;
  // Puts the kernel behind what is on the queue; does not wait. 0, or CUDA's error number.
  virtual int Launch(LaunchQueue queue, const LaunchGrid& grid,
                     const GeneratedArguments& arguments) = 0;
};

// Compiles for one device. Thread-safe. Kernels may outlive it.
class KernelCompiler {
 public:
  virtual ~KernelCompiler() = default;
  // The kernel of a text; equal texts may share one. Internal with the compiler's words where it
  // refuses the text, which is our fault; the errors of loading come through.
  virtual absl::StatusOr<std::shared_ptr<GeneratedKernel>> Compile(const std::string& text) = 0;
};

// Gives the compiler of a device, or why there is none.
using KernelCompilerProvider = absl::StatusOr<KernelCompiler*> (*)(Device& device);

// Where factories find it. FailedPrecondition when this program has none; else the provider's
// error.
absl::StatusOr<KernelCompiler*> KernelCompilerOf(Device& device);
// The one of builds with CUDA and the one of the tests say it before main. The last one counts.
bool SetKernelCompilerProvider(KernelCompilerProvider provider);

}  // namespace weft::cuda

#endif  // WEFT_OPS_KERNELS_CUDA_FUSION_KERNEL_COMPILER_H_
