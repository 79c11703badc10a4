// Runs one node's shape function: shared by inference, specialization, passes and verifier.
#ifndef WEFT_GRAPH_NODE_INFERENCE_H_
#define WEFT_GRAPH_NODE_INFERENCE_H_

#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "graph/graph.h"

namespace weft {

// What a shape function said about one output.
struct InferredOutput {
  ValueType type;
  std::optional<std::vector<Dim>> elements;  // see ValueDef::elements
};

// Runs the shape function. `outputs` gets one entry per output of the node; callers keep it between
// calls to spare allocations. InvalidArgument, naming the node, when the shape function refuses.
// REQUIRES: node.schema != nullptr && node.schema->infer(); the node fits its schema
// (CheckNodeAgainstSchema), and its inputs are values of the graph.
absl::Status RunShapeFunction(const Graph& graph, const Node& node,
                              std::vector<InferredOutput>& outputs);

// InferNode with a scratch buffer; true if what the graph knows has changed. A node without schema
// or shape function changes nothing.
absl::StatusOr<bool> InferInto(Graph& graph, const Node& node,
                               std::vector<InferredOutput>& scratch);

// A tensor of `type` (int32 or int64, rank 0 or 1) with these elements, when all are known sizes.
std::optional<Tensor> TensorOfElements(const ValueType& type, const std::vector<Dim>& elements);

}  // namespace weft

#endif  // WEFT_GRAPH_NODE_INFERENCE_H_
