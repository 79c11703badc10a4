#include "distributed/nccl/nccl_memory.h"

#include <algorithm>

#include "distributed/nccl/nccl_collectives.h"

namespace weft {

std::vector<int64_t> NcclBytes(size_t ranks, const std::vector<std::vector<RankId>>& groups,
                               const std::vector<CardPair>& pairs) {
  std::vector<int64_t> bytes(ranks);
  for (const std::vector<RankId>& group : groups) {
    const int64_t neighbours =
        std::min<int64_t>(kCollectiveNeighbours, static_cast<int64_t>(group.size()) - 1);
    for (const RankId member : group) {
      bytes[static_cast<size_t>(member.value)] +=
          kCollectiveChannels * neighbours * (kReceivingChannelBytes + kSendingChannelBytes);
    }
  }
  for (const auto& [from, to] : pairs) {
    bytes[static_cast<size_t>(from.value)] += kSendCtas * kSendingChannelBytes;
    bytes[static_cast<size_t>(to.value)] += kSendCtas * kReceivingChannelBytes;
  }
  return bytes;
}

}  // namespace weft
