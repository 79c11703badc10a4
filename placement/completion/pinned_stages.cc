#include "placement/completion/pinned_stages.h"

#include <algorithm>
#include <optional>

#include "absl/strings/str_cat.h"
#include "graph/node_class.h"
#include "graph/node_description.h"
#include "platform/status_macros.h"
#include "platform/text/name_pattern.h"
#include "platform/text/nearest_name.h"

namespace weft {
namespace {

absl::StatusOr<int> StageOfWorker(const std::string& pattern, const std::string& name,
                                  const ClusterSpec& cluster, const Plan& plan) {
  std::vector<std::string> names;
  for (const WorkerSpec& worker : cluster.workers) names.push_back(worker.name);
  const auto found = std::find(names.begin(), names.end(), name);
  const auto error = [&](const std::string& why) {
    return absl::InvalidArgumentError(
        absl::StrCat("the pin of '", pattern, "' to '", name, "' ", why));
  };
  if (found == names.end()) {
    return error(absl::StrCat("names no worker of the cluster", DidYouMean(name, names)));
  }
  if (plan.mesh.pipeline == 1 && names.size() > 1) {
    return error(absl::StrCat("needs a pipeline: with ", plan.mesh.ToString(),
                              " every worker runs every node; give the mesh a pipeline, for "
                              "example --parallel pp=",
                              names.size()));
  }
  if (plan.chunks > 1) {
    return error(absl::StrCat("is ambiguous: each worker runs ", plan.chunks,
                              " stages; name the stage in the plan file instead"));
  }
  const int worker = static_cast<int>(found - names.begin());
  const auto rank = std::find(plan.workers.begin(), plan.workers.end(), worker);
  if (rank == plan.workers.end()) return error("names a worker that the plan does not use");
  return plan.mesh.CoordinateOf(RankId(static_cast<int>(rank - plan.workers.begin()))).pipeline;
}

}  // namespace

absl::StatusOr<std::map<std::string, int>> PinnedStages(const Graph& graph,
                                                        const ClusterSpec& cluster,
                                                        const Plan& plan) {
  std::map<std::string, int> stage_of_pin;
  for (const auto& [pattern, worker] : plan.pins) {
    WEFT_ASSIGN_OR_RETURN(stage_of_pin[pattern], StageOfWorker(pattern, worker, cluster, plan));
  }
  std::map<std::string, int> pinned;
  std::vector<std::string> names;
  bool is_training = false;
  for (const NodeId id : graph.node_ids()) {
    const Node& node = graph.node(id);
    is_training |= node.phase == Phase::kBackward;
    if (!IsForward(node)) continue;
    names.push_back(node.name);
    const auto* entry = FindEntry(stage_of_pin, node.name);
    if (entry != nullptr) pinned[node.name] = entry->second;
  }
  for (const auto& [pattern, worker] : plan.pins) {
    const bool fits = std::any_of(
        names.begin(), names.end(),
        [&p = pattern](const std::string& name) { return name == p || MatchesPattern(p, name); });
    // An evaluation graph has fewer nodes than the training graph that a plan is written for.
    if (fits || !is_training) continue;
    return absl::InvalidArgumentError(absl::StrCat("the pin of '", pattern, "' to '", worker,
                                                   "' fits no forward node",
                                                   DidYouMean(pattern, names)));
  }
  return pinned;
}

absl::StatusOr<std::vector<StageRange>> StageRanges(const Graph& graph, int stages,
                                                    const std::map<std::string, int>& pinned) {
  WEFT_ASSIGN_OR_RETURN(const std::vector<NodeId> order, graph.TopologicalOrder());
  std::vector<StageRange> ranges(graph.node_capacity(), {0, stages - 1});
  std::vector<NodeId> latest(graph.node_capacity());  // the pinned node that `first` comes from
  const auto forward_producers = [&](const Node& node) {
    std::vector<NodeId> producers;
    for (const ValueId input : node.inputs) {
      const NodeId producer = input.valid() ? graph.value(input).producer : NodeId();
      if (producer.valid() && IsForward(graph.node(producer))) producers.push_back(producer);
    }
    return producers;
  };
  for (const NodeId id : order) {
    const Node& node = graph.node(id);
    if (!IsForward(node)) continue;
    StageRange& range = ranges[id.value];
    for (const NodeId producer : forward_producers(node)) {
      if (ranges[producer.value].first <= range.first) continue;
      range.first = ranges[producer.value].first;
      latest[id.value] = latest[producer.value];
    }
    const auto pin = pinned.find(node.name);
    if (pin == pinned.end()) continue;
    if (pin->second < range.first) {
      return absl::InvalidArgumentError(absl::StrCat(
          DescribeNode(node), " is pinned to stage ", pin->second, " but needs the result of ",
          DescribeNode(graph.node(latest[id.value])), ", pinned to stage ", range.first,
          "; stages must not decrease along the forward pass"));
    }
    range = {pin->second, pin->second};
    latest[id.value] = id;
  }
  for (auto it = order.rbegin(); it != order.rend(); ++it) {
    if (!IsForward(graph.node(*it))) continue;
    for (const NodeId producer : forward_producers(graph.node(*it))) {
      int& last = ranges[producer.value].last;
      last = std::min(last, ranges[it->value].last);
    }
  }
  return ranges;
}

}  // namespace weft
