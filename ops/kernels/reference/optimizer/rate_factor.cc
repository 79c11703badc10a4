// RateFactor, element by element in double.
#include "ops/defs/optimizer/rate_schedule.h"
#include "ops/kernels/reference/reference.h"

namespace weft::cpu {
namespace {

absl::Status RateFactorOfStep(ReferenceCall& call) {
  const RateSchedule schedule = RateScheduleOf(call.attributes());
  for (int64_t i = 0; i < call.output(0).size(); ++i) {
    call.output(0)[i] = RateFactor(schedule, static_cast<int64_t>(call.input(0)[i]) - 1);
  }
  return absl::OkStatus();
}

WEFT_REGISTER_REFERENCE_KERNEL("ai.weft", "RateFactor", ReferenceKernel(RateFactorOfStep));

}  // namespace
}  // namespace weft::cpu
