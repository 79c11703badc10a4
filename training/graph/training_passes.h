// Names of what makes a training graph, as observers of BuildTrainingGraph hear them.
#ifndef WEFT_TRAINING_GRAPH_TRAINING_PASSES_H_
#define WEFT_TRAINING_GRAPH_TRAINING_PASSES_H_

namespace weft {

// In order. A step of the model's own (--optimizer model) has only the passes "expand_functions",
// "add_gradients" and "add_updates".
inline constexpr char kRewritePass[] = "rewrite_patterns";
inline constexpr char kExpandPass[] = "expand_functions";
inline constexpr char kTrainingModePass[] = "enter_training";
inline constexpr char kLossPass[] = "add_loss";
inline constexpr char kPrecisionPass[] = "lower_precision";
inline constexpr char kGradientsPass[] = "add_gradients";
inline constexpr char kUpdatesPass[] = "add_updates";

}  // namespace weft

#endif  // WEFT_TRAINING_GRAPH_TRAINING_PASSES_H_
