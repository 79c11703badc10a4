// What BatchNormalization and Dropout do in training and in evaluation.
#ifndef WEFT_TRAINING_GRAPH_TRAINING_MODE_H_
#define WEFT_TRAINING_GRAPH_TRAINING_MODE_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "graph/graph.h"

namespace weft {

// For a training step. Nodes train that the model says so of (BatchNormalization's training_mode,
// Dropout's input of that name), and those whose names match one of the glob patterns: models that
// were exported for inference. An input of the graph that only decides whether Dropout drops
// becomes true.
//
// Frozen parts stay as in evaluation, whatever the model says: BatchNormalization whose scale and
// bias are variables that do not train, and Dropout of what depends on no variable that trains.
//
// A BatchNormalization that trains updates its running statistics, where they are variables: as
// ONNX defines it, with its momentum and the variance of the population, micro-batch after
// micro-batch in the order of the batch, whoever runs them. A node's statistics that another node
// has too (a module used twice) are updated by both, in the order of the graph.
//
// InvalidArgument for a pattern that no such node has a name for.
absl::Status EnterTraining(Graph& graph, const std::vector<std::string>& patterns);

// For an evaluation step: all BatchNormalizations take their running statistics, and no Dropout
// drops.
absl::Status LeaveTraining(Graph& graph);

}  // namespace weft

#endif  // WEFT_TRAINING_GRAPH_TRAINING_MODE_H_
