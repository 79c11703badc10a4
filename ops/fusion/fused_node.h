// The operator ai.weft::Fused: several nodes that one kernel computes. The lowering makes such
// nodes for devices that want them; no file and no partition has them, so the registry has no such
// op.
//
// Inputs   those of the body, in order, and omitted ones between them. Input i of the first
//          kFusedInPlace is one that output i may be written over, or omitted.
// Outputs  those of the body, in order.
// Body     an attribute: the nodes, with the types that they have in the graph. Constants of one
//          element that kernels write into their text, and axes of reductions, lie in it.
//
// The operator ai.weft::JoinedProduct: a matrix product and what its library computes beside it.
// Inputs, outputs and body as of Fused, but no output is written over an input.
#ifndef WEFT_OPS_FUSION_FUSED_NODE_H_
#define WEFT_OPS_FUSION_FUSED_NODE_H_

#include <string>

#include "graph/graph.h"
#include "graph/op_schema.h"

namespace weft {

inline constexpr char kFusedOp[] = "Fused";
inline constexpr char kJoinedProductOp[] = "JoinedProduct";
inline constexpr char kFusedBody[] = "body";
// Outputs that may be written over an input.
inline constexpr int kFusedInPlace = 8;

// They live for ever. Their shape functions take the types of the body and refuse other inputs;
// their expansions are the body.
const OpSchema& FusedSchema();

const OpSchema& JoinedProductSchema();

// The body. REQUIRES: a node of one of these schemas.
const Graph& FusedBodyOf(const Node& node);

// The parts for messages: "'a' (Mul), 'b' (Relu)"; of more than eight the first and a count.
std::string FusedParts(const Graph& body);

}  // namespace weft

#endif  // WEFT_OPS_FUSION_FUSED_NODE_H_
