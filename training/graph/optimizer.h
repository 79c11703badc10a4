// Optimizers append update ops to a graph.
#ifndef WEFT_TRAINING_GRAPH_OPTIMIZER_H_
#define WEFT_TRAINING_GRAPH_OPTIMIZER_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "graph/graph.h"
#include "graph/graph_builder.h"

namespace weft {

// PyTorch's rules (ops/defs/optimizer/update.cc and update_adaptive.cc have the formulas). What is
// not set has the usual value of its kind.
struct OptimizerSpec {
  std::string kind = "sgd";  // one of OptimizerKinds()
  double learning_rate = 0.01;
  std::optional<double> momentum = {};  // momentum, nesterov, lars: 0.9; rmsprop: 0
  double weight_decay = 0;
  std::optional<double> beta1 = {};    // adam, adamw, amsgrad, lamb, lion: 0.9
  std::optional<double> beta2 = {};    // adam, adamw, amsgrad, lamb: 0.999; lion: 0.99
  std::optional<double> epsilon = {};  // adagrad: 1e-10; adadelta, lamb: 1e-6; others: 1e-8
  double dampening = 0;                // of momentum
  double alpha = 0.99;                 // of rmsprop: how much of the mean square stays
  bool centered = false;               // rmsprop: divide by the spread, not by the mean square
  double rho = 0.9;                    // of adadelta, as alpha
  double rate_decay = 0;               // of adagrad: rate / (1 + steps * rate_decay)
  double initial_accumulator = 0;      // of adagrad: what the sum of squares starts with
  double trust = 0.001;                // of lars: step length / length of the weights
  // Whether the update reads the number of the step.
  bool needs_step_number() const;
};
std::vector<std::string> OptimizerKinds();
// The learning rate that a kind usually starts with: PyTorch's default where it has one.
double UsualLearningRate(const std::string& kind);
// InvalidArgument naming the kinds and the nearest one, or the parameter that is out of range.
absl::Status ValidateOptimizer(const OptimizerSpec& spec);

// The values that the update of one parameter reads.
struct OptimizerInputs {
  ValueId learning_rate;
  ValueId step;  // kNoValue unless needs_step_number()
};

// Adds the update of `variable` from its gradient (same shape), and the state it needs as variables
// "NAME/velocity", "NAME/m", "NAME/v", "NAME/v_max", "NAME/sum", "NAME/square", "NAME/mean" and
// "NAME/delta" (with a suffix where the graph has a value of that name), which start at zero (the
// sum at `initial_accumulator`).
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
