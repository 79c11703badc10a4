#include "placement/partition/traffic_prediction.h"

#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "graph/node_class.h"
#include "graph/schedule/node_collective.h"
#include "placement/graph_views/graph_node_view.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

class TrafficCount {
 public:
  explicit TrafficCount(const Partition& partition) : partition_(partition) {
    for (const Channel& channel : partition.channels) channels_[channel.id.value] = &channel;
  }

  // What `runs` runs of the graph send.
  absl::Status Add(const Graph& graph, int64_t runs) {
    for (const NodeId id : graph.node_ids()) {
      const Node& node = graph.node(id);
      const CommunicationKind kind = KindOf(node);
      if (kind == CommunicationKind::kNone || kind == CommunicationKind::kReceive) continue;
      if (kind == CommunicationKind::kSend) {
        WEFT_RETURN_IF_ERROR(AddChannel(graph, node, runs));
        continue;
      }
      WEFT_ASSIGN_OR_RETURN(const NodeCollective collective,
                            CollectiveOfNode(graph, node, partition_.rank));
      Count(node.name, RankId(), graph.value(node.inputs[0]).type.ToString(),
            runs * collective.sent_bytes());
    }
    return absl::OkStatus();
  }

  std::vector<StreamPrediction> Finish() const {
    std::vector<StreamPrediction> streams;
    for (const auto& [key, stream] : streams_) streams.push_back(stream);
    return streams;
  }

 private:
  absl::Status AddChannel(const Graph& graph, const Node& node, int64_t runs) {
    const auto channel = channels_.find(node.attributes.Int("channel", -1));
    if (channel == channels_.end()) {
      return absl::InternalError(absl::StrCat("node '", node.name, "' of rank ",
                                              partition_.rank.value,
                                              " sends on a channel that is not the rank's"));
    }
    Count(channel->second->value, channel->second->to, graph.value(node.inputs[0]).type.ToString(),
          runs * BytesOf(graph, node.inputs[0]));
    return absl::OkStatus();
  }

  void Count(const std::string& name, RankId to, const std::string& type, int64_t bytes) {
    StreamPrediction& stream = streams_[{name, to}];
    if (stream.type.empty()) stream.type = type;
    stream.name = name;
    stream.to = to;
    stream.bytes += bytes;
  }

  const Partition& partition_;
  std::map<int64_t, const Channel*> channels_;
  std::map<std::pair<std::string, RankId>, StreamPrediction> streams_;
};

}  // namespace

absl::StatusOr<std::vector<StreamPrediction>> PredictTraffic(const Partition& partition) {
  std::map<int, int64_t> runs;  // of each micro graph
  for (const MicroBatch& micro_batch : partition.micro_batches) ++runs[micro_batch.graph];
  TrafficCount count(partition);
  WEFT_RETURN_IF_ERROR(count.Add(partition.begin, 1));
  for (const auto& [graph, times] : runs) {
    WEFT_RETURN_IF_ERROR(count.Add(partition.micro[graph], times));
  }
  WEFT_RETURN_IF_ERROR(count.Add(partition.end, 1));
  return count.Finish();
}

}  // namespace weft
