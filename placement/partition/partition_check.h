// Do the partitions of all ranks fit each other?
#ifndef WEFT_PLACEMENT_PARTITION_PARTITION_CHECK_H_
#define WEFT_PLACEMENT_PARTITION_PARTITION_CHECK_H_

#include <vector>

#include "absl/status/status.h"
#include "graph/partition.h"
#include "graph/schedule/channel_credits.h"

namespace weft {

// Internal, naming rank and graph, unless every graph is valid and concrete; every channel has one
// rank that sends and one that receives the same type; every input of a graph is fed; every
// accumulation has its output and inputs; and the action lists of each replica's stages come to an
// end over transports with such inboxes.
absl::Status CheckPartitions(const std::vector<Partition>& partitions,
                             const InboxLimits& inbox = kInbox);

// The last of these alone, of the partitions of all ranks: InvalidArgument where a replica's
// stages wait for each other for ever.
absl::Status CheckPipelines(const std::vector<Partition>& partitions,
                            const InboxLimits& inbox = kInbox);

}  // namespace weft

#endif  // WEFT_PLACEMENT_PARTITION_PARTITION_CHECK_H_
