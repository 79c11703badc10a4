// What ranks have in common while a StepModel is made of partitions: links, channels, collectives.
// Internal to simulation/.
#ifndef WEFT_PLACEMENT_SIMULATION_MODEL_TABLES_H_
#define WEFT_PLACEMENT_SIMULATION_MODEL_TABLES_H_

#include <map>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "graph/graph.h"
#include "graph/partition.h"
#include "graph/schedule/node_collective.h"
#include "placement/cost/cost_model.h"
#include "placement/simulation/host_paths.h"
#include "placement/simulation/step_model.h"

namespace weft {

// Borrows all.
class ModelTables {
 public:
  ModelTables(const std::vector<Partition>& partitions, std::span<const int> workers,
              const CostModel& costs, const HostPaths& host, StepModel& model);

  StepModel& model() { return model_; }
  const CostModel& costs() const { return costs_; }
  int WorkerOf(RankId rank) const { return workers_[static_cast<size_t>(rank.value)]; }

  // Into StepModel::channels: messages of `bytes` bytes on a channel. Internal where one of its
  // ends is not a rank of the model.
  absl::StatusOr<int32_t> ChannelOf(const Channel& channel, int64_t bytes);
  // Into StepModel::collectives: what a node of a rank's graph stands for; the same for the node of
  // that name of every member.
  absl::StatusOr<int32_t> CollectiveOf(const Graph& graph, const Node& node, bool beside);

 private:
  int32_t LinkOf(int from_worker, int to_worker, MessageWay way);
  MessageWay WayOf(const Channel& channel) const;
  MessageWay WayOf(const Node& collective, const std::vector<int>& workers) const;
  // What decides how long a collective takes, and nothing else.
  std::string Signature(const Graph& graph, const Node& node, const std::vector<int>& workers,
                        MessageWay way) const;
  double SecondsOf(const Graph& graph, const Node& node, const std::vector<NodeCollective>& members,
                   const std::vector<int>& workers, MessageWay way) const;

  const std::span<const int> workers_;
  const CostModel& costs_;
  const HostPaths& host_;
  StepModel& model_;
  std::map<RankId, int32_t> ranks_;  // of the model
  std::map<int32_t, int> credits_;   // by channel id
  std::map<std::tuple<MessageWay, bool, int, int>, int32_t> links_;
  std::map<std::pair<int32_t, int64_t>, int32_t> channels_;
  std::map<std::string, int32_t> collectives_;
  std::map<std::string, double> seconds_;  // by signature
};

}  // namespace weft

#endif  // WEFT_PLACEMENT_SIMULATION_MODEL_TABLES_H_
