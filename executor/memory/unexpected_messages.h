// The most memory that unexpected messages of a rank take: those that arrive before its step asks
// for them.
#ifndef WEFT_EXECUTOR_MEMORY_UNEXPECTED_MESSAGES_H_
#define WEFT_EXECUTOR_MEMORY_UNEXPECTED_MESSAGES_H_

#include <cstdint>
#include <map>
#include <vector>

#include "executor/interfaces/communicator.h"
#include "graph/partition.h"

namespace weft {

// Bytes on the partition's channels, by the rank that sends them: those of one step, since the next
// step's messages wait for its end.
std::map<RankId, int64_t> UnexpectedChannelBytes(const Partition& partition);

// A bound of the bytes that `peer` sends in these collectives of one rank before their receives are
// posted. Those that the two share have one group, of n members. Each thread runs its own in
// order; for each the bound is the sum of
//  * as many of the longest messages as the peer sends in a row to a rank that sends nothing
//    between: from any of its collectives, since a peer that is ahead may be in the next one;
//  * n - 2 more of them, since each member on the way from this rank to the peer may be ahead of
//    the one before it;
//  * the longest one whose receive may be posted after the send before it: where there is none, or
//    where the target may still be on its way out (TransportCommunicator).
// A collective in which no receive follows a send, such as a broadcast, makes no peer wait for this
// rank: all of its bytes may be unexpected.
int64_t UnexpectedCollectiveBytes(const std::vector<const CollectiveSpec*>& collectives,
                                  RankId peer);

}  // namespace weft

#endif  // WEFT_EXECUTOR_MEMORY_UNEXPECTED_MESSAGES_H_
