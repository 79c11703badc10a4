// RateFactor: the learning rate's factor in a step.
#include <string>

#include "ops/defs/optimizer/rate_schedule.h"
#include "ops/kernel.h"
#include "ops/kernels/cpu/blocks/operand.h"

namespace weft::cpu {
namespace {

absl::StatusOr<std::unique_ptr<Kernel>> PrepareRateFactor(const PrepareContext& context) {
  const RateSchedule schedule = RateScheduleOf(context.attributes());
  if (const absl::Status status = ValidateRateSchedule(schedule); !status.ok()) {
    return context.InvalidArgument(std::string(status.message()));
  }
  const int64_t count = context.OutputShape(0).num_elements();
  return MakeKernel([schedule, count](const KernelContext& run) {
    for (int64_t i = 0; i < count; ++i) {
      const double factor = RateFactor(schedule, Input<int64_t>(run, 0)[i] - 1);
      Output<float>(run, 0)[i] = static_cast<float>(factor);
    }
    return absl::OkStatus();
  });
}

WEFT_REGISTER_KERNEL("ai.weft", "RateFactor", DeviceKind::kCpu, PrepareRateFactor);

}  // namespace
}  // namespace weft::cpu
