// The operator ai.weft::Fused: several nodes that one kernel computes. The lowering makes such
// nodes for devices that want them; no file and no partition has them, so the registry has no such
// op.
//
// Inputs   those of the body, in order, and omitted ones between them. Input i of the first
//          kFusedInPlace is one that output i may be written over, or omitted.
// Outputs  those of the body, in order.
// Body     an attribute: the nodes, with the types that they have in the graph. Constants of one
//          element that kernels write into their text, and axes of reductions, lie in it.
#ifndef WEFT_OPS_FUSION_FUSED_NODE_H_
#define WEFT_OPS_FUSION_FUSED_NODE_H_

#include <string>

#include "graph/graph.h"
#include "graph/op_schema.h"

namespace weft {

inline constexpr char kFusedOp[] = "Fused";
inline constexpr char kFusedBody[] = "body";
// Outputs that may be written over an input.
inline constexpr int kFusedInPlace = 8;

// Lives for ever. Its shape function takes the types of the body and refuses other inputs; its
// expansion is the body.
const OpSchema& FusedSchema();

// The body. REQUIRES: a node of FusedSchema().
const Graph& FusedBodyOf(const Node& node);

// The parts for messages: "'a' (Mul), 'b' (Relu)"; of more than eight the first and a count.
std::string FusedParts(const Graph& body);

}  // namespace weft

#endif  // WEFT_OPS_FUSION_FUSED_NODE_H_
