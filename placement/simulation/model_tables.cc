#include "placement/simulation/model_tables.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "graph/node_class.h"
#include "graph/schedule/all_reduce_choice.h"
#include "placement/graph_views/graph_node_view.h"
#include "placement/partition/partition_credits.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

// Larger groups are counted by formulas instead of simulated.
constexpr size_t kMaxSimulated = 32;

int64_t ElementsOf(const Graph& graph, ValueId value) {
  return value.valid() ? ShapeOf(graph, value).num_elements() : 0;
}

// The types of what the members have together: shards differ from member to member.
std::string WholeText(const Graph& graph, const Node& node) {
  const CommunicationKind kind = KindOf(node);
  if (kind == CommunicationKind::kAllToAll) {
    return absl::StrCat(std::string(DTypeName(graph.value(node.outputs[0]).type.dtype)),
                        WholeOfAllToAll(graph, node).ToString());
  }
  const std::vector<ValueId>& values =
      kind == CommunicationKind::kReduceScatter ? node.inputs : node.outputs;
  return absl::StrJoin(values, ",", [&](std::string* out, ValueId value) {
    absl::StrAppend(out, value.valid() ? graph.value(value).type.ToString() : "-");
  });
}

}  // namespace

ModelTables::ModelTables(const std::vector<Partition>& partitions, std::span<const int> workers,
                         const CostModel& costs, const HostPaths& host, StepModel& model)
    : workers_(workers),
      costs_(costs),
      host_(host),
      model_(model),
      credits_(CreditsOfChannels(partitions, kInbox)) {
  for (const Partition& partition : partitions) {
    ranks_.try_emplace(partition.rank, static_cast<int32_t>(ranks_.size()));
  }
}

MessageWay ModelTables::WayOf(const Channel& channel) const {
  if (host_.channels.contains(channel.id.value)) return MessageWay::kHost;
  return costs_.WayBetween(WorkerOf(channel.from), WorkerOf(channel.to));
}

MessageWay ModelTables::WayOf(const Node& collective, const std::vector<int>& workers) const {
  std::vector<RankId> group;
  for (const int64_t member : collective.attributes.Ints("group")) {
    group.push_back(RankId(static_cast<int32_t>(member)));
  }
  return host_.groups.contains(group) ? MessageWay::kHost : costs_.WayOfGroup(workers);
}

int32_t ModelTables::LinkOf(int from_worker, int to_worker, MessageWay way) {
  const int from_host = costs_.host(from_worker);
  const int to_host = costs_.host(to_worker);
  const bool crosses = from_host != to_host;
  const auto key = crosses ? std::make_tuple(way, true, from_host, to_host)
                           : std::make_tuple(way, false, from_worker, to_worker);
  const auto [entry, is_new] = links_.try_emplace(key, static_cast<int32_t>(model_.links.size()));
  if (!is_new) return entry->second;
  const LinkCost cost = costs_.Link(from_worker, to_worker, way);
  StepLink link;
  link.name = crosses ? absl::StrCat("host ", from_host, " -> host ", to_host)
                      : absl::StrCat("worker ", from_worker, " -> worker ", to_worker);
  if (costs_.WayBetween(from_worker, to_worker) != way) link.name += " through hosts";
  link.latency_seconds = cost.latency_seconds;
  link.bytes_per_second = cost.bytes_per_second;
  link.from_host = from_host;
  link.to_host = to_host;
  if (crosses) link.lanes = costs_.profile().link(from_worker, to_worker).rails;
  model_.links.push_back(std::move(link));
  return entry->second;
}

absl::StatusOr<int32_t> ModelTables::ChannelOf(const Channel& channel, int64_t bytes) {
  const auto [entry, is_new] = channels_.try_emplace({channel.id.value, bytes},
                                                     static_cast<int32_t>(model_.channels.size()));
  if (!is_new) return entry->second;
  if (!ranks_.contains(channel.from) || !ranks_.contains(channel.to)) {
    return absl::InternalError(absl::StrCat("channel ", channel.id.value, " of '", channel.value,
                                            "' leads to a rank that is not simulated"));
  }
  const int from = WorkerOf(channel.from);
  const int to = WorkerOf(channel.to);
  const MessageWay way = WayOf(channel);
  const LinkCost cost = costs_.Link(from, to, way);
  StepChannel made;
  made.name = model_.AddName(channel.value);
  made.number = channel.id.value;
  made.from = ranks_.at(channel.from);
  made.to = ranks_.at(channel.to);
  made.link = LinkOf(from, to, way);
  made.bytes = bytes;
  const auto credits = credits_.find(channel.id.value);
  made.credits = credits == credits_.end() ? 1 : credits->second;
  made.send_seconds = cost.send_seconds;
  made.receive_seconds = cost.receive_seconds;
  made.contention = cost.contention;
  model_.channels.push_back(made);
  return entry->second;
}

