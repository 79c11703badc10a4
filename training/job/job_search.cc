#include "training/job/job_search.h"

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "distributed/memory_requirement.h"
#include "executor/program/planned_memory.h"
#include "executor/variables/checkpoint_writer.h"
#include "graph/schedule/channel_credits.h"
#include "ops/node_runner.h"
#include "placement/cost/prediction_error.h"
#include "placement/cost/published_specs.h"
#include "placement/partition/partitioner.h"
#include "placement/search/alternatives.h"
#include "platform/byte_quantity.h"
#include "platform/status_macros.h"
#include "tensor/dtype.h"
#include "training/data/batch_reader.h"
#include "training/data/data_set.h"
#include "training/job/batch_cuts.h"
#include "training/job/card_paths.h"
#include "training/job/compiled_memory.h"
#include "training/job/rank_device.h"

namespace weft {
namespace {

// A worker process with its libraries takes more than the first, and with what it compiles less
// than the second (measured: distributed/memory_requirement.h has the parts).
constexpr int64_t kMinProcessBytes = int64_t{16} << 20;
constexpr int64_t kUsualProcessBytes = int64_t{64} << 20;

// What programs may allocate of a GPU: of one of this process what it says itself, unless the
// cluster file gives the worker less; else, and of a worker on another machine, the card's memory
// without CUDA's context.
int64_t LimitOfGpu(const ClusterSpec& cluster, const CostModel& costs, int index) {
  const WorkerSpec& worker = cluster.workers[static_cast<size_t>(index)];
  const int64_t card = worker.memory_bytes > 0 ? worker.memory_bytes : costs.MemoryBytes(index);
  const int64_t published = std::max<int64_t>(0, card - kContextBytes);
  if (!worker.address.empty()) return published;
  const bool is_named = worker.memory_bytes > 0 || !worker.model.empty();
  const absl::StatusOr<Device*> device = DeviceOfWorker(cluster, index);
  if (!device.ok() || (*device)->info().memory_limit == 0) return published;
  const auto own = static_cast<int64_t>((*device)->info().memory_limit);
  return is_named ? std::min(own, published) : own;
}

// By worker: what it was given, or its part of what its host has.
std::vector<int64_t> MemoryLimitsByWorker(const JobSpec& spec, const CostModel& costs) {
  std::map<std::string, int64_t> workers_of_host;
  for (const WorkerSpec& worker : spec.cluster.workers) ++workers_of_host[worker.host];
  std::vector<int64_t> limits;
  for (size_t i = 0; i < spec.cluster.workers.size(); ++i) {
    const WorkerSpec& worker = spec.cluster.workers[i];
    if (worker.device == DeviceKind::kCuda) {
      limits.push_back(LimitOfGpu(spec.cluster, costs, static_cast<int>(i)));
      continue;
    }
    int64_t limit = worker.memory_bytes > 0 ? worker.memory_bytes : spec.memory_per_worker;
    if (limit == 0) limit = costs.MemoryBytes(static_cast<int>(i));
    if (limit == 0) limit = spec.search.host_memory / workers_of_host[worker.host];
    limits.push_back(limit);
  }
  return limits;
}

SearchOptions OptionsOf(const Graph& graph, const JobSpec& spec, const CostModel& costs,
                        int64_t global_batch) {
  SearchOptions options;
  options.global_batch = global_batch;
  options.given = spec.plan;
  options.given.mesh = {};
  options.given.workers.clear();
  options.fixed_micro_batches =
      !spec.plan.whole_batch && (spec.plan.strict || spec.search.keep_micro_batches);
  options.max_replicas = spec.search.max_replicas;
  options.batch_reason = spec.search.batch_reason;
  options.may_leave_out = spec.search.may_leave_out;
  options.strategy = spec.search.strategy;
  options.memory_limits = MemoryLimitsByWorker(spec, costs);
  options.process_bytes = kMinProcessBytes;
  const bool is_free = !options.fixed_micro_batches && !spec.plan.whole_batch;
  if (is_free && DependsOnMicroBatches(graph)) {
    options.fixed_micro_batches = true;
    options.given.micro_batches =
        static_cast<int>(std::min<int64_t>(global_batch, spec.cluster.workers.size()));
  }
  return options;
}

// What each rank has beside its programs and its process, as its requirement counts it.
class Surroundings {
 public:
  Surroundings(const PreparedJob& job, const JobSpec& spec)
      : data_bytes_(NewDataSetSource(job.data)->max_bytes()), copies_(CopiesOf(spec)) {}
  // Where the data set is not known.
  explicit Surroundings(const JobSpec& spec) : data_bytes_(0), copies_(CopiesOf(spec)) {}

