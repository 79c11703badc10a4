// What a rank may have to hold of messages that come before its step asks for them.
#ifndef WEFT_EXECUTOR_EARLY_MESSAGES_H_
#define WEFT_EXECUTOR_EARLY_MESSAGES_H_

#include <cstdint>
#include <map>
#include <vector>

#include "executor/communicator.h"
#include "graph/partition.h"

namespace weft {

// Bytes on the partition's channels, by the rank that sends them: those of one step, since the next
// step's messages wait for its end.
std::map<RankId, int64_t> EarlyChannelBytes(const Partition& partition);

// Most bytes of what `peer` sends in these collectives of one rank. Each receive is posted before
// the send that allows a peer to send the message after. So a peer is ahead by a message of each
// other member, or by as many as it may send in a row, for each of the two threads; and by all that
// it needs no answer to.
int64_t EarlyCollectiveBytes(const std::vector<const CollectiveSpec*>& collectives, RankId peer);

}  // namespace weft

#endif  // WEFT_EXECUTOR_EARLY_MESSAGES_H_
