// How far each sender of a partitioned step may run ahead of its receiver.
#ifndef WEFT_PLACEMENT_PARTITION_PARTITION_CREDITS_H_
#define WEFT_PLACEMENT_PARTITION_PARTITION_CREDITS_H_

#include <cstdint>
#include <map>
#include <vector>

#include "graph/partition.h"
#include "graph/schedule/channel_credits.h"

namespace weft {

// By channel id: the credits of each channel that is used once per micro-batch. The channels of one
// micro graph from one rank to another share the receiver's inbox: a round is one message of each.
std::map<int32_t, int> CreditsOfChannels(const std::vector<Partition>& partitions,
                                         const InboxLimits& inbox);

}  // namespace weft

#endif  // WEFT_PLACEMENT_PARTITION_PARTITION_CREDITS_H_
