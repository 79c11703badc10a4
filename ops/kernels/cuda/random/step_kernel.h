// A kernel that draws anew in each step, whose number it reads on the device.
#ifndef WEFT_OPS_KERNELS_CUDA_RANDOM_STEP_KERNEL_H_
#define WEFT_OPS_KERNELS_CUDA_RANDOM_STEP_KERNEL_H_

#include <memory>
#include <utility>

#include "ops/kernel.h"

namespace weft::cuda {

// MakeKernel of a callable whose launches have the StepKey of its context (StepKeyOf).
template <typename Fn>
std::unique_ptr<Kernel> MakeDrawingKernel(Fn fn) {
  class DrawingKernel final : public StepReadingKernel {
   public:
    explicit DrawingKernel(Fn fn) : fn_(std::move(fn)) {}
    absl::Status Run(const KernelContext& context) override { return fn_(context); }

   private:
    Fn fn_;
  };
  return std::make_unique<DrawingKernel>(std::move(fn));
}

}  // namespace weft::cuda

#endif  // WEFT_OPS_KERNELS_CUDA_RANDOM_STEP_KERNEL_H_