  // Data set and the copies of the rank's own state.
  int64_t FixedBytes(const Partition& partition) const {
    return data_bytes_ + (copies_ > 0 ? copies_ * SavedBytes(partition) : 0);
  }
  static int64_t TransportBytes(const std::map<RankId, int64_t>& unexpected_bytes, RankId own,
                                int ranks) {
    int64_t bytes = 0;
    for (int rank = 0; rank < ranks; ++rank) {
      const auto early = unexpected_bytes.find(RankId(rank));
      if (RankId(rank) == own) continue;
      bytes += ConnectionBytes(early == unexpected_bytes.end() ? 0 : early->second,
                               static_cast<int64_t>(kInbox.bytes));
    }
    return bytes;
  }

 private:
  // One that checkpoints are written from, two for who goes on after a loss. Those of other ranks,
  // which it may keep besides, are not known here.
  static int64_t CopiesOf(const JobSpec& spec) {
    return (spec.checkpoints ? 1 : 0) + (spec.replicate_every > 0 ? 2 : 0);
  }
  static int64_t SavedBytes(const Partition& partition) {
    const std::vector<std::string> names = CheckpointedVariables(partition);
    const std::set<std::string> saved(names.begin(), names.end());
    int64_t bytes = 0;
    for (const VariableShard& shard : partition.variables) {
      if (saved.contains(shard.name)) {
        bytes += DTypeBytes(shard.dtype, shard.local_shape.num_elements());
      }
    }
    return bytes;
  }

