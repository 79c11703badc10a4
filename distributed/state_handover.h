// HandOverState: gives a worker that has come later the state of one that has it.
#ifndef WEFT_DISTRIBUTED_STATE_HANDOVER_H_
#define WEFT_DISTRIBUTED_STATE_HANDOVER_H_

#include <vector>

#include "absl/status/status.h"
#include "distributed/coordinator.h"

namespace weft {

// Of which rank another one takes all that its programs keep between steps.
struct Handover {
  int from = 0;
  int to = 0;
  friend bool operator==(const Handover&, const Handover&) = default;
};

// Copies every variable of the programs added so far, of each pair one variable after the other, so
// that no more than one is in this process; the pairs in parallel where they share no rank. No step
// runs meanwhile. Internal where the two have other parts of a variable; the errors are else those
// of the calls, with the worker's name.
absl::Status HandOverState(Coordinator& coordinator, const std::vector<Handover>& handovers);

}  // namespace weft

#endif  // WEFT_DISTRIBUTED_STATE_HANDOVER_H_
