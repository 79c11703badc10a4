#include "graph/node_class.h"

#include <string_view>
#include <utility>

namespace weft {

// The one place where the ops of the domain ai.weft that communicate are told apart by name.
CommunicationKind KindOf(const Node& node) {
  constexpr std::pair<std::string_view, CommunicationKind> kKinds[] = {
      {"Send", CommunicationKind::kSend},
      {"Recv", CommunicationKind::kReceive},
      {"AllReduce", CommunicationKind::kAllReduce},
      {"AllGather", CommunicationKind::kAllGather},
      {"ReduceScatter", CommunicationKind::kReduceScatter},
      {"AllToAll", CommunicationKind::kAllToAll},
      {"Broadcast", CommunicationKind::kBroadcast},
      {"SumOverReplicas", CommunicationKind::kReplicaSum},
  };
  if (node.domain == kWeftDomain) {
    for (const auto& [op, kind] : kKinds) {
      if (node.op == op) return kind;
    }
  }
  return IsCommunication(node) ? CommunicationKind::kOther : CommunicationKind::kNone;
}

}  // namespace weft
