// From a Partition to a program of one device.
#ifndef WEFT_EXECUTOR_PROGRAM_COMPILE_STEP_H_
#define WEFT_EXECUTOR_PROGRAM_COMPILE_STEP_H_

#include <memory>

#include "absl/status/statusor.h"
#include "executor/lowering/executor_environment.h"
#include "executor/program/step_program.h"
#include "graph/partition.h"

namespace weft {

// Lowers the partition, prepares its kernels and lays out its memory; allocates none but what
// kernels keep. Where the environment has no BodyRunner, the program owns one. Errors:
// Unimplemented for an op without kernel (op, type and device named), ResourceExhausted beyond
// max_arena_bytes.
absl::StatusOr<std::unique_ptr<StepProgram>> CompileStep(const Partition& partition,
                                                         const ExecutorEnvironment& environment);

}  // namespace weft

#endif  // WEFT_EXECUTOR_PROGRAM_COMPILE_STEP_H_
