// A training step by the model's training info (ONNX's training_info): the model says itself how
// it trains.
#ifndef WEFT_TRAINING_GRAPH_MODEL_TRAINING_INFO_H_
#define WEFT_TRAINING_GRAPH_MODEL_TRAINING_INFO_H_

#include "absl/status/statusor.h"
#include "graph/graph.h"
#include "graph/passes/pass.h"
#include "training/graph/training_spec.h"

namespace weft {

// The training graph of a step that ImportTrainingStep made: its Gradient nodes are replaced, every
// variable with an update gets it at the end of the step, and the one output is kLossOutput: the
// value that `loss` names ("output:NAME"), else what the first Gradient node differentiates, else
// the first floating output of one element; a mean where it has several. The data inputs are the
// graphs' inputs. One micro-batch is the whole batch: the algorithm itself says what it sums.
//
// `observe` sees the graph after kExpandPass, where Gradient nodes are still what the file says,
// after kGradientsPass, where they are replaced, and after kUpdatesPass.
//
// InvalidArgument when an update does not fit its variable, naming both, and when no output can be
// the loss; the errors of ReplaceGradientNodes.
absl::StatusOr<Graph> BuildOwnTrainingStep(const Graph& model, const LossSpec& loss,
                                           const GraphObserver& observe = nullptr);

}  // namespace weft

#endif  // WEFT_TRAINING_GRAPH_MODEL_TRAINING_INFO_H_
