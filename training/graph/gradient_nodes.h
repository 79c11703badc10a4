// ONNX's Gradient nodes (ai.onnx.preview.training), which name the tensors to differentiate.
#ifndef WEFT_TRAINING_GRAPH_GRADIENT_NODES_H_
#define WEFT_TRAINING_GRAPH_GRADIENT_NODES_H_

#include "absl/status/status.h"
#include "graph/graph.h"

namespace weft {

// Puts nodes that compute it in the place of every Gradient node, producers first, so that one may
// differentiate the result of another. Where a node is given other values than the tensors it
// names, the part of the graph between these and its `y` is computed once more on those values.
// InvalidArgument naming the node when it names a tensor that the graph does not have; else the
// errors of AddGradients. Does nothing to a graph without such nodes.
absl::Status ReplaceGradientNodes(Graph& graph);

}  // namespace weft

#endif  // WEFT_TRAINING_GRAPH_GRADIENT_NODES_H_
