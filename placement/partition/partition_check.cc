#include "placement/partition/partition_check.h"

#include <map>
#include <set>

#include "absl/strings/str_cat.h"
#include "graph/node_class.h"
#include "graph/schedule/action_list.h"
#include "graph/schedule/schedule_simulator.h"
#include "graph/verifier.h"
#include "placement/partition/partition_credits.h"
#include "platform/status.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

struct NamedGraph {
  std::string name;
  const Graph* graph;
};

std::vector<NamedGraph> GraphsOf(const Partition& partition) {
  std::vector<NamedGraph> graphs = {{"begin", &partition.begin}, {"end", &partition.end}};
  for (size_t i = 0; i < partition.micro.size(); ++i) {
    graphs.push_back({absl::StrCat("micro ", i), &partition.micro[i]});
  }
  return graphs;
}

std::string Where(const Partition& partition, const std::string& graph) {
  return absl::StrCat("partition of rank ", partition.rank.value, ", graph ", graph);
}

absl::Status CheckGraphs(const Partition& partition) {
  VerifyOptions options;
  options.concrete_shapes = true;
  for (const NamedGraph& named : GraphsOf(partition)) {
    const absl::Status status = VerifyGraph(*named.graph, options);
    if (!status.ok()) return Annotate(status, Where(partition, named.name));
  }
  return absl::OkStatus();
}

// What a graph's inputs may be fed from, besides the outside.
std::set<std::string> FedNames(const Partition& partition) {
  std::set<std::string> names;
  for (const FeedInput& feed : partition.inputs) names.insert(feed.name);
  for (const ValueId output : partition.begin.outputs()) {
    names.insert(partition.begin.value(output).name);
  }
  for (const Accumulation& accumulation : partition.accumulations) {
    for (const Accumulation::Block& block : accumulation.blocks) names.insert(block.end_input);
  }
  return names;
}

absl::Status CheckNames(const Partition& partition) {
  const std::set<std::string> fed = FedNames(partition);
  std::set<std::string> variables;
  for (const VariableShard& shard : partition.variables) variables.insert(shard.name);
  for (const NamedGraph& named : GraphsOf(partition)) {
    for (const ValueId input : named.graph->inputs()) {
      const std::string& name = named.graph->value(input).name;
      if (fed.contains(name)) continue;
      return absl::InternalError(
          absl::StrCat(Where(partition, named.name), ": nothing feeds input '", name, "'"));
    }
    for (const Variable& variable : named.graph->variables()) {
      if (variables.contains(variable.name)) continue;
      return absl::InternalError(absl::StrCat(Where(partition, named.name), ": variable '",
                                              variable.name, "' is not one of the rank"));
    }
  }
  for (const Accumulation& accumulation : partition.accumulations) {
    for (const NamedGraph& named : GraphsOf(partition)) {
      const bool is_micro = named.graph != &partition.begin && named.graph != &partition.end;
      if (!is_micro || named.graph->FindValue(accumulation.micro_output).has_value()) continue;
      return absl::InternalError(absl::StrCat(Where(partition, named.name),
                                              " does not make the sum's term '",
                                              accumulation.micro_output, "'"));
    }
  }
  return absl::OkStatus();
}

// Both ends of every channel.
class ChannelCheck {
 public:
  absl::Status Add(const Partition& partition) {
    for (const Channel& channel : partition.channels) {
      End& end = ends_[channel.id.value];
      const bool sends = channel.from == partition.rank;
      if (!sends && channel.to != partition.rank) {
        return Error(channel, absl::StrCat("is listed by rank ", partition.rank.value,
                                           ", which it does not touch"));
      }
      const Channel*& side = sends ? end.sender : end.receiver;
      if (side != nullptr) return Error(channel, "has two ends of the same kind");
      side = &channel;
    }
    return absl::OkStatus();
  }

