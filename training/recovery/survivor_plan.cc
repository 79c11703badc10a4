#include "training/recovery/survivor_plan.h"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"

namespace weft {
namespace {

// The entries of `values`, one for each rank or none at all, of these ranks.
template <typename T>
std::vector<T> Of(const std::vector<T>& values, const std::vector<int>& ranks) {
  std::vector<T> chosen;
  if (values.empty()) return chosen;
  for (const int rank : ranks) chosen.push_back(values[static_cast<size_t>(rank)]);
  return chosen;
}

// Each stage is made of some that were beside each other, so that none comes before one that it
// needs.
void MergeStages(int stages, Plan& plan) {
  const int before = plan.num_stages();
  for (auto& [node, stage] : plan.stages) stage = stage * stages / before;
  plan.mesh.pipeline = stages;
  plan.chunks = 1;
  plan.pins.clear();  // of the workers that there were; they are in the stages
  if (stages == 1) {
    plan.schedule = "gpipe";
  } else if (plan.schedule == "interleaved") {
    plan.schedule = "1f1b";
  }
}

}  // namespace

bool HasRoomFor(const Plan& plan, int replicas) {
  return plan.whole_batch || replicas <= plan.micro_batches;
}

Plan PlanWithMore(const Plan& plan, int more) {
  if (more == 0) return plan;
  Plan next = plan;
  next.prediction = {};
  next.mesh.data = plan.mesh.data + more;
  if (!plan.shares.empty()) {
    const int total = std::accumulate(plan.shares.begin(), plan.shares.end(), 0);
    const int mean = std::max(1, total / static_cast<int>(plan.shares.size()));
    next.shares.resize(static_cast<size_t>(next.mesh.data), mean);
  }
  std::vector<int> alike;  // the rank of `plan` that each one is like
  int worker =
      plan.workers.empty() ? 0 : 1 + *std::max_element(plan.workers.begin(), plan.workers.end());
  next.workers.clear();
  const int host =
      plan.hosts.empty() ? 0 : 1 + *std::max_element(plan.hosts.begin(), plan.hosts.end());
  next.hosts.clear();
  for (int rank = 0; rank < next.mesh.size(); ++rank) {
    Mesh::Coordinate at = next.mesh.CoordinateOf(RankId(rank));
    const int extra = at.data - plan.mesh.data;
    if (extra >= 0) at.data = 0;
    alike.push_back(plan.mesh.RankOf(at).value);
    const auto before = static_cast<size_t>(alike.back());
    if (!plan.workers.empty()) next.workers.push_back(extra >= 0 ? worker++ : plan.workers[before]);
    if (!plan.hosts.empty()) next.hosts.push_back(extra >= 0 ? host + extra : plan.hosts[before]);
  }
  next.rank_threads = Of(plan.rank_threads, alike);
  if (plan.whole_batch) next.micro_batches = next.mesh.data;
  return next;
}

absl::StatusOr<SurvivorPlan> PlanWithout(const Plan& plan, const std::vector<int>& left) {
  if (plan.zero > 0) {
    return absl::FailedPreconditionError(absl::StrCat(
        "with zero=", plan.zero, " a lost worker had a part of the ",
        plan.zero > 2 ? "parameters and of the optimizer's state" : "optimizer's state",
        " that no other worker has"));
  }
  const Mesh& mesh = plan.mesh;
  std::vector<int> members(static_cast<size_t>(mesh.data), 0);
  for (const int rank : left) {
    ++members[static_cast<size_t>(mesh.CoordinateOf(RankId(rank)).data)];
  }
  const auto is_whole = [&](int replica) {
    return members[static_cast<size_t>(replica)] == mesh.tensor * mesh.pipeline;
  };
  SurvivorPlan survivors;
  survivors.plan = plan;
  survivors.plan.prediction = {};
  survivors.plan.mesh.data = 0;
  survivors.plan.shares.clear();
  for (int replica = 0; replica < mesh.data; ++replica) {
    if (!is_whole(replica)) continue;
    ++survivors.plan.mesh.data;
    if (!plan.shares.empty()) {
      survivors.plan.shares.push_back(plan.shares[static_cast<size_t>(replica)]);
    }
  }
  if (survivors.plan.mesh.data == 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("no replica of the model is whole any more under ", mesh.ToString(),
                     ": a lost worker had stages or shards that no other worker has"));
  }
  // The order of ranks, in which a replica comes before the next within a stage, stays.
  for (const int rank : left) {
    if (is_whole(mesh.CoordinateOf(RankId(rank)).data)) survivors.ranks.push_back(rank);
  }
  Plan& next = survivors.plan;
  next.workers = Of(plan.workers, survivors.ranks);
  next.hosts = Of(plan.hosts, survivors.ranks);
  next.rank_threads = Of(plan.rank_threads, survivors.ranks);
  // Each replica has its part in one micro-batch then.
  if (plan.whole_batch) next.micro_batches = next.mesh.data;
  return survivors;
}

absl::StatusOr<SurvivorPlan> PlanForFewer(const Plan& plan, const std::vector<int>& left) {
  const int ranks = static_cast<int>(left.size());
  if (ranks == 0) return absl::UnavailableError("no worker is left");
  SurvivorPlan fewer = {plan, left};
  if (ranks == plan.mesh.size()) return fewer;
  Plan& next = fewer.plan;
  next.prediction = {};
  next.shares.clear();
  const int shards = plan.mesh.tensor;
  if (ranks < shards) {
    if (plan.strict) {
      return absl::FailedPreconditionError(absl::StrCat(
          "a strict job keeps its ", shards, " shards (tp), on which its bits depend, and ", ranks,
          ranks == 1 ? " worker is" : " workers are", " left"));
    }
    // Any other number of shards cuts other variables: the simplest one.
    next.mesh.tensor = 1;
    next.tensor_shardings.clear();
  }
  const int stages = std::min(plan.mesh.pipeline, ranks / next.mesh.tensor);
  if (stages < plan.mesh.pipeline) MergeStages(stages, next);
  next.mesh.data = std::min(plan.mesh.data, ranks / (next.mesh.tensor * stages));
  fewer.ranks.resize(static_cast<size_t>(next.mesh.size()));
  next.workers = Of(plan.workers, fewer.ranks);
  next.hosts = Of(plan.hosts, fewer.ranks);
  next.rank_threads = Of(plan.rank_threads, fewer.ranks);
  // Each replica has its part in one micro-batch then.
  if (plan.whole_batch) next.micro_batches = next.mesh.data;
  return fewer;
}

}  // namespace weft
