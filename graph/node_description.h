// How errors name a node.
#ifndef WEFT_GRAPH_NODE_DESCRIPTION_H_
#define WEFT_GRAPH_NODE_DESCRIPTION_H_

#include <string>
#include <string_view>

#include "graph/graph.h"
#include "graph/op_schema.h"

namespace weft {

// "Gemm", "ai.weft::SgdUpdate".
std::string FullOpName(const Node& node);
// With the types of its operands: "Add(float64, float64) -> float64"; "_" for absent ones.
std::string TypedOpName(const NodeView& node);
// Whether an entry of Plan::host_ops is the node's TypedOpName.
bool NamesTypesOf(std::string_view host_op, const NodeView& node);
// "node 'fc1' (Gemm)".
std::string DescribeNode(const Node& node);
// "(float32[N,784], float32[10,784], _)". The node's inputs must be values of `graph`.
std::string DescribeInputs(const Graph& graph, const Node& node);
// ", did you mean Gemm?" for an op that no schema is registered for; empty when none is near.
std::string DidYouMean(const Node& node);

}  // namespace weft

#endif  // WEFT_GRAPH_NODE_DESCRIPTION_H_
