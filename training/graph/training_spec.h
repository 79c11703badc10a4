// The options of a training step: loss, optimizer, clipping, precision.
#ifndef WEFT_TRAINING_GRAPH_TRAINING_SPEC_H_
#define WEFT_TRAINING_GRAPH_TRAINING_SPEC_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ops/defs/optimizer/rate_schedule.h"
#include "training/graph/loss_scale.h"
#include "training/graph/optimizer.h"
#include "training/graph/parameter_groups.h"
#include "training/graph/precision.h"

namespace weft {

// Names of step inputs and outputs that the loop and the graph agree on, besides those of
// graph/step_inputs.h.
inline constexpr char kLearningRateInput[] = "weft.learning_rate";  // float32 []
inline constexpr char kLabelsInput[] = "labels";
inline constexpr char kLossOutput[] = "loss";
// An evaluation step also reports what each metric's mean was divided by: "accuracy/weight".
inline constexpr char kWeightSuffix[] = "/weight";

// Which loss is minimized, with its options.
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
  // The kind is "output:NAME" because nobody gave one and the output's name says that it is the
  // loss (LossOutputByName of loss.h).
  bool by_name = false;

  // The graph computes it; labels, if it has any, are ordinary inputs.
  bool is_output() const;
};
std::vector<std::string> LossKinds();
// InvalidArgument naming the known kinds.
absl::StatusOr<LossSpec> ParseLoss(const std::string& text);

// All options of a training graph. A value.
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
  // What the forward and the backward pass compute products in (training/graph/precision.h). With
  // kFloat16 the loss is scaled, and steps whose gradients overflow change no variable.
  Precision precision = Precision::kFloat32;
  LossScaleSpec loss_scale = {};
  // With a precision below float32: plain and causal attention is one operator of that precision,
  // for devices where cuDNN computes it and its gradient without a matrix of scores. Elsewhere the
  // gradient computes the scores once more.
  bool joins_attention = false;
  // The model was imported with its training info (ImportTrainingStep), which says what a step
  // does: of all this, only the loss's "output:NAME" counts. On one worker, in whole batches.
  bool model_training_info = false;
  // The trainable variables that the step changes, by name; empty: all. Gradients flow through the
  // others, and what of the model trains (training_mode.h) does not depend on it.
  std::vector<std::string> updates = {};
  // Also measure the noise of the gradient between micro-batches, and report what
  // training/scaling/noise_nodes.h names. Changes no bit of the training.
  bool measure_noise = false;
  // Also report the gradients of the whole batch, before clipping, as outputs "gradient/NAME".
  bool report_gradients = false;
};
// InvalidArgument naming what is out of range.
absl::Status ValidateTraining(const TrainingSpec& spec);

}  // namespace weft

#endif  // WEFT_TRAINING_GRAPH_TRAINING_SPEC_H_
