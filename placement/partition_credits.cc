#include "placement/partition_credits.h"

#include <utility>

namespace weft {

std::map<int32_t, int> CreditsOfChannels(const std::vector<Partition>& partitions,
                                         const InboxLimits& inbox) {
  struct Round {
    uint64_t bytes = 0;
    size_t channels = 0;
  };
  std::map<std::pair<RankId, RankId>, Round> rounds;  // by from, to
  const auto for_each = [&](auto fn) {
    for (const Partition& partition : partitions) {
      for (const Channel& channel : partition.channels) {
        if (channel.per_micro_batch && channel.from == partition.rank) fn(channel);
      }
    }
  };
  for_each([&](const Channel& channel) {
    Round& round = rounds[{channel.from, channel.to}];
    round.bytes += static_cast<uint64_t>(DTypeBytes(channel.dtype, channel.shape.num_elements()));
    ++round.channels;
  });
  std::map<int32_t, int> credits;
  for_each([&](const Channel& channel) {
    const Round& round = rounds.at({channel.from, channel.to});
    credits[channel.id.value] = ChannelCredits(inbox, round.bytes, round.channels);
  });
  return credits;
}

}  // namespace weft
