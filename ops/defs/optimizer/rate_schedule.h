// RateSchedule: how the learning rate goes from step to step. A pure function of the step number,
// so that a resumed run has the rates of an undisturbed one. Formulas: torch.optim.lr_scheduler.
#ifndef WEFT_OPS_DEFS_OPTIMIZER_RATE_SCHEDULE_H_
#define WEFT_OPS_DEFS_OPTIMIZER_RATE_SCHEDULE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "graph/attribute.h"

namespace weft {

// All factors are of the base learning rate. With t = 0 in the first step: while t < warmup the
// factor is (t + 1) / warmup; then, with u = t - warmup, p = min(1, u / (total - warmup)) and
// e = end:
//   constant     1
//   step         gamma^floor(u / every)
//   exponential  gamma^u
//   linear       1 + (e - 1) p
//   cosine       e + (1 - e) (1 + cos(pi p)) / 2
//   polynomial   e + (1 - e) (1 - p)^power
//   one_cycle    by cosines from 1 / 25 up to 1 at 0.3 total, then down to 1e-4 / 25 in the last
//                step, total - 1 (torch.optim.lr_scheduler.OneCycleLR's defaults; no warm-up)
struct RateSchedule {
  std::string kind = "constant";
  int64_t warmup = 0;
  int64_t total = 0;  // steps of the whole run, warm-up included
  int64_t every = 1;
  double gamma = 0.1;
  double power = 1;
  double end = 0;

  // Whether the rate is the same in every step.
  bool is_constant() const { return kind == "constant" && warmup == 0; }
  // Whether `total` means something.
  bool needs_total() const;
};

std::vector<std::string> RateScheduleKinds();
// InvalidArgument naming the kinds and the nearest one, or the number that is out of range.
absl::Status ValidateRateSchedule(const RateSchedule& schedule);

// REQUIRES: a valid schedule and step >= 0 (0 for the first). Beyond `total` the last factor stays,
// except for "step" and "exponential", which have no total and go on falling.
double RateFactor(const RateSchedule& schedule, int64_t step);

// Attributes of ai.weft::RateFactor, and back.
Attributes ToAttributes(const RateSchedule& schedule);
RateSchedule RateScheduleOf(const Attributes& attributes);

}  // namespace weft

#endif  // WEFT_OPS_DEFS_OPTIMIZER_RATE_SCHEDULE_H_
