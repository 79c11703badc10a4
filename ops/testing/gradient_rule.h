// Holds a gradient rule against numeric differentiation, without a test framework.
#ifndef WEFT_OPS_TESTING_GRADIENT_RULE_H_
#define WEFT_OPS_TESTING_GRADIENT_RULE_H_

#include <map>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "graph/graph.h"
#include "ops/kernel.h"
#include "ops/testing/op_case.h"

namespace weft::testing {

// A node and the nodes that its schema's gradient rule adds.
struct GradientGraph {
  std::unique_ptr<Graph> graph;
  NodeId node;
  std::vector<ValueId> inputs;            // per input of the node
  std::vector<ValueId> output_gradients;  // per output; graph inputs; kNoValue: none arrives
  std::vector<ValueId> input_gradients;   // per input; kNoValue: the rule says zero
};

// Calls the schema's rule for the case, with the dtypes of its tensors. A gradient arrives at every
// floating output that the case wants; gradients are asked for `inputs` .
absl::StatusOr<GradientGraph> BuildGradientGraph(const OpCase& op_case,
                                                 const std::vector<int>& inputs);

// The gradients of `inputs` by the rule, all zeros where it sets none. Random gradients arrive at
// the outputs, the same each time.
absl::StatusOr<std::vector<Tensor>> RuleGradients(const OpCase& op_case,
                                                  const std::vector<int>& inputs,
                                                  const KernelRegistry& registry);

// Every floating input that is not a value input.
std::vector<int> DifferentiableInputs(const OpCase& op_case);

struct NumericGradientOptions {
  const KernelRegistry* registry = nullptr;  // null = KernelRegistry::Global()
  // Largest difference from the numeric gradient, relative to the largest element of that gradient.
  double tolerance = 1e-6;
  // Of five points: x +- step, x +- 2 step. Kinks must be farther away.
  double step = 1e-3;
};

// Internal, naming input and element, where `gradients` (of RuleGradients) are not the numeric ones
// of sum(outputs * the arriving gradients). The inputs are float64, or float32 where a coarser step
// and tolerance are given.
absl::Status CheckAgainstNumericGradients(const OpCase& op_case, const std::vector<int>& inputs,
                                          const std::vector<Tensor>& gradients,
                                          const NumericGradientOptions& options = {});

}  // namespace weft::testing

#endif  // WEFT_OPS_TESTING_GRADIENT_RULE_H_
