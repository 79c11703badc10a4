// Runs one node's shape function without changing the graph: shared by inference and verifier.
#ifndef WEFT_GRAPH_NODE_INFERENCE_H_
#define WEFT_GRAPH_NODE_INFERENCE_H_

#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "graph/graph.h"

namespace weft {

// What a shape function said about one output.
struct InferredOutput {
  ValueType type;
  std::optional<std::vector<Dim>> elements;  // see ValueDef::elements
};

// One entry per output of the node, kept between calls to spare allocations. InvalidArgument,
// naming the node, when the node does not fit its schema or its shape function refuses. REQUIRES:
// node.schema != nullptr && node.schema->infer(); inputs are values of the graph.
absl::Status InferOutputs(const Graph& graph, const Node& node,
                          std::vector<InferredOutput>& outputs);

// The tensor of `dtype` (int32 or int64) and `shape` with these elements, when all are known sizes.
std::optional<Tensor> TensorOfElements(const ValueType& type, const std::vector<Dim>& elements);

}  // namespace weft

#endif  // WEFT_GRAPH_NODE_INFERENCE_H_
