// Lowering: from a Partition to two flat lists of instructions over buffers, in passes. Pure but
// for preparing kernels and opening channels. executor/program gives the buffers addresses and
// runs the lists.
#ifndef WEFT_EXECUTOR_LOWERING_LOWERING_H_
#define WEFT_EXECUTOR_LOWERING_LOWERING_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "executor/lowering/executor_environment.h"
#include "executor/lowering/lowered_step.h"
#include "graph/partition.h"

namespace weft {

// Runs the passes one after the other. `observer` is called after each; null = nobody looks, and no
// text is made. Errors name the node, as far as there is one.
absl::StatusOr<LoweredStep> LowerStep(const Partition& partition,
                                      const ExecutorEnvironment& environment,
                                      const LoweringObserver* observer = nullptr);

// What an observer hears of, in order.
std::vector<std::string> LoweringPassNames();

}  // namespace weft

#endif  // WEFT_EXECUTOR_LOWERING_LOWERING_H_
