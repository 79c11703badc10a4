// The random numbers of a node: key, and places of elements, for the kernels of all devices.
#ifndef WEFT_OPS_RANDOM_DRAWS_H_
#define WEFT_OPS_RANDOM_DRAWS_H_

#include <cstdint>
#include <memory>
#include <utility>

#include "ops/kernel.h"
#include "platform/random.h"

namespace weft {

// The key of a node's numbers; a step folds its number in. Of the node's seed (0 without one) and
// its name in the model.
RandomKey KeyOfNode(const PrepareContext& context);

// Where the numbers of a micro-batch begin: each sample of the step's batch has its share of a
// tensor of this global shape, so that no two micro-batches share numbers and, where axis 0 are the
// samples, a sample's numbers do not depend on how the batch is cut.
inline int64_t FirstPlace(const KernelContext& run, const Shape& global_shape) {
  if (run.samples == 0) return 0;
  return run.first_sample * ((global_shape.num_elements() + run.samples - 1) / run.samples);
}

// MakeKernel of a callable that reads KernelContext::step on the host.
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

}  // namespace weft

#endif  // WEFT_OPS_RANDOM_DRAWS_H_
