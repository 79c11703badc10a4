// Lowering: from a Partition to two flat lists of instructions over buffers. Pure but for preparing
// kernels and opening channels. step_program.cc gives the buffers addresses and plays the lists.
#ifndef WEFT_EXECUTOR_LOWERING_LOWERING_H_
#define WEFT_EXECUTOR_LOWERING_LOWERING_H_

#include <string>

#include "absl/status/statusor.h"
#include "executor/lowering/executor_environment.h"
#include "executor/lowering/lowered_step.h"
#include "graph/partition.h"

namespace weft {

absl::StatusOr<LoweredStep> LowerStep(const Partition& partition,
                                      const ExecutorEnvironment& environment);

// One line per instruction, stable.
std::string Describe(const LoweredStep& step);
// "node 'fill' (ConstantOfShape, int64[1] -> float32[99]) makes 396 of them", or "".
std::string DescribeLargestValue(const LoweredStep& step);

}  // namespace weft

#endif  // WEFT_EXECUTOR_LOWERING_LOWERING_H_
