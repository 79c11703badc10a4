// LostPeer: which other rank a rank had lost when an error ended its step. It is a payload of the
// status, so that the coordinator knows whose connection is broken where all workers answer it.
#ifndef WEFT_DISTRIBUTED_RECOVERY_LOST_PEER_H_
#define WEFT_DISTRIBUTED_RECOVERY_LOST_PEER_H_

#include "absl/status/status.h"
#include "graph/ids.h"

namespace weft {

// The same error with the rank; unchanged when it has one, or is OK.
absl::Status WithLostPeer(absl::Status status, RankId peer);
// Not valid where the error names none. From another process it is a claim: any number.
RankId LostPeerOf(const absl::Status& status);

}  // namespace weft

#endif  // WEFT_DISTRIBUTED_RECOVERY_LOST_PEER_H_
