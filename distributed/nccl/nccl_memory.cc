#include "distributed/nccl/nccl_memory.h"

#include <algorithm>

namespace weft {
namespace {

int64_t BytesOfGroup(size_t members) {
  const int64_t neighbours =
      std::min<int64_t>(kCollectiveNeighbours, static_cast<int64_t>(members) - 1);
  return kCollectiveChannels * neighbours * (kReceivingChannelBytes + kSendingChannelBytes);
}

int64_t BytesOfSends(bool is_sender) {
  return kSendCtas * (is_sender ? kSendingChannelBytes : kReceivingChannelBytes);
}

}  // namespace

std::vector<int64_t> NcclBytes(size_t ranks, const std::vector<std::vector<RankId>>& groups,
                               const std::vector<CardPair>& pairs) {
  std::vector<int64_t> bytes(ranks);
  for (const std::vector<RankId>& group : groups) {
    for (const RankId member : group) {
      bytes[static_cast<size_t>(member.value)] += BytesOfGroup(group.size());
    }
  }
  for (const auto& [from, to] : pairs) {
    bytes[static_cast<size_t>(from.value)] += BytesOfSends(true);
    bytes[static_cast<size_t>(to.value)] += BytesOfSends(false);
  }
  return bytes;
}

int64_t NcclBytesOf(RankId rank, const std::vector<CardGroup>& joined) {
  int64_t bytes = 0;
  for (const CardGroup& group : joined) {
    if (std::find(group.members.begin(), group.members.end(), rank) == group.members.end())
      continue;
    bytes += group.sends ? BytesOfSends(group.members.front() == rank)
                         : BytesOfGroup(group.members.size());
  }
  return bytes;
}

}  // namespace weft
