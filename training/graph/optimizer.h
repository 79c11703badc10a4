// Optimizers append update ops to a graph.
#ifndef WEFT_TRAINING_GRAPH_OPTIMIZER_H_
#define WEFT_TRAINING_GRAPH_OPTIMIZER_H_

#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "graph/graph.h"
#include "graph/graph_builder.h"

namespace weft {

// What is set of one of the algorithms that ops/defs/optimizer declares, each in a file of its own
// with its formula and the usual values of its options.
struct OptimizerSpec {
  std::string kind = "sgd";  // one of OptimizerKinds()
  double learning_rate = 0.01;
  double weight_decay = 0;
  // By name ("beta1"); what is not set has its usual value, and those of other kinds do nothing.
  std::map<std::string, double> options = {};
  // Whether the update reads the number of the step.
  bool needs_step_number() const;
};
std::vector<std::string> OptimizerKinds();
// The learning rate that a kind usually starts with: PyTorch's default where it has one.
double UsualLearningRate(const std::string& kind);
// InvalidArgument naming the kinds and the nearest one, or the number that is out of range.
absl::Status ValidateOptimizer(const OptimizerSpec& spec);

// The values that the update of one parameter reads.
struct OptimizerInputs {
  ValueId learning_rate;
  ValueId step;  // kNoValue unless needs_step_number()
};

// Adds the update of `variable` from its gradient (same shape), and the state that its kind
// declares as variables "NAME/m", ... (with a suffix where the graph has a value of that name).
absl::Status AddUpdate(GraphBuilder& builder, const OptimizerSpec& spec,
                       const OptimizerInputs& inputs, const std::string& variable,
                       ValueId gradient);

// Adds "NAME/ema", the exponential moving average of the variable's values after each step, which
// starts at its initial value: average = decay average + (1 - decay) value. AddUpdate comes first.
absl::Status AddMovingAverage(GraphBuilder& builder, double decay, const std::string& variable);
// The name of that average in a training graph; empty when it has none.
std::string MovingAverageOf(const Graph& graph, const std::string& variable);

}  // namespace weft

#endif  // WEFT_TRAINING_GRAPH_OPTIMIZER_H_