std::string ModelTables::Signature(const Graph& graph, const Node& node,
                                   const std::vector<int>& workers, MessageWay way) const {
  // Hosts are alike where the profile knows no single links.
  const bool alike = costs_.profile().links.empty();
  std::map<int, int> seen;
  std::string places;
  for (const int worker : workers) {
    const int host = costs_.host(worker);
    const int place =
        alike ? seen.try_emplace(host, static_cast<int>(seen.size())).first->second : host;
    absl::StrAppend(&places, costs_.profile().device_of[worker], "@", place, ",");
  }
  const std::vector<int64_t> group = node.attributes.Ints("group");
  const auto root = std::find(group.begin(), group.end(), node.attributes.Int("root", group[0]));
  return absl::StrCat(node.op, "|", node.attributes.String("algorithm", ""), "|",
                      node.attributes.Int("total_blocks", 0), "|",
                      absl::StrJoin(node.attributes.Ints("member_begins"), ","), "|",
                      absl::StrJoin(node.attributes.Ints("sizes"), ","), "|",
                      absl::StrJoin(node.attributes.Ints("split_sizes"), ","), "|",
                      root - group.begin(), "|", WholeText(graph, node), "|", places, "|",
                      static_cast<int>(way));
}

double ModelTables::SecondsOf(const Graph& graph, const Node& node,
                              const std::vector<NodeCollective>& members,
                              const std::vector<int>& workers, MessageWay way) const {
  const int64_t element_bytes = DTypeBytes(members.front().dtype, 1);
  const double bytes = static_cast<double>(element_bytes);
  if (workers.size() > kMaxSimulated) {
    const CommunicationKind kind = KindOf(node);
    if (kind == CommunicationKind::kAllReduce &&
        node.attributes.String("algorithm", "") != "ordered_tree") {
      AllReduceTask task;
      task.members = static_cast<int>(workers.size());
      for (const int worker : workers) task.hosts.push_back(costs_.host(worker));
      task.elements = members.front().schedule.buffer_elements.front();
      task.element_bytes = element_bytes;
      return costs_.AllReduceSeconds(task, workers, way);
    }
    if (kind == CommunicationKind::kAllGather) {
      return costs_.RingSeconds(
          bytes * static_cast<double>(ElementsOf(graph, node.outputs.front())), workers, way);
    }
    if (kind == CommunicationKind::kReduceScatter) {
      return costs_.RingSeconds(bytes * static_cast<double>(ElementsOf(graph, node.inputs.front())),
                                workers, way);
    }
  }
  std::vector<CollectiveSchedule> schedules;
  for (const NodeCollective& member : members) schedules.push_back(member.schedule);
  return costs_.CollectiveSeconds(schedules, element_bytes, workers, way);
}

absl::StatusOr<int32_t> ModelTables::CollectiveOf(const Graph& graph, const Node& node,
                                                  bool beside) {
  const std::vector<int64_t> group = node.attributes.Ints("group");
  std::vector<int> workers;
  for (const int64_t member : group) {
    workers.push_back(WorkerOf(RankId(static_cast<int32_t>(member))));
  }
  const MessageWay way = WayOf(node, workers);
  const std::string signature = Signature(graph, node, workers, way);
  const std::string key = absl::StrCat(beside ? "beside|" : "", absl::StrJoin(group, ","), "|",
                                       node.name, "|", signature);
  const auto [entry, is_new] =
      collectives_.try_emplace(key, static_cast<int32_t>(model_.collectives.size()));
  if (!is_new) return entry->second;
  StepCollective made;
  made.name = model_.AddName(node.name);
  std::vector<NodeCollective> members;
  std::map<int32_t, int64_t> link_bytes;
  for (size_t m = 0; m < group.size(); ++m) {
    const RankId rank(static_cast<int32_t>(group[m]));
    WEFT_ASSIGN_OR_RETURN(NodeCollective member, CollectiveOfNode(graph, node, rank));
    if (const auto index = ranks_.find(rank); index != ranks_.end()) {
      made.members.push_back(index->second);
      made.member_bytes.push_back(member.sent_bytes());
    }
    for (const CollectiveStep& step : member.schedule.steps) {
      if (step.kind != CollectiveStep::Kind::kSend) continue;
      const int peer = workers[static_cast<size_t>(step.peer)];
      if (beside) {
        made.contention = std::max(made.contention, costs_.Link(workers[m], peer, way).contention);
      }
      link_bytes[LinkOf(workers[m], peer, way)] += DTypeBytes(member.dtype, step.source.count);
    }
    members.push_back(std::move(member));
  }
  made.link_bytes.assign(link_bytes.begin(), link_bytes.end());
  const auto [seconds, is_unknown] = seconds_.try_emplace(signature, 0);
  if (is_unknown) seconds->second = SecondsOf(graph, node, members, workers, way);
  made.seconds = seconds->second;
  model_.collectives.push_back(std::move(made));
  return entry->second;
}

}  // namespace weft
