// From an imported forward graph to the logical graph of a training or an evaluation step.
#ifndef WEFT_TRAINING_GRAPH_TRAINING_GRAPH_H_
#define WEFT_TRAINING_GRAPH_TRAINING_GRAPH_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "graph/graph.h"
#include "graph/passes/pass.h"
#include "ops/defs/optimizer/rate_schedule.h"
#include "training/graph/loss_scale.h"
#include "training/graph/optimizer.h"
#include "training/graph/parameter_groups.h"
#include "training/graph/precision.h"
#include "training/graph/training_spec.h"

namespace weft {

// The loss of one micro-batch as sum / weight (law 14 of docs/architecture.md).
// The returned graph has data inputs (the model's and, unless the graph computes the loss,
// "labels"), step inputs kLearningRateInput and, where an update or the schedule reads it,
// kStepInput, one output kLossOutput (the mean over the whole global batch) and an update for every
// trainable variable. InvalidArgument
// when nothing trains, when the loss's output does not exist or fit, when a weight or an input of
// the model has the name of a step's own; Unimplemented when a gradient is missing (with the path).
// `observe` sees the graph after each of TrainingGraphPasses.
absl::StatusOr<Graph> BuildTrainingGraph(const Graph& model, const TrainingSpec& spec,
                                         const GraphObserver& observe = nullptr);

// What makes a training graph, in order. Those up to and including LastExpansionPass change the
// model's own nodes; "rewrite_patterns" is only seen where it found one (ops/rewrites/rewrites.h).
// A step of the model's own has fewer (training/graph/training_passes.h).
std::vector<std::string> TrainingGraphPasses();
std::string_view LastExpansionPass();

// Forward only. Outputs are what training/graph/metric.h says; data inputs as above. `batch`:
// samples of the largest batch, for metrics that look at all samples together. A metric that is
// named again is added once.
absl::StatusOr<Graph> BuildEvaluationGraph(const Graph& model, const LossSpec& loss,
                                           const std::vector<std::string>& metrics,
                                           int64_t batch = 0);

}  // namespace weft

#endif  // WEFT_TRAINING_GRAPH_TRAINING_GRAPH_H_
