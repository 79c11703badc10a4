// What kind of node it is, asked of its schema and its phase.
#ifndef WEFT_GRAPH_NODE_CLASS_H_
#define WEFT_GRAPH_NODE_CLASS_H_

#include <cstdint>

#include "graph/graph.h"
#include "graph/op_schema.h"

namespace weft {

// Carries values from the micro-batches into the step: Accumulate, Block.
inline bool IsBoundary(const Node& node) {
  return node.schema != nullptr && node.schema->op_class() == OpClass::kBoundary;
}

// Send, Recv, collectives.
inline bool IsCommunication(const Node& node) {
  return node.schema != nullptr && node.schema->op_class() == OpClass::kCommunication;
}

// What a communication node does with the other ranks.
enum class CommunicationKind : uint8_t {
  kNone,  // it is no communication node
  kSend,
  kReceive,
  kAllReduce,
  kAllGather,
  kReduceScatter,
  kAllToAll,
  kBroadcast,
  kReplicaSum,  // an AllReduce to be, before a rank's graph is made
  kOther,       // communication that nobody here knows
};
CommunicationKind KindOf(const Node& node);

// Send, Recv: one peer, by a channel.
inline bool IsPointToPoint(CommunicationKind kind) {
  return kind == CommunicationKind::kSend || kind == CommunicationKind::kReceive;
}

// Nodes of a micro-batch; boundaries, which belong to the step, have a phase too.
inline bool IsForward(const Node& node) {
  return node.phase == Phase::kForward && !IsBoundary(node);
}
inline bool IsBackward(const Node& node) {
  return node.phase == Phase::kBackward && !IsBoundary(node);
}

}  // namespace weft

#endif  // WEFT_GRAPH_NODE_CLASS_H_
