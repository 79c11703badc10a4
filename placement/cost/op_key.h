// What an op costs depends on: operator, shapes, element types, attributes.
#ifndef WEFT_PLACEMENT_COST_OP_KEY_H_
#define WEFT_PLACEMENT_COST_OP_KEY_H_

#include <cstdint>
#include <string>

#include "graph/op_schema.h"
#include "placement/cost/cluster_profile.h"

namespace weft {

// Equal for two nodes that do the same work: a hash of domain, op, the shapes and element types of
// all operands, and the attributes (tensors by type and shape, bodies not at all). The same on
// every machine.
uint64_t OpKey(const NodeView& node);

// Equal for two nodes that do the same to operands of other sizes: a hash of domain, op, and the
// element types and ranks of all operands; never 0. The same on every machine.
uint64_t KindKey(const NodeView& node);

// For tables by key and threads.
inline uint64_t MixThreads(uint64_t key, int threads) {
  return key ^ (static_cast<uint64_t>(threads) * 0x9e3779b97f4a7c15u);
}

// "MatMul float32[64,784] float32[784,10]": for people; different nodes may have the same.
std::string OpText(const NodeView& node);

// Work of a node as its schema says it; one FLOP per output element where the schema says nothing.
// Nothing for a node that runs no kernel (aliases, transfers and collectives).
Cost CostOf(const NodeView& node);

// The type that a node computes in: that of its first operand of a floating type, else of its first
// output.
DType ComputedType(const NodeView& node);

// Its KindKey, ComputedType, CostOf and dimensions.
OpWork WorkOf(const NodeView& node);

// By FLOPs per element that is read or written at least once.
OpFamily FamilyOf(const Cost& cost, DType dtype);

}  // namespace weft

#endif  // WEFT_PLACEMENT_COST_OP_KEY_H_
