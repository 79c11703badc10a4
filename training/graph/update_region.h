// The part of a training step that runs once: from accumulated gradients to new weights.
#ifndef WEFT_TRAINING_GRAPH_UPDATE_REGION_H_
#define WEFT_TRAINING_GRAPH_UPDATE_REGION_H_

#include <map>

#include "absl/status/status.h"
#include "graph/graph.h"
#include "training/graph/training_spec.h"

namespace weft {

// Adds, for every variable of `gradients` (value -> gradient of the sum of the losses of one
// micro-batch): its sum over the micro-batches, divided by `weight` (the accumulated weight of the
// loss), clipped, and the update that the spec says, with its learning rate. In a graph with a loss
// scale (training/graph/loss_scale.h) the gradients are divided by it too, and steps whose
// gradients overflow change no variable. Where the spec asks for it, the step measures the noise of
// its gradient (training/scaling/noise_nodes.h). Adds the step inputs kLearningRateInput and, where
// an update or the schedule reads it, kStepInput.
absl::Status AddUpdates(Graph& graph, const TrainingSpec& spec, ValueId weight,
                        const std::map<ValueId, ValueId>& gradients);

}  // namespace weft

#endif  // WEFT_TRAINING_GRAPH_UPDATE_REGION_H_
