// Optimizers append update ops to a graph.
#ifndef WEFT_TRAINING_OPTIMIZER_H_
#define WEFT_TRAINING_OPTIMIZER_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "graph/graph.h"
#include "graph/graph_builder.h"

namespace weft {

// PyTorch's rules (ops/defs/update.cc has the formulas).
struct OptimizerSpec {
  std::string kind = "sgd";  // "sgd", "momentum", "nesterov", "adam", "adamw"
  double learning_rate = 0.01;
  double momentum = 0.9;  // of momentum and nesterov
  double weight_decay = 0;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  bool needs_step_number() const { return kind == "adam" || kind == "adamw"; }
};
std::vector<std::string> OptimizerKinds();
// InvalidArgument naming the kinds and the nearest one, or the parameter that is out of range.
absl::Status ValidateOptimizer(const OptimizerSpec& spec);

struct OptimizerInputs {
  ValueId learning_rate;
  ValueId step;  // kNoValue unless needs_step_number()
};

// Adds the update of `variable` from its gradient (same shape), and the state it needs as variables
// "NAME/velocity", "NAME/m", "NAME/v" (with a suffix where the graph has a value of that name) that
// start at zero.
absl::Status AddUpdate(GraphBuilder& builder, const OptimizerSpec& spec,
                       const OptimizerInputs& inputs, const std::string& variable,
                       ValueId gradient);

}  // namespace weft

#endif  // WEFT_TRAINING_OPTIMIZER_H_
