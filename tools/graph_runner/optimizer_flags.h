// OptimizerFlags: what is minimized and how: loss, optimizer, and the parameters that train.
#ifndef WEFT_TOOLS_GRAPH_RUNNER_OPTIMIZER_FLAGS_H_
#define WEFT_TOOLS_GRAPH_RUNNER_OPTIMIZER_FLAGS_H_

#include <string>

#include "CLI/CLI.hpp"
#include "absl/status/statusor.h"
#include "onnx_import/trainable.h"
#include "training/training_graph.h"

namespace weft {

// Binds flags to itself (so it must outlive the parser's use of it) and turns them into specs. All
// errors carry their exit code.
class OptimizerFlags {
 public:
  void AddLoss(CLI::App& app);
  void AddOptimizer(CLI::App& app);

  absl::StatusOr<LossSpec> Loss() const;
  absl::StatusOr<TrainingSpec> Training() const;
  // Which parameters train, and the output that is the loss if the graph computes it.
  TrainableOptions Trainable() const;

 private:
  std::string loss_ = "softmax_cross_entropy";
  OptimizerSpec optimizer_;
  double learning_rate_ = 0;  // 0 = the optimizer's usual one
  TrainableOptions trainable_;
};

}  // namespace weft

#endif  // WEFT_TOOLS_GRAPH_RUNNER_OPTIMIZER_FLAGS_H_
