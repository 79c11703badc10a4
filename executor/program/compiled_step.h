// CompiledStep: gives buffers their addresses and runs the instructions. Internal to
// executor/.
#ifndef WEFT_EXECUTOR_PROGRAM_COMPILED_STEP_H_
#define WEFT_EXECUTOR_PROGRAM_COMPILED_STEP_H_

#include <memory>

#include "absl/status/statusor.h"
#include "executor/lowering/executor_environment.h"
#include "executor/program/step_program.h"
#include "graph/partition.h"
#include "ops/value_node.h"

namespace weft {

// As CompileStep. REQUIRES: the environment has a BodyRunner, which is `own_bodies` or outlives the
// program.
absl::StatusOr<std::unique_ptr<StepProgram>> CompileWithBodies(
    const Partition& partition, const ExecutorEnvironment& environment,
    std::unique_ptr<BodyRunner> own_bodies);

}  // namespace weft

#endif  // WEFT_EXECUTOR_PROGRAM_COMPILED_STEP_H_
