// The naive oracle for partitions and for the executor: runs the partitions of all ranks in one
// thread, node by node, with reference kernels and messages in memory.
#ifndef WEFT_PLACEMENT_TESTING_REFERENCE_INTERPRETER_H_
#define WEFT_PLACEMENT_TESTING_REFERENCE_INTERPRETER_H_

#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "graph/graph.h"
#include "graph/partition.h"
#include "ops/kernel.h"
#include "tensor/tensor.h"

namespace weft::testing {

// Everything a step reads, whole: data inputs of the global batch, step inputs, variables.
struct StepValues {
  std::map<std::string, Tensor> data;
  std::map<std::string, Tensor> scalars;
  std::map<std::string, Tensor> variables;
};

// What a step makes.
struct StepOutcome {
  std::map<std::string, Tensor> reports;
  std::map<std::string, Tensor> variables;  // after the step, whole
};

// Runs the action lists of all ranks together. A send never waits; a receive and a collective wait
// for the others. In the end graph what the guard depends on runs first, as in the executor.
// Internal when ranks wait in a circle, naming what each waits for; when a message is left over;
// when reports or replicas of a variable differ in a bit. `kernels`: null means the reference
// kernels, where there are.
absl::StatusOr<StepOutcome> InterpretStep(const std::vector<Partition>& partitions,
                                          const StepValues& values,
                                          const KernelRegistry* kernels = nullptr);

// The same step by direct evaluation of the logical graph, the whole batch as one micro-batch.
absl::StatusOr<StepOutcome> EvaluateStep(const Graph& graph, const StepValues& values,
                                         int64_t global_batch);

// Largest |a - b| / max(1, |a|, |b|) over all elements of both outcomes. Infinity when names,
// shapes or dtypes differ.
double Difference(const StepOutcome& a, const StepOutcome& b);

}  // namespace weft::testing

#endif  // WEFT_PLACEMENT_TESTING_REFERENCE_INTERPRETER_H_
