// A kernel that draws anew in each step.
#ifndef WEFT_OPS_KERNELS_CUDA_RANDOM_STEP_KERNEL_H_
#define WEFT_OPS_KERNELS_CUDA_RANDOM_STEP_KERNEL_H_

#include <memory>
#include <utility>

#include "ops/kernel.h"

namespace weft::cuda {

// MakeKernel of a callable that reads the step or the micro-batch of its context.
template <typename Fn>
std::unique_ptr<Kernel> MakeStepKernel(Fn fn) {
  class StepKernel final : public Kernel {
   public:
    explicit StepKernel(Fn fn) : fn_(std::move(fn)) {}
    absl::Status Run(const KernelContext& context) override { return fn_(context); }
    bool depends_on_step() const override { return true; }

   private:
    Fn fn_;
  };
  return std::make_unique<StepKernel>(std::move(fn));
}

}  // namespace weft::cuda

#endif  // WEFT_OPS_KERNELS_CUDA_RANDOM_STEP_KERNEL_H_
