// UpdateGuard: looks at what a step is about to update.
#ifndef WEFT_EXECUTOR_INTERFACES_UPDATE_GUARD_H_
#define WEFT_EXECUTOR_INTERFACES_UPDATE_GUARD_H_

#include <cstdint>

#include "absl/status/status.h"

namespace weft {

// Called once in a step, by the thread that runs it, when all that belongs to its micro-batches is
// done and no variable is updated yet. Only where the host reaches the device's memory.
class UpdateGuard {
 public:
  virtual ~UpdateGuard() = default;
  // An error ends the step: it has updated nothing.
  virtual absl::Status BeforeUpdates(int64_t step) = 0;
};

}  // namespace weft

#endif  // WEFT_EXECUTOR_INTERFACES_UPDATE_GUARD_H_
