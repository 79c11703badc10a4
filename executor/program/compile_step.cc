#include "executor/program/compile_step.h"

#include <utility>

#include "executor/program/compiled_step.h"
#include "executor/program/graph_programs.h"

namespace weft {

absl::StatusOr<std::unique_ptr<StepProgram>> CompileStep(const Partition& partition,
                                                         const ExecutorEnvironment& environment) {
  if (environment.bodies != nullptr) return CompileWithBodies(partition, environment, nullptr);
  std::unique_ptr<BodyRunner> bodies = NewBodyRunner(*environment.device, partition.threads,
                                                     /*depth=*/0, environment.runs_nodes_on_host);
  ExecutorEnvironment complete = environment;
  complete.bodies = bodies.get();
  return CompileWithBodies(partition, complete, std::move(bodies));
}

}  // namespace weft
