// What NCCL's communicators take of a card's memory.
#ifndef WEFT_DISTRIBUTED_NCCL_NCCL_MEMORY_H_
#define WEFT_DISTRIBUTED_NCCL_NCCL_MEMORY_H_

#include <cstdint>
#include <vector>

#include "distributed/nccl/card_pairs.h"
#include "distributed/nccl/nccl_collectives.h"
#include "graph/ids.h"

namespace weft {

// Of one channel of a connection, on the receiving and on the sending card, as NCCL's own log of
// its allocations has it (NVIDIA/nccl issue 1685: 10485760 and 2097152 bytes). The first are the
// buffers of its three protocols, 4 MiB of them NCCL_BUFFSIZE, in pages of 2 MiB.
inline constexpr int64_t kReceivingChannelBytes = int64_t{10} << 20;
inline constexpr int64_t kSendingChannelBytes = int64_t{2} << 20;
// Channels of a communicator for collectives, and the members that each connects with: the two
// neighbours in its ring, which are those in its tree within a host. Assumed: NCCL chooses by the
// links, and takes fewer without NVLink.
inline constexpr int kCollectiveChannels = 16;
inline constexpr int kCollectiveNeighbours = 2;

// By rank, in bytes: an estimate of what the communicators of these groups and pairs take on its
// card. All-to-alls, which connect all members, take more.
std::vector<int64_t> NcclBytes(size_t ranks, const std::vector<std::vector<RankId>>& groups,
                               const std::vector<CardPair>& pairs);

// The same of one rank that has joined these groups.
int64_t NcclBytesOf(RankId rank, const std::vector<CardGroup>& joined);

}  // namespace weft

#endif  // WEFT_DISTRIBUTED_NCCL_NCCL_MEMORY_H_
