// From an imported forward graph to the logical graph of a training or an evaluation step.
#ifndef WEFT_TRAINING_TRAINING_GRAPH_H_
#define WEFT_TRAINING_TRAINING_GRAPH_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "graph/graph.h"
#include "ops/rate_schedule.h"
#include "training/loss_scale.h"
#include "training/optimizer.h"
#include "training/parameter_groups.h"
#include "training/precision.h"

namespace weft {

// Names of step inputs and outputs that the loop and the graph agree on.
inline constexpr char kLearningRateInput[] = "weft.learning_rate";  // float32 []
inline constexpr char kStepInput[] = "weft.step";  // int64 [], 1 for the first step
inline constexpr char kLabelsInput[] = "labels";
inline constexpr char kLossOutput[] = "loss";
// An evaluation step also reports what each metric's mean was divided by: "accuracy/weight".
inline constexpr char kWeightSuffix[] = "/weight";

struct LossSpec {
  // One of LossKinds(), or "output:NAME" (the graph computes it).
  std::string kind = "softmax_cross_entropy";
  // The output the loss looks at; empty = the graph's first. Unused for output:NAME.
  std::string output = "";
  // Axis of the classes for softmax_cross_entropy; negative counts from the end.
  int64_t class_axis = -1;

  // Of softmax_cross_entropy and sequence_cross_entropy, as torch.nn.CrossEntropyLoss has them.
  std::optional<int64_t> ignore_index = {};  // samples with this label do not count
  double label_smoothing = 0;                // share of the target that all classes get alike
  std::vector<double> class_weights = {};    // one for each class; empty = all 1
  // Labels are a number for each class (one-hot or probabilities), not the number of a class.
  bool soft_labels = false;
  // Of huber: where the square becomes a straight line.
  double huber_delta = 1;
};
std::vector<std::string> LossKinds();
// InvalidArgument naming the known kinds.
absl::StatusOr<LossSpec> ParseLoss(const std::string& text);

struct TrainingSpec {
  LossSpec loss = {};
  OptimizerSpec optimizer = {};
  // Names of BatchNormalization and Dropout nodes (glob patterns) that train though the model says
  // that they do not (training_mode.h).
  std::vector<std::string> train_mode = {};
  ParameterGroups groups = {};
  RateSchedule schedule = {};
  // The longest that all gradients together may be (Euclidean norm of the whole batch's mean
  // gradients), and the largest magnitude of an element; 0 = any.
  double clip_norm = 0;
  double clip_value = 0;
  // Of the moving average of the weights, in (0, 1); 0 = there is none.
  double average_decay = 0;
  // What the forward and the backward pass compute products in (training/precision.h). With
  // kFloat16 the loss is scaled, and steps whose gradients overflow change no variable.
  Precision precision = Precision::kFloat32;
  LossScaleSpec loss_scale = {};
  // The model was imported with its own algorithm (ImportTrainingStep), which says what a step
  // does: of all this, only the loss's "output:NAME" counts. On one worker, in whole batches.
  bool own_algorithm = false;
  // Also report the gradients of the whole batch, before clipping, as outputs "gradient/NAME".
  bool report_gradients = false;
};
// InvalidArgument naming what is out of range.
absl::Status ValidateTraining(const TrainingSpec& spec);

// The loss of one micro-batch as sum / weight (law 14: means belong to the whole).
// The returned graph has data inputs (the model's and, unless the graph computes the loss,
// "labels"), step inputs kLearningRateInput and, where an update or the schedule reads it,
// kStepInput, one output kLossOutput (the mean over the whole global batch) and an update for every
// trainable variable. InvalidArgument
// when nothing trains, when the loss's output does not exist or fit, when a weight or an input of
// the model has the name of a step's own; Unimplemented when a gradient is missing (with the path).
absl::StatusOr<Graph> BuildTrainingGraph(const Graph& model, const TrainingSpec& spec);

// Forward only. Outputs are what training/metric.h says; data inputs as above. `batch`: samples of
// the largest batch, for metrics that look at all samples together.
absl::StatusOr<Graph> BuildEvaluationGraph(const Graph& model, const LossSpec& loss,
                                           const std::vector<std::string>& metrics,
                                           int64_t batch = 0);

}  // namespace weft

#endif  // WEFT_TRAINING_TRAINING_GRAPH_H_
