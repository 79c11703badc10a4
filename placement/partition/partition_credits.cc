#include "placement/partition/partition_credits.h"

#include <tuple>

#include "graph/graph.h"
#include "graph/node_class.h"

namespace weft {
namespace {

// Calls fn(channel, index of its micro graph) for every channel that a micro graph sends on.
template <typename Fn>
void ForEachSend(const std::vector<Partition>& partitions, Fn fn) {
  for (const Partition& partition : partitions) {
    std::map<int64_t, const Channel*> channels;
    for (const Channel& channel : partition.channels) channels[channel.id.value] = &channel;
    for (size_t i = 0; i < partition.micro.size(); ++i) {
      const Graph& graph = partition.micro[i];
      for (const NodeId id : graph.node_ids()) {
        if (KindOf(graph.node(id)) != CommunicationKind::kSend) continue;
        const auto channel = channels.find(graph.node(id).attributes.Int("channel", -1));
        if (channel != channels.end()) fn(*channel->second, i);
      }
    }
  }
}

}  // namespace

std::map<int32_t, int> CreditsOfChannels(const std::vector<Partition>& partitions,
                                         const InboxLimits& inbox) {
  struct Round {
    uint64_t bytes = 0;
    size_t channels = 0;
  };
  std::map<std::tuple<RankId, RankId, size_t>, Round> rounds;  // by from, to, micro graph
  ForEachSend(partitions, [&](const Channel& channel, size_t graph) {
    Round& round = rounds[{channel.from, channel.to, graph}];
    round.bytes += static_cast<uint64_t>(DTypeBytes(channel.dtype, channel.shape.num_elements()));
    ++round.channels;
  });
  std::map<int32_t, int> credits;
  ForEachSend(partitions, [&](const Channel& channel, size_t graph) {
    const Round& round = rounds.at({channel.from, channel.to, graph});
    credits[channel.id.value] = ChannelCredits(inbox, round.bytes, round.channels);
  });
  return credits;
}

}  // namespace weft
