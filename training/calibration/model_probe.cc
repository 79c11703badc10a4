#include "training/calibration/model_probe.h"

#include <algorithm>
#include <string>
#include <utility>

#include "graph/node_class.h"
#include "graph/schedule/action_list.h"
#include "placement/cost/op_key.h"
#include "placement/graph_views/graph_node_view.h"
#include "platform/status_macros.h"
#include "training/calibration/solo_partition.h"
#include "training/graph/optimizer.h"

namespace weft {
namespace {

// Collects the measured ops of one rank's partition: nodes that do the same are averaged.
class OpCollection {
 public:
  OpCollection(const Partition& partition, const ProbeTimes& times)
      : partition_(partition), in_flight_(MicroBatchesHeld(partition.actions)), times_(times) {}

  absl::StatusOr<std::map<MeasuredOp, OpMeasurement>> Collect() {
    std::map<int, int> runs;  // of each micro graph
    for (const MicroBatch& micro_batch : partition_.micro_batches) ++runs[micro_batch.graph];
    WEFT_RETURN_IF_ERROR(Add(partition_.begin, 1));
    // Micro graphs of different sizes have nodes of the same names, whose times cannot be told
    // apart.
    if (runs.size() == 1) {
      WEFT_RETURN_IF_ERROR(Add(partition_.micro[runs.begin()->first], runs.begin()->second));
    }
    WEFT_RETURN_IF_ERROR(Add(partition_.end, 1));
    for (auto& [op, measured] : ops_) measured.seconds /= nodes_[op];
    return std::move(ops_);
  }

 private:
  absl::Status Add(const Graph& graph, int runs) {
    for (const NodeId id : graph.node_ids()) {
      const Node& node = graph.node(id);
      const auto time = times_.node_seconds.find(node.name);
      if (time == times_.node_seconds.end() || IsCommunication(node) || IsBoundary(node)) continue;
      WEFT_ASSIGN_OR_RETURN(const GraphNodeView view, GraphNodeView::Create(graph, node));
      const MeasuredOp op{OpKey(view), partition_.threads, in_flight_};
      OpMeasurement& measured = ops_[op];
      measured.text = OpText(view);
      measured.work = WorkOf(view);
      measured.seconds += time->second / runs;
      nodes_[op] += 1;
    }
    return absl::OkStatus();
  }

  const Partition& partition_;
  const int in_flight_;
  const ProbeTimes& times_;
  std::map<MeasuredOp, OpMeasurement> ops_;
  std::map<MeasuredOp, double> nodes_;
};

// That the rank reads in a step.
double InputBytes(const Partition& partition) {
  double per_sample = 0;
  for (const FeedInput& input : partition.inputs) {
    if (input.role != InputRole::kData) continue;
    per_sample += static_cast<double>(DTypeBytes(input.dtype, input.sample_shape.num_elements()));
  }
  double samples = 0;
  for (const MicroBatch& micro_batch : partition.micro_batches) {
    samples += static_cast<double>(micro_batch.samples);
  }
  return samples * per_sample;
}

}  // namespace

absl::StatusOr<ModelProbe> ProbeModel(ProbeSession& session, const PreparedJob& job,
                                      double learning_rate, double seconds, int rounds) {
  ProbeProgram program;
  program.name = job.programs.front().name;
  for (const Partition& partition : job.programs.front().partitions) {
    program.partitions.push_back(partition.Clone());
    WEFT_RETURN_IF_ERROR(RemovePeers(program.partitions.back()));
  }
  std::map<std::string, Tensor> initial;
  for (const Variable& variable : job.graph.variables()) {
    if (variable.initial.valid()) initial[variable.name] = variable.initial;
  }
  std::vector<ProbeProgram> programs;
  programs.push_back(std::move(program));
  // The last batch of an epoch may be shorter, which is another program.
  const int64_t steps = std::max<int64_t>(1, job.data->steps_per_epoch() - 1);
  WEFT_RETURN_IF_ERROR(session.Begin(programs, job.data->spec().ToJson(), initial, steps));
  WEFT_ASSIGN_OR_RETURN(
      const std::vector<ProbeTimes> times,
      session.Measure(programs[0].name, seconds, {{kLearningRateInput, learning_rate}}, rounds));
  ModelProbe probe;
  probe.partitions = std::move(programs[0].partitions);
  for (size_t rank = 0; rank < times.size(); ++rank) {
    const Partition& partition = probe.partitions[rank];
    RankProbe& rank_probe = probe.ranks.emplace_back();
    WEFT_ASSIGN_OR_RETURN(rank_probe.ops, OpCollection(partition, times[rank]).Collect());
    rank_probe.step_seconds = times[rank].step_seconds;
    rank_probe.input_bytes = InputBytes(partition);
    rank_probe.input_seconds = times[rank].input_seconds;
  }
  return probe;
}

}  // namespace weft
