// From an imported forward graph to the logical graph of a training or an evaluation step.
#ifndef WEFT_TRAINING_TRAINING_GRAPH_H_
#define WEFT_TRAINING_TRAINING_GRAPH_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "graph/graph.h"
#include "training/optimizer.h"

namespace weft {

// Names of step inputs and outputs that the loop and the graph agree on.
inline constexpr char kLearningRateInput[] = "weft.learning_rate";  // float32 []
inline constexpr char kStepInput[] = "weft.step";  // int64 [], 1 for the first step
inline constexpr char kLabelsInput[] = "labels";
inline constexpr char kLossOutput[] = "loss";
// An evaluation step also reports what each metric's mean was divided by: "accuracy/weight".
inline constexpr char kWeightSuffix[] = "/weight";

struct LossSpec {
  // "softmax_cross_entropy", "mse", or "output:NAME" (the graph computes it).
  std::string kind = "softmax_cross_entropy";
  // The output the loss looks at; empty = the graph's first. Unused for output:NAME.
  std::string output = "";
  // Axis of the classes for softmax_cross_entropy; negative counts from the end.
  int64_t class_axis = -1;
};
// InvalidArgument naming the known kinds.
absl::StatusOr<LossSpec> ParseLoss(const std::string& text);

struct TrainingSpec {
  LossSpec loss = {};
  OptimizerSpec optimizer = {};
  // Also report the first-order gradients of the whole batch, as outputs "gradient/NAME".
  bool report_gradients = false;
};

// The loss of one micro-batch as sum / weight (law 14: means belong to the whole).
// The returned graph has data inputs (the model's and, unless the graph computes the loss,
// "labels"), step inputs kLearningRateInput and, for Adam, kStepInput, one output kLossOutput (the
// mean over the whole global batch) and an update for every trainable variable. InvalidArgument
// when nothing trains, when the loss's output does not exist or fit, when a weight or an input of
// the model has the name of a step's own; Unimplemented when a gradient is missing (with the path).
absl::StatusOr<Graph> BuildTrainingGraph(const Graph& model, const TrainingSpec& spec);

// Forward only. `metrics`: "accuracy", "loss". Outputs are named after the metrics (means over the
// step's samples), and NAME/weight.
absl::StatusOr<Graph> BuildEvaluationGraph(const Graph& model, const LossSpec& loss,
                                           const std::vector<std::string>& metrics);

}  // namespace weft

#endif  // WEFT_TRAINING_TRAINING_GRAPH_H_
