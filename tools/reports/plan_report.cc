#include "tools/reports/plan_report.h"

#include <algorithm>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "graph/schedule/action_list.h"
#include "graph/schedule/schedule_simulator.h"
#include "onnx_import/graph_wire.h"
#include "placement/completion/plan_completion.h"
#include "placement/cost/prediction_error.h"
#include "placement/partition/partition_summary.h"
#include "placement/partition/traffic_prediction.h"
#include "platform/status_macros.h"
#include "tensor/device_id.h"
#include "tools/console/quantity.h"

namespace weft {
namespace {

std::string PlannedWorkerName(const Plan& plan, const ClusterSpec& cluster, RankId rank) {
  const size_t worker = static_cast<size_t>(plan.workers[static_cast<size_t>(rank.value)]);
  return cluster.workers[worker].name;
}

// The pipeline of replica 0 and shard 0.
struct Pipeline {
  std::vector<ActionList> lists;  // by place
  int micro_batches = 0;
};

Pipeline PipelineOf(const Plan& plan, const std::vector<Partition>& partitions) {
  Pipeline pipeline;
  for (int place = 0; place < plan.mesh.pipeline; ++place) {
    const RankId rank = plan.mesh.RankOf({0, 0, place});
    const Partition& partition = partitions[static_cast<size_t>(rank.value)];
    pipeline.lists.push_back(partition.actions);
    pipeline.micro_batches =
        std::max(pipeline.micro_batches, static_cast<int>(partition.micro_batches.size()));
  }
  return pipeline;
}

// With stages of equal cost.
absl::StatusOr<ScheduleSimulation> Simulate(const Pipeline& pipeline) {
  ScheduleOptions options;
  options.micro_batches = pipeline.micro_batches;
  return SimulateSchedule(pipeline.lists, options);
}

std::string BubbleText(const ScheduleSimulation& simulation) {
  std::string text =
      absl::StrFormat("bubble share %.1f %% with equal stages", 100 * simulation.BubbleShare());
  for (size_t place = 0; place < simulation.bubble_share.size(); ++place) {
    absl::StrAppendFormat(&text, "%s %.1f %% on %d", place == 0 ? ":" : ",",
                          100 * simulation.bubble_share[place], place);
  }
  absl::StrAppend(&text, "; micro-batches in flight");
  for (size_t place = 0; place < simulation.max_in_flight.size(); ++place) {
    absl::StrAppend(&text, place == 0 ? " " : ", ", simulation.max_in_flight[place]);
  }
  return absl::StrCat(text, "\n");
}

// With the memory that the rank's own compile finds, where it was compiled; else with an estimate.
absl::StatusOr<RankSummary> SummaryOf(const Partition& partition, const PlannedRanks& planned) {
  WEFT_ASSIGN_OR_RETURN(RankSummary summary, Summarize(partition));
  const auto rank = static_cast<size_t>(partition.rank.value);
  if (rank < planned.size() && planned[rank].has_value()) {
    summary.variable_bytes = planned[rank]->memory.variable_bytes;
    summary.arena_bytes = planned[rank]->memory.arena_bytes;
  }
  return summary;
}

// Every rank's channels and collectives.
template <typename Fn>
absl::Status ForEachStream(const std::vector<Partition>& partitions, Fn fn) {
  for (const Partition& partition : partitions) {
    WEFT_ASSIGN_OR_RETURN(const std::vector<StreamPrediction> streams, PredictTraffic(partition));
    for (const StreamPrediction& stream : streams) fn(partition.rank, stream);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> TrafficText(const std::vector<Partition>& partitions) {
  std::string channels;
  std::string collectives;
  WEFT_RETURN_IF_ERROR(ForEachStream(partitions, [&](RankId rank, const StreamPrediction& stream) {
    const std::string where = stream.to.valid() ? absl::StrCat(rank.value, " -> ", stream.to.value)
                                                : absl::StrCat(rank.value, "     ");
    absl::StrAppendFormat(stream.to.valid() ? &channels : &collectives,
                          "  %s  %-40s %-20s %12d bytes/step\n", where, stream.name, stream.type,
                          stream.bytes);
  }));
  return absl::StrCat(channels.empty() ? "" : "channels\n", channels,
                      collectives.empty() ? "" : "collectives, what each rank sends\n",
                      collectives);
}

// Of one shard of the model: all stages of replica 0 and shard 0.
struct RepeatedOps {
  std::map<std::string, ReplicatedOp> ops;
  double all_flops = 0;
};

RepeatedOps RepeatedOpsOf(const Plan& plan, const std::vector<Partition>& partitions) {
  RepeatedOps replication;
  for (int place = 0; place < plan.mesh.pipeline; ++place) {
    const RankId rank = plan.mesh.RankOf({0, 0, place});
    const Partition& partition = partitions[static_cast<size_t>(rank.value)];
    for (ReplicatedOp& op : OpsWithoutRule(partition)) {
      ReplicatedOp& sum = replication.ops[op.op];
      sum.op = op.op;
      sum.nodes.merge(op.nodes);
      sum.flops += op.flops;
      sum.bytes += op.bytes;
    }
    const auto summary = Summarize(partition);
    if (summary.ok()) replication.all_flops += summary->flops;
  }
  return replication;
}

// Of one shard of the model, as RepeatedOps. Empty where nothing is uneven.
std::string UnevenText(const Plan& plan, const std::vector<Partition>& partitions) {
  std::string text;
  for (int place = 0; place < plan.mesh.pipeline; ++place) {
    const RankId rank = plan.mesh.RankOf({0, 0, place});
    for (const UnevenSplit& split : UnevenSplits(partitions[static_cast<size_t>(rank.value)])) {
      absl::StrAppendFormat(&text, "  %s x %d: %d parts of %d elements, %s, first %s\n", split.op,
                            split.nodes.size(), split.parts, split.elements,
                            ByteQuantity(static_cast<int64_t>(split.bytes)), *split.nodes.begin());
    }
  }
  if (text.empty()) return text;
  return absl::StrCat("read whole, per step, because ", plan.mesh.tensor,
                      " shards cannot share the parts of an axis (heads) evenly\n", text);
}

double ShareOf(double part, double all) { return all > 0 ? part / all : 0; }

}  // namespace

std::string ReplicationText(const Plan& plan, const std::vector<Partition>& partitions) {
  const RepeatedOps replication = RepeatedOpsOf(plan, partitions);
  const std::string uneven = UnevenText(plan, partitions);
  if (replication.ops.empty()) return uneven;
  std::string text = absl::StrCat("replicated on each of ", plan.mesh.tensor,
                                  " shards because they have no sharding rule, per step\n");
  for (const auto& [name, op] : replication.ops) {
    absl::StrAppendFormat(&text, "  %s x %d: %s FLOPs (%.1f %% of a shard's), %s\n", name,
                          op.nodes.size(), Quantity(op.flops),
                          100 * ShareOf(op.flops, replication.all_flops),
                          ByteQuantity(static_cast<int64_t>(op.bytes)));
  }
  return absl::StrCat(text, uneven);
}

absl::StatusOr<std::string> PlanText(const Plan& plan, const ClusterSpec& cluster,
                                     const std::vector<Partition>& partitions,
                                     const PlannedRanks& planned) {
  std::string text = absl::StrFormat("plan %s, %d micro-batches, %s, %s%s\n", plan.mesh.ToString(),
                                     plan.micro_batches, plan.schedule, ThreadsText(plan),
                                     plan.strict ? ", strict"
                                     : plan.tf32 ? ", TF32 on GPUs"
                                                 : "");
  if (plan.zero > 0) {
    absl::StrAppend(&text, "ZeRO ", plan.zero, ": ",
                    plan.zero == 1   ? "optimizer state"
                    : plan.zero == 2 ? "optimizer state and summed gradients"
                                     : "parameters, optimizer state and summed gradients",
                    " split over ", plan.mesh.data, " replicas\n");
    for (const auto& [name, reason] : plan.zero_replicated) {
      absl::StrAppend(&text, "  whole: ", name, " (", reason, ")\n");
    }
  }
  if (plan.prediction.step_seconds > 0) {
    absl::StrAppendFormat(
        &text, "predicted %s per step: %s computing, %s communication not hidden, %.1f %% idle\n",
        DurationText(plan.prediction.step_seconds), DurationText(plan.prediction.compute_seconds),
        DurationText(plan.prediction.communication_seconds), 100 * plan.prediction.bubble_fraction);
  }
  absl::StrAppendFormat(&text, "%5s %-14s %6s %8s %6s %6s %9s %9s %12s %12s %12s\n", "rank",
                        "worker", "stage", "replica", "shard", "nodes", "params", "FLOPs",
                        "variables", "arena", "sends/step");
  for (const Partition& partition : partitions) {
    WEFT_ASSIGN_OR_RETURN(const RankSummary summary, SummaryOf(partition, planned));
    const Mesh::Coordinate at = plan.mesh.CoordinateOf(partition.rank);
    absl::StrAppendFormat(&text, "%5d %-14s %6d %8d %6d %6d %9s %9s %12s %12s %12s\n",
                          partition.rank.value, PlannedWorkerName(plan, cluster, partition.rank),
                          at.pipeline, at.data, at.tensor, summary.nodes,
                          Quantity(static_cast<double>(summary.parameters)),
                          Quantity(summary.flops), ByteQuantity(summary.variable_bytes),
                          ByteQuantity(summary.arena_bytes), ByteQuantity(summary.sent_bytes));
  }
  absl::StrAppend(&text, ReplicationText(plan, partitions));
  WEFT_ASSIGN_OR_RETURN(const std::string traffic, TrafficText(partitions));
  const Pipeline pipeline = PipelineOf(plan, partitions);
  WEFT_ASSIGN_OR_RETURN(const ScheduleSimulation simulation, Simulate(pipeline));
  absl::StrAppend(&text, traffic, "actions\n", ActionGrid(pipeline.lists, pipeline.micro_batches),
                  BubbleText(simulation));
  return text;
}

void AddPredictionError(bool calibrated, nlohmann::ordered_json& json) {
  const PredictionError& error = calibrated ? kCalibratedError : kUncalibratedError;
  json["calibrated"] = calibrated;
  json["measured_over_predicted"] = {
      {"min", error.min}, {"median", error.median}, {"max", error.max}, {"runs", error.runs}};
}

absl::StatusOr<nlohmann::ordered_json> PlanJson(const Plan& plan, const ClusterSpec& cluster,
                                                const std::vector<Partition>& partitions,
                                                const PlannedRanks& planned) {
  nlohmann::ordered_json ranks = nlohmann::ordered_json::array();
  for (const Partition& partition : partitions) {
    WEFT_ASSIGN_OR_RETURN(const RankSummary summary, SummaryOf(partition, planned));
    const Mesh::Coordinate at = plan.mesh.CoordinateOf(partition.rank);
    ranks.push_back({{"rank", partition.rank.value},
                     {"worker", PlannedWorkerName(plan, cluster, partition.rank)},
                     {"stage", at.pipeline},
                     {"replica", at.data},
                     {"shard", at.tensor},
                     {"nodes", summary.nodes},
                     {"parameters", summary.parameters},
                     {"flops", summary.flops},
                     {"variable_bytes", summary.variable_bytes},
                     {"arena_bytes", summary.arena_bytes},
                     {"sent_bytes", summary.sent_bytes},
                     {"actions", ActionListToString(partition.actions)}});
  }
  nlohmann::ordered_json channels = nlohmann::ordered_json::array();
  nlohmann::ordered_json collectives = nlohmann::ordered_json::array();
  WEFT_RETURN_IF_ERROR(ForEachStream(partitions, [&](RankId rank, const StreamPrediction& stream) {
    if (stream.to.valid()) {
      channels.push_back({{"from", rank.value},
                          {"to", stream.to.value},
                          {"value", stream.name},
                          {"bytes_per_step", stream.bytes}});
    } else {
      collectives.push_back(
          {{"rank", rank.value}, {"node", stream.name}, {"bytes_per_step", stream.bytes}});
    }
  }));
  const RepeatedOps replication = RepeatedOpsOf(plan, partitions);
  nlohmann::ordered_json replicated = nlohmann::ordered_json::array();
  for (const auto& [name, op] : replication.ops) {
    replicated.push_back({{"op", name},
                          {"nodes", op.nodes},
                          {"flops", op.flops},
                          {"share", ShareOf(op.flops, replication.all_flops)},
                          {"bytes", op.bytes}});
  }
  WEFT_ASSIGN_OR_RETURN(const ScheduleSimulation simulation,
                        Simulate(PipelineOf(plan, partitions)));
  return nlohmann::ordered_json{
      {"mesh",
       {{"data", plan.mesh.data}, {"tensor", plan.mesh.tensor}, {"pipeline", plan.mesh.pipeline}}},
      {"micro_batches", plan.micro_batches},
      {"schedule", plan.schedule},
      {"chunks", plan.chunks},
      {"bubble_share", simulation.BubbleShare()},
      {"in_flight", simulation.max_in_flight},
      {"strict", plan.strict},
      {"tf32", plan.tf32},
      {"host_ops", plan.host_ops},
      {"predicted_step_seconds", plan.prediction.step_seconds},
      {"predicted_compute_seconds", plan.prediction.compute_seconds},
      {"predicted_communication_seconds", plan.prediction.communication_seconds},
      {"predicted_bubble_fraction", plan.prediction.bubble_fraction},
      {"ranks", std::move(ranks)},
      {"replicated_for_want_of_a_rule", std::move(replicated)},
      {"channels", std::move(channels)},
      {"collectives", std::move(collectives)}};
}

nlohmann::ordered_json FusionJson(const JobFusion& fusion) {
  nlohmann::ordered_json ranks = nlohmann::ordered_json::array();
  for (const RankFusion& rank : fusion.ranks) {
    nlohmann::ordered_json kernels = nlohmann::ordered_json::array();
    for (const FusedKernel& kernel : rank.kernels) {
      kernels.push_back({{"node", kernel.node}, {"parts", kernel.parts}});
    }
    ranks.push_back(
        {{"rank", rank.rank.value}, {"nodes", rank.nodes}, {"kernels", std::move(kernels)}});
  }
  return {{"text", fusion.text}, {"ranks", std::move(ranks)}};
}

absl::StatusOr<std::string> RecomputationText(const RanksOfPlan& ranks, const RanksOfPlan& kept) {
  std::string text = "recomputation\n";
  for (size_t rank = 0; rank < ranks.partitions.size(); ++rank) {
    WEFT_ASSIGN_OR_RETURN(const RankSummary with, SummaryOf(ranks.partitions[rank], ranks.planned));
    WEFT_ASSIGN_OR_RETURN(const RankSummary without,
                          SummaryOf(kept.partitions[rank], kept.planned));
    const double share = without.flops == 0 ? 0 : with.recomputed_flops / without.flops;
    absl::StrAppendFormat(
        &text, "  rank %d runs %s FLOPs again (+%.1f %%), activations %s instead of %s\n",
        ranks.partitions[rank].rank.value, Quantity(with.recomputed_flops), 100 * share,
        ByteQuantity(with.arena_bytes), ByteQuantity(without.arena_bytes));
  }
  return text;
}

absl::StatusOr<nlohmann::ordered_json> RecomputationJson(const RanksOfPlan& ranks,
                                                         const RanksOfPlan& kept) {
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (size_t rank = 0; rank < ranks.partitions.size(); ++rank) {
    WEFT_ASSIGN_OR_RETURN(const RankSummary with, SummaryOf(ranks.partitions[rank], ranks.planned));
    WEFT_ASSIGN_OR_RETURN(const RankSummary without,
                          SummaryOf(kept.partitions[rank], kept.planned));
    rows.push_back({{"rank", ranks.partitions[rank].rank.value},
                    {"recomputed_flops", with.recomputed_flops},
                    {"arena_bytes", with.arena_bytes},
                    {"arena_bytes_without", without.arena_bytes}});
  }
  return rows;
}

std::string SparesText(const ClusterSpec& cluster) {
  std::string text;
  for (const WorkerSpec& spare : cluster.spares) {
    absl::StrAppend(&text, "spare ", spare.name, " on ", spare.host, " (", spare.address, ", ",
                    DeviceName(spare.device, spare.device_index),
                    "): computes nothing until a worker is lost\n");
  }
  return text;
}

nlohmann::ordered_json SparesJson(const ClusterSpec& cluster) {
  auto spares = nlohmann::ordered_json::array();
  for (const WorkerSpec& spare : cluster.spares) {
    spares.push_back({{"name", spare.name},
                      {"host", spare.host},
                      {"address", spare.address},
                      {"device", DeviceName(spare.device, spare.device_index)}});
  }
  return spares;
}

}  // namespace weft
