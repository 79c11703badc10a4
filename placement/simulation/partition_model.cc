#include "placement/simulation/partition_model.h"

#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "placement/simulation/model_tables.h"
#include "placement/simulation/rank_model.h"
#include "platform/status.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

absl::Status CheckWorkers(const std::vector<Partition>& partitions, std::span<const int> workers,
                          const CostModel& costs) {
  for (const Partition& partition : partitions) {
    if (partition.rank.value < static_cast<int64_t>(workers.size())) continue;
    return absl::InvalidArgumentError(absl::StrCat("there is a partition of rank ",
                                                   partition.rank.value, ", but workers for ",
                                                   workers.size()));
  }
  for (const int worker : workers) {
    if (worker >= 0 && worker < costs.num_workers()) continue;
    return absl::InvalidArgumentError(absl::StrCat("worker ", worker, " has no costs: there are ",
                                                   costs.num_workers(), " workers"));
  }
  return absl::OkStatus();
}

// Equal for routines that are equal.
std::vector<int32_t> KeyOf(const StepRoutine& routine) {
  std::vector<int32_t> key;
  for (const StepAction& step : routine.actions) {
    key.insert(key.end(), {static_cast<int32_t>(step.action.kind), step.action.micro_batch,
                           step.action.chunk, step.segment});
  }
  for (const StepJob& job : routine.jobs) key.insert(key.end(), {job.collective, job.signals});
  return key;
}

}  // namespace

absl::StatusOr<StepModel> ModelOfPartitions(const std::vector<Partition>& partitions,
                                            std::span<const int> workers, const CostModel& costs,
                                            const PartitionModelOptions& options) {
  WEFT_RETURN_IF_ERROR(CheckWorkers(partitions, workers, costs));
  StepModel model;
  ModelTables tables(partitions, workers, costs, options.host, model);
  std::map<std::vector<int32_t>, int32_t> routines;
  for (const Partition& partition : partitions) {
    RankModel rank(partition, tables, options.per_node);
    WEFT_RETURN_IF_ERROR(
        Annotate(rank.Build(), absl::StrCat("step of rank ", partition.rank.value)));
    const auto [entry, is_new] =
        routines.try_emplace(KeyOf(rank.routine()), static_cast<int32_t>(model.routines.size()));
    if (is_new) model.routines.push_back(std::move(rank.routine()));
    rank.rank().routine = entry->second;
    model.ranks.push_back(std::move(rank.rank()));
  }
  return model;
}

}  // namespace weft
