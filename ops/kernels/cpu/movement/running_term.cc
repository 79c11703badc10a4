// RunningTerm.
#include <cmath>

#include "ops/kernels/cpu/blocks/operand.h"

namespace weft::cpu {
namespace {

absl::StatusOr<std::unique_ptr<Kernel>> PrepareRunningTerm(const PrepareContext& context) {
  const double decay = context.attributes().Float("decay", 1.0f);
  const double share = context.attributes().Float("share", 0.0f);
  const int64_t count = context.InputShape(0).num_elements();
  const bool wants_weight = context.HasOutput(1);
  return PrepareByDType(context, context.InputDType(0), FloatTypes(),
                        [&](auto zero) -> absl::StatusOr<std::unique_ptr<Kernel>> {
                          using T = decltype(zero);
                          using C = ComputeType<T>;
                          return MakeKernel([=](const KernelContext& run) {
                            const int to_come = run.micro_batches - 1 - run.micro_batch;
                            const C weight = static_cast<C>(share * std::pow(decay, to_come));
                            const T* const x = Input<T>(run, 0);
                            T* const y = Output<T>(run, 0);
                            for (int64_t i = 0; i < count; ++i)
                              y[i] = Store<T>(weight * Load(x[i]));
                            if (wants_weight) *Output<T>(run, 1) = Store<T>(weight);
                            return absl::OkStatus();
                          });
                        });
}

}  // namespace

WEFT_REGISTER_KERNEL(kWeftDomain, "RunningTerm", DeviceKind::kCpu, PrepareRunningTerm);

}  // namespace weft::cpu
