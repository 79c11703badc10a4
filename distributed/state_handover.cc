#include "distributed/state_handover.h"

#include <map>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "platform/log.h"
#include "platform/status.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

// Whether both are the same part of the same variable.
bool IsSamePart(const VariableShard& one, const VariableShard& other) {
  return one.dtype == other.dtype && one.global_shape == other.global_shape &&
         one.local_shape == other.local_shape && one.tensor_index == other.tensor_index &&
         one.data_shards == other.data_shards && one.data_index == other.data_index;
}

absl::Status HandOverOne(Coordinator& coordinator, const Handover& handover) {
  const auto& theirs = coordinator.shards(handover.from);
  WorkerClient& from = *coordinator.clients()[static_cast<size_t>(handover.from)];
  WorkerClient& to = *coordinator.clients()[static_cast<size_t>(handover.to)];
  for (const auto& [name, shard] : coordinator.shards(handover.to)) {
    const auto source = theirs.find(name);
    if (source == theirs.end() || !IsSamePart(source->second, shard)) {
      return absl::InternalError(absl::StrCat("worker:", handover.from, " has not the part of '",
                                              name, "' that worker:", handover.to, " is to have"));
    }
    const absl::StatusOr<Tensor> value = from.ReadVariable(name);
    if (!value.ok()) return Annotate(value.status(), from.name());
    WEFT_RETURN_IF_ERROR(Annotate(to.WriteVariable(name, *value), to.name()));
  }
  Log(LogLevel::kInfo, from.name(), " has handed its state over to ", to.name());
  return absl::OkStatus();
}

}  // namespace

absl::Status HandOverState(Coordinator& coordinator, const std::vector<Handover>& handovers) {
  // By giver: a worker takes one call at a time.
  std::map<int, std::vector<Handover>> by_giver;
  for (const Handover& one : handovers) by_giver[one.from].push_back(one);
  std::map<int, absl::Status> ended;
  for (const auto& [giver, all] : by_giver) ended[giver] = absl::OkStatus();
  std::vector<std::thread> threads;
  for (const auto& [giver, all] : by_giver) {
    absl::Status& status = ended.at(giver);
    threads.emplace_back([&coordinator, &status, &all = all] {
      for (const Handover& one : all) {
        if (status.ok()) status = HandOverOne(coordinator, one);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& [giver, status] : ended) WEFT_RETURN_IF_ERROR(status);
  return absl::OkStatus();
}

}  // namespace weft