  const int64_t data_bytes_;
  const int64_t copies_;
};

// Of one rank, all but the process; `nccl_bytes` are its card's. ResourceExhausted where that is
// more than `max_bytes`, if so much is known before the arena is laid out.
absl::StatusOr<int64_t> MemoryOfOneRank(const Partition& partition, Device& device,
                                        const Surroundings& surroundings, int64_t nccl_bytes,
                                        int64_t max_bytes) {
  const int64_t fixed =
      device.info().host_accessible ? surroundings.FixedBytes(partition) : nccl_bytes;
  const int64_t room = std::max<int64_t>(0, max_bytes - fixed);
  WEFT_ASSIGN_OR_RETURN(const PlannedProgram program, PlanProgram(partition, device, room));
  // The limit of a GPU is that of its own memory, where data and messages are not.
  if (!device.info().host_accessible) {
    return ProgramBytes(program.memory) + fixed;
  }
  return ProgramBytes(program.memory) + fixed +
         Surroundings::TransportBytes(program.unexpected_bytes, partition.rank,
                                      partition.mesh.size());
}

// What a search asks of the ranks of its fastest plan: what CheckPlanFits will count, but for the
// data set; and of NCCL no less. Borrows `spec`.
RankMemoryFn MemoryForSearch(const JobSpec& spec) {
  const bool all_gpus =
      std::all_of(spec.cluster.workers.begin(), spec.cluster.workers.end(),
                  [](const WorkerSpec& worker) { return worker.device == DeviceKind::kCuda; });
  return [&spec, all_gpus](const Partition& partition, int worker) -> absl::StatusOr<int64_t> {
    WEFT_ASSIGN_OR_RETURN(Device* const device, DeviceOfWorker(spec.cluster, worker));
    const int64_t nccl_bytes = all_gpus ? NcclBytesOfRank(partition, spec.plan.strict) : 0;
    return MemoryOfOneRank(partition, *device, Surroundings(spec), nccl_bytes,
                           std::numeric_limits<int64_t>::max());
  };
}

// By rank, all but the process. ResourceExhausted where a rank's limit does not leave
// `process_bytes`.
absl::StatusOr<std::vector<int64_t>> MemoryByRank(const Graph& graph, const Plan& plan,
                                                  const ClusterSpec& cluster,
                                                  const SearchOptions& options,
                                                  const Surroundings& surroundings) {
  WEFT_ASSIGN_OR_RETURN(
      const std::vector<Partition> partitions,
      PartitionStep(graph, plan, {/*training=*/true, options.global_batch}, CpuNodeEvaluator()));
  WEFT_ASSIGN_OR_RETURN(const PlannedCards cards, PlanCards(cluster, plan, partitions));
  const std::vector<int64_t> nccl = NcclBytes(cards, partitions.size());
  std::vector<int64_t> bytes;
  for (const Partition& partition : partitions) {
    const int64_t limit = options.memory_limits[plan.workers[partition.rank.value]];
    const int64_t max_bytes =
        limit == 0 ? std::numeric_limits<int64_t>::max() : limit - options.process_bytes;
    WEFT_ASSIGN_OR_RETURN(Device* const device, DeviceOfRank(cluster, plan, partition.rank));
    WEFT_ASSIGN_OR_RETURN(
        bytes.emplace_back(),
        MemoryOfOneRank(partition, *device, surroundings,
                        nccl[static_cast<size_t>(partition.rank.value)], max_bytes));
  }
  return bytes;
}

// Replicas that a plan may have which computes with the whole batch, at most; 0 = any number.
// `spec` is as the job was given it, before LimitBatchCuts.
int MaxReplicasOf(const PreparedJob& job, const JobSpec& spec, int64_t batch) {
  JobSpec free = spec;
  free.search.wanted = true;
  free.search.keep_micro_batches = false;
  free.plan.mesh = {};
  const absl::Status limited = LimitBatchCuts(job.graph, batch, free);
  // Nothing is known of stored programs, nor where a plan file alone wants the whole batch.
  const bool is_known = limited.ok() && spec.stored == nullptr && !free.search.batch_reason.empty();
  return is_known ? free.search.max_replicas : job.plan.mesh.data;
}

std::string AlternativesOf(const PreparedJob& job, const JobSpec& spec, const CostModel& costs) {
  const int64_t batch = job.programs.front().shape.batch;
  SearchOptions options = OptionsOf(job.graph, spec, costs, batch);
  options.process_bytes = kUsualProcessBytes;
  if (job.plan.whole_batch) {
    options.given.whole_batch = true;
    options.fixed_micro_batches = false;
    options.max_replicas = MaxReplicasOf(job, spec, batch);
  }
  if (options.fixed_micro_batches) options.given.micro_batches = job.plan.micro_batches;
  const Surroundings surroundings(job, spec);
  const MemoryOfPlanFn memory_of = [&](const Plan& plan) {
    return MemoryByRank(job.graph, plan, spec.cluster, options, surroundings);
  };
  const std::vector<Alternative> found = FindAlternatives(job.graph, spec.cluster, costs, job.plan,
                                                          options, memory_of, CpuNodeEvaluator());
  if (!found.empty()) return AlternativesText(found);
  return "; no other plan on these workers would fit: use more workers, a smaller --batch or more "
         "memory";
}

}  // namespace

absl::StatusOr<CostModel> CostsOf(const JobSpec& spec, uint64_t model_digest) {
  CostCorrections corrections = CorrectionsOf(spec.history, spec.cluster.Digest(), model_digest);
  if (spec.costs != nullptr) {
    return spec.costs->With(std::move(corrections))
        .WithHostOps(spec.plan.host_ops)
        .WithWays(WaysOfWorkers(spec.cluster, spec.plan));
  }
  WEFT_ASSIGN_OR_RETURN(const CostModel costs, CostModel::OfSpec(spec.cluster));
  return costs.With(std::move(corrections))
      .WithHostOps(spec.plan.host_ops)
      .WithWays(WaysOfWorkers(spec.cluster, spec.plan));
}

absl::StatusOr<SearchResult> SearchJobPlan(const Graph& graph, const JobSpec& spec,
                                           const CostModel& costs, int64_t global_batch) {
  SearchOptions options = OptionsOf(graph, spec, costs, global_batch);
  options.rank_memory = MemoryForSearch(spec);
  return SearchPlan(graph, spec.cluster, costs, options, CpuNodeEvaluator());
}

absl::StatusOr<SearchResult> SearchJobPlanByEstimates(const Graph& graph, const JobSpec& spec,
                                                      const CostModel& costs,
                                                      int64_t global_batch) {
  return SearchPlan(graph, spec.cluster, costs, OptionsOf(graph, spec, costs, global_batch),
                    CpuNodeEvaluator());
}

std::string NoteOnFewerWorkers(const Graph& graph, const JobSpec& spec, const CostModel& costs,
                               int64_t global_batch, const SearchResult& result) {
  const size_t all = spec.cluster.workers.size();
  if (spec.search.may_leave_out || all < 2) return "";
  SearchOptions options = OptionsOf(graph, spec, costs, global_batch);
  options.may_leave_out = true;
  options.exact_plans = std::max(1, options.exact_plans);
  options.rank_memory = MemoryForSearch(spec);
  const absl::StatusOr<SearchResult> fewer =
      SearchPlan(graph, spec.cluster, costs, options, CpuNodeEvaluator());
  if (!fewer.ok() || fewer->plan.workers.size() == all ||
      fewer->chosen.exact != result.chosen.exact) {
    return "";
  }
  const double factor = result.chosen.step_seconds / std::max(1e-12, fewer->chosen.step_seconds);
  if (factor < 1.1) return "";
  return absl::StrFormat(
      "%d of %d workers would be %.1f times as fast (predicted%s): --parallel auto leaves the "
      "others out",
      fewer->plan.workers.size(), all, factor,
      costs.is_calibrated() ? "" : absl::StrCat("; ", UncalibratedWords()));
}

absl::Status CheckPlanFits(const PreparedJob& job, const JobSpec& spec, const CostModel& costs) {
  const std::vector<int64_t> limits = MemoryLimitsByWorker(spec, costs);
  const Surroundings surroundings(job, spec);
  std::vector<PlannedCards> cards;  // of the programs so far
  for (const JobProgram& program : job.programs) {
    WEFT_ASSIGN_OR_RETURN(cards.emplace_back(),
                          PlanCards(spec.cluster, job.plan, program.partitions));
    const std::vector<int64_t> nccl = NcclBytesOfPrograms(cards, program.partitions.size());
    const bool is_planned = &program == &job.programs.front() && !job.planned.empty();
    const PlannedRanks ranks =
        is_planned ? job.planned : PlanRanks(program.partitions, spec.cluster, job.plan);
    for (const Partition& partition : program.partitions) {
      const int worker = job.plan.workers[partition.rank.value];
      const int64_t limit = limits[worker];
      if (limit == 0) continue;
      // What this machine has no device or kernel for, the worker says.
      const std::optional<PlannedProgram>& planned = ranks[partition.rank.value];
      if (!planned.has_value()) continue;
      const ProgramMemory& memory = planned->memory;
      if (spec.cluster.workers[worker].device == DeviceKind::kCuda) {
        const int64_t nccl_bytes = nccl[static_cast<size_t>(partition.rank.value)];
        const int64_t need = ProgramBytes(memory) + nccl_bytes;
        if (need <= limit) continue;
        return absl::ResourceExhaustedError(absl::StrCat(
            spec.cluster.workers[worker].name, " may have ", ByteQuantity(limit),
            " of its GPU's memory and needs ", ByteQuantity(need), ": variables ",
            ByteQuantity(memory.variable_bytes), ", arena ", ByteQuantity(memory.arena_bytes),
            nccl_bytes > 0 ? absl::StrCat(", NCCL ", ByteQuantity(nccl_bytes)) : "",
            "; the job was refused before anything was started", AlternativesOf(job, spec, costs)));
      }
      const int64_t besides = surroundings.FixedBytes(partition) +
                              Surroundings::TransportBytes(planned->unexpected_bytes,
                                                           partition.rank, job.plan.mesh.size());
      const int64_t need = ProgramBytes(memory) + besides + kMinProcessBytes;
      if (need <= limit) continue;
      return absl::ResourceExhaustedError(absl::StrCat(
          spec.cluster.workers[worker].name, " may have ", ByteQuantity(limit),
          " of memory and needs at least ", ByteQuantity(need), ": variables ",
          ByteQuantity(memory.variable_bytes), ", arena ", ByteQuantity(memory.arena_bytes),
          ", its process ", ByteQuantity(kMinProcessBytes),
          ", its data, checkpoints and unexpected messages ", ByteQuantity(besides),
          "; the job was refused before anything was started", AlternativesOf(job, spec, costs)));
    }
  }
  return absl::OkStatus();
}

absl::Status AddAlternatives(const absl::Status& error, const PreparedJob& job, const JobSpec& spec,
                             const CostModel& costs) {
  if (!absl::IsResourceExhausted(error)) return error;
  return absl::ResourceExhaustedError(
      absl::StrCat(error.message(), AlternativesOf(job, spec, costs)));
}

}  // namespace weft
