// ChaosSchedule: what befalls a job, drawn from a seed; pure data.
#ifndef WEFT_TOOLS_CHAOS_CHAOS_SCHEDULE_H_
#define WEFT_TOOLS_CHAOS_CHAOS_SCHEDULE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "tools/chaos/fault_kind.h"

namespace weft {

// One fault of a schedule.
struct ChaosFault {
  FaultKind kind = FaultKind::kKill;
  int64_t step = 0;    // strikes once the job has told of so many steps
  int worker = 0;      // which of the workers that live then: counted from 0, modulo their number
  double seconds = 0;  // how long it lasts; 0: it is done at once
  // Whether it lasts longer than a worker may be silent.
  bool is_long = false;
};

// What befalls one run of a job.
struct ChaosSchedule {
  int64_t seed = 0;
  std::vector<ChaosFault> faults;  // in the order of their steps
  // Whether the workers must stand behind proxies.
  bool needs_proxies() const;
};

// The same for the same arguments, on every machine: one to three faults of these kinds, in steps
// between a twentieth and four fifths of `steps`. `workers`: of the job as it begins; 0: it has
// none of its own, and no fault of workers is drawn. `silence`: seconds after which a worker that
// does not answer is lost. REQUIRES: a kind that can be drawn.
ChaosSchedule DrawChaosSchedule(int64_t seed, const std::vector<FaultKind>& kinds, int64_t steps,
                                int workers, double silence);

// "stop for 1.2 s".
std::string FaultText(const ChaosFault& fault);

}  // namespace weft

#endif  // WEFT_TOOLS_CHAOS_CHAOS_SCHEDULE_H_