  absl::Status Finish() const {
    for (const auto& [id, end] : ends_) {
      if (end.sender == nullptr) return Error(*end.receiver, "is received but never sent");
      if (end.receiver == nullptr) return Error(*end.sender, "is sent but never received");
      const Channel& a = *end.sender;
      const Channel& b = *end.receiver;
      const bool same = a.from == b.from && a.to == b.to && a.value == b.value &&
                        a.dtype == b.dtype && a.shape == b.shape &&
                        a.per_micro_batch == b.per_micro_batch;
      if (!same) return Error(a, "is not the same at both ends");
    }
    return absl::OkStatus();
  }

 private:
  struct End {
    const Channel* sender = nullptr;
    const Channel* receiver = nullptr;
  };
  static absl::Status Error(const Channel& channel, const std::string& message) {
    return absl::InternalError(absl::StrCat("channel ", channel.id.value, " of '", channel.value,
                                            "' from rank ", channel.from.value, " to ",
                                            channel.to.value, " ", message));
  }
  std::map<int, End> ends_;
};

// The channels of one pipeline per micro-batch, from the micro graphs of its ranks.
class PipelineChannels {
 public:
  void Add(const Partition& partition) {
    if (partition.micro_batches.empty()) return;
    const Graph& graph = partition.micro[partition.micro_batches.front().graph];
    std::map<int64_t, const Channel*> channels;
    for (const Channel& channel : partition.channels) channels[channel.id.value] = &channel;
    for (const NodeId id : graph.node_ids()) {
      const Node& node = graph.node(id);
      const CommunicationKind kind = KindOf(node);
      if (!IsPointToPoint(kind)) continue;
      const bool sends = kind == CommunicationKind::kSend;
      const int64_t number = node.attributes.Int("channel", -1);
      const auto listed = channels.find(number);
      if (listed == channels.end()) continue;
      ScheduleChannel& channel = channels_[number];
      channel.name = listed->second->value;
      (sends ? channel.from : channel.to) = node.stage.value;
      (sends ? channel.from_kind : channel.to_kind) =
          node.phase == Phase::kForward ? Action::Kind::kForward : Action::Kind::kBackward;
    }
  }

  std::vector<ScheduleChannel> Finish(const std::map<int32_t, int>& credits) const {
    std::vector<ScheduleChannel> channels;
    for (const auto& [number, channel] : channels_) {
      channels.push_back(channel);
      const auto known = credits.find(static_cast<int32_t>(number));
      if (known != credits.end()) channels.back().credits = known->second;
    }
    return channels;
  }

 private:
  std::map<int64_t, ScheduleChannel> channels_;  // by number
};

}  // namespace

// Every pipeline is simulated once, with its channels and their credits.
absl::Status CheckPipelines(const std::vector<Partition>& partitions, const InboxLimits& inbox) {
  const Mesh& mesh = partitions.front().mesh;
  const std::map<int32_t, int> credits = CreditsOfChannels(partitions, inbox);
  for (int replica = 0; replica < mesh.data; ++replica) {
    std::vector<ActionList> lists;
    PipelineChannels channels;
    ScheduleOptions options;
    for (int place = 0; place < mesh.pipeline; ++place) {
      const Partition& partition =
          partitions[mesh.RankOf({.data = replica, .tensor = 0, .pipeline = place}).value];
      lists.push_back(partition.actions);
      channels.Add(partition);
      options.micro_batches = static_cast<int>(partition.micro_batches.size());
    }
    options.channels = channels.Finish(credits);
    const absl::Status status = ValidateActions(lists, options);
    if (!status.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("the plan's pipeline of replica ", replica, ": ", status.message()));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckPartitions(const std::vector<Partition>& partitions, const InboxLimits& inbox) {
  ChannelCheck channels;
  for (const Partition& partition : partitions) {
    WEFT_RETURN_IF_ERROR(CheckGraphs(partition));
    WEFT_RETURN_IF_ERROR(CheckNames(partition));
    WEFT_RETURN_IF_ERROR(channels.Add(partition));
  }
  WEFT_RETURN_IF_ERROR(channels.Finish());
  return CheckPipelines(partitions, inbox);
}

}  // namespace weft
