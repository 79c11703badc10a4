#include "placement/search/plan_space.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>

namespace weft {
namespace {

// Micro-batches of a replica at most; a micro-batch is at least one sample. A long pipeline of
// large stages needs many: they fill it, and are small.
constexpr int kMaxPerReplica = 1024;
constexpr int kMaxChunks = 4;
constexpr int kSegments[] = {1, 2, 4, 8};

// Fewer workers than all, from few to many: each number while they are few, then doublings.
std::vector<int> FewerWorkers(int all) {
  std::vector<int> counts;
  for (int count = 1; count < all; count = count < 8 ? count + 1 : count * 2) {
    counts.push_back(count);
  }
  return counts;
}

// Each replica has a micro-batch, and each micro-batch a sample.
int64_t MaxReplicas(const SearchOptions& options) {
  if (options.max_replicas > 0)
    return std::min<int64_t>(options.max_replicas, options.global_batch);
  return options.fixed_micro_batches ? options.given.micro_batches : options.global_batch;
}

// Sums over shards have other bits than sums on one worker.
int MaxTensor(const SearchOptions& options) {
  return options.given.strict ? 1 : options.max_tensor;
}

}  // namespace

PlanSpace::PlanSpace(const PlanEvaluator& evaluator) : evaluator_(evaluator) {
  const CostModel& cost = evaluator.cost();
  std::map<int, double> host_seconds;  // of its fastest worker
  for (int worker = 0; worker < cost.num_workers(); ++worker) {
    const double seconds = evaluator.WorkerSeconds(worker);
    const auto [host, is_new] = host_seconds.try_emplace(cost.host(worker), seconds);
    if (!is_new) host->second = std::min(host->second, seconds);
    order_.push_back(worker);
  }
  std::stable_sort(order_.begin(), order_.end(), [&](int a, int b) {
    const auto key = [&](int worker) {
      return std::tuple(host_seconds.at(cost.host(worker)), cost.host(worker),
                        evaluator.WorkerSeconds(worker));
    };
    return key(a) < key(b);
  });
  const int all = static_cast<int>(order_.size());
  AddMeshes(all);
  if (!evaluator.options().may_leave_out) return;
  for (const int fewer : FewerWorkers(all)) AddMeshes(fewer);
}

bool PlanSpace::KeepsTensorInHosts(const PlanChoice& choice) const {
  const int tensor = choice.mesh.tensor;
  for (size_t first = 0; first < choice.workers.size(); first += tensor) {
    for (int shard = 1; shard < tensor; ++shard) {
      const int a = evaluator_.cost().host(choice.workers[first]);
      if (evaluator_.cost().host(choice.workers[first + shard]) != a) return false;
    }
  }
  return true;
}

void PlanSpace::AddMeshes(int workers) {
  for (int pipeline = 1; pipeline <= workers; ++pipeline) {
    if (workers % pipeline != 0 || pipeline > evaluator_.layout().size()) continue;
    const int max_tensor = std::min(MaxTensor(evaluator_.options()), workers / pipeline);
    for (int tensor = 1; tensor <= max_tensor; ++tensor) {
      if (workers / pipeline % tensor != 0) continue;
      PlanChoice choice;
      choice.mesh = {workers / pipeline / tensor, tensor, pipeline};
      choice.workers.assign(order_.begin(), order_.begin() + workers);
      if (choice.mesh.data > MaxReplicas(evaluator_.options()) || !KeepsTensorInHosts(choice))
        continue;
      meshes_.push_back(std::move(choice));
    }
  }
}

std::vector<int> PlanSpace::EqualCounts(const PlanChoice& mesh) const {
  const int64_t batch = evaluator_.options().global_batch;
  std::vector<int> counts;
  if (batch % mesh.mesh.data != 0) return counts;
  const int64_t samples = batch / mesh.mesh.data;
  for (int own = 1; own <= std::min<int64_t>(samples, kMaxPerReplica); ++own) {
    if (samples % own == 0) counts.push_back(own);
  }
  return counts;
}

// Of the whole job: each replica has 1, 2, 4, ..., or the next more whose micro-batches are equal:
// of unequal ones all count like the largest.
std::vector<int> PlanSpace::MicroBatchCounts(const PlanChoice& mesh) const {
  const SearchOptions& options = evaluator_.options();
  if (options.given.whole_batch) return {mesh.mesh.data};
  if (options.fixed_micro_batches) return {options.given.micro_batches};
  const std::vector<int> equal = EqualCounts(mesh);
  std::vector<int> counts;
  for (int own = 1; own <= kMaxPerReplica; own *= 2) {
    int taken = own;
    if (const auto next = std::lower_bound(equal.begin(), equal.end(), own); next != equal.end()) {
      taken = *next;
    }
    const int64_t count = int64_t{taken} * mesh.mesh.data;
    if (count > options.global_batch) break;
    if (!counts.empty() && counts.back() >= count) continue;
    // One in all would be completed to one for each stage.
    if (count > 1 || mesh.mesh.pipeline == 1) counts.push_back(static_cast<int>(count));
  }
  return counts;
}

// Of each replica: that of its slowest place.
std::vector<double> PlanSpace::Speeds(const PlanChoice& choice) const {
  const Mesh& mesh = choice.mesh;
  std::vector<double> speeds;
  for (int replica = 0; replica < mesh.data; ++replica) {
    double seconds = 0;
    for (int place = 0; place < mesh.pipeline; ++place) {
      for (int shard = 0; shard < mesh.tensor; ++shard) {
        seconds =
            std::max(seconds, evaluator_.WorkerSeconds(choice.WorkerAt(replica, shard, place)));
      }
    }
    speeds.push_back(1 / seconds);
  }
  return speeds;
}

// In proportion to the speeds, in whole micro-batches.
void PlanSpace::SetShares(PlanChoice& choice) const {
  const Mesh& mesh = choice.mesh;
  const std::vector<double> speeds = Speeds(choice);
  const auto [slowest, fastest] = std::minmax_element(speeds.begin(), speeds.end());
  if (*fastest < *slowest * 1.05) return;
  const double sum = std::accumulate(speeds.begin(), speeds.end(), 0.0);
  int left = choice.micro_batches;
  std::vector<int> shares;
  for (const double speed : speeds) {
    const int share = std::max(1, static_cast<int>(std::floor(choice.micro_batches * speed / sum)));
    shares.push_back(share);
    left -= share;
  }
  // What is left goes to who is done first with one more; too much is taken from the slowest.
  while (left != 0) {
    int best = -1;
    for (int i = 0; i < mesh.data; ++i) {
      if (left < 0 && shares[i] == 1) continue;
      const auto time = [&](int at) { return (shares[at] + (left > 0 ? 1 : 0)) / speeds[at]; };
      const bool better = best < 0 || (left > 0 ? time(i) < time(best) : time(i) > time(best));
      if (better) best = i;
    }
    if (best < 0) return;  // one for each is all there is
    shares[best] += left > 0 ? 1 : -1;
    left += left > 0 ? -1 : 1;
  }
  choice.shares = std::move(shares);
}

std::vector<PlanChoice> PlanSpace::WithSchedules(const PlanChoice& choice) const {
  if (choice.mesh.pipeline == 1) return {choice};
  std::vector<PlanChoice> result;
  for (const char* const schedule : {"1f1b", "zero_bubble"}) {
    result.push_back(choice);
    result.back().schedule = schedule;
  }
  for (int chunks = 2; chunks <= kMaxChunks; chunks *= 2) {
    if (choice.mesh.pipeline * chunks > evaluator_.layout().size()) break;
    result.push_back(choice);
    result.back().schedule = "interleaved";
    result.back().chunks = chunks;
  }
  return result;
}

std::vector<PlanChoice> PlanSpace::FastVariants(const PlanChoice& mesh) const {
  std::vector<PlanChoice> result;
  for (const int count : MicroBatchCounts(mesh)) {
    PlanChoice choice = mesh;
    choice.micro_batches = count;
    SetShares(choice);
    // Without a pipeline and with equal replicas, more micro-batches rarely help: where smaller
    // ones fit caches better. Neighbours lead there.
    const bool is_enough = mesh.mesh.pipeline == 1 && choice.shares.empty() && !result.empty();
    if (is_enough && choice.MicroBatchesOf(0) > 1) break;
    for (PlanChoice& one : WithSchedules(choice)) {
      result.push_back(one);
      if (mesh.mesh.data == 1 || evaluator_.options().given.strict) continue;
      one.zero = 2;
      result.push_back(std::move(one));
    }
  }
  return result;
}

std::vector<PlanChoice> PlanSpace::SmallVariants(const PlanChoice& mesh) const {
  std::vector<PlanChoice> result;
  for (const int count : MicroBatchCounts(mesh)) {
    for (const int zero : {0, 1, 2, 3}) {
      if (zero > 0 && mesh.mesh.data == 1) continue;
      PlanChoice choice = mesh;
      choice.micro_batches = count;
      choice.zero = zero;
      SetShares(choice);
      if (mesh.mesh.pipeline > 1) choice.schedule = "1f1b";
      result.push_back(choice);
      for (const int segments : kSegments) {
        // One segment that follows at once saves nothing.
        if (segments == 1 && mesh.mesh.pipeline == 1) continue;
        choice.recompute_segments = segments;
        result.push_back(choice);
      }
    }
  }
  return result;
}

void PlanSpace::AddOtherCounts(const PlanChoice& choice, std::vector<PlanChoice>& list) const {
  const SearchOptions& options = evaluator_.options();
  if (options.fixed_micro_batches || options.given.whole_batch) return;
  const std::vector<int> equal = EqualCounts(choice);
  const int own = choice.micro_batches / choice.mesh.data;
  const auto at = std::lower_bound(equal.begin(), equal.end(), own);
  const auto add = [&](int count) {
    PlanChoice other = choice;
    other.micro_batches = count * choice.mesh.data;
    other.shares.clear();
    SetShares(other);
    if (other.micro_batches > 1 || choice.mesh.pipeline == 1) list.push_back(std::move(other));
  };
  if (at != equal.begin()) add(*(at - 1));
  const auto after = at != equal.end() && *at == own ? at + 1 : at;
  if (after != equal.end()) add(*after);
}

// A micro-batch goes from one replica to another: from one of each share, and the slowest and the
// fastest, to another of these. Speeds are those of the whole batch in one piece; in micro-batches
// the workers' may differ more.
void PlanSpace::AddOtherShares(const PlanChoice& choice, std::vector<PlanChoice>& list) const {
  const int replicas = choice.mesh.data;
  const std::vector<double> speeds = Speeds(choice);
  const auto [slowest, fastest] = std::minmax_element(speeds.begin(), speeds.end());
  if (*slowest == *fastest) return;
  std::vector<int> shares;
  for (int i = 0; i < replicas; ++i) shares.push_back(choice.MicroBatchesOf(i));
  std::set<size_t> parties = {static_cast<size_t>(slowest - speeds.begin()),
                              static_cast<size_t>(fastest - speeds.begin())};
  std::map<int, size_t> first_with;  // by share
  for (size_t i = 0; i < shares.size(); ++i) first_with.try_emplace(shares[i], i);
  for (const auto& [share, replica] : first_with) parties.insert(replica);
  for (const size_t from : parties) {
    for (const size_t to : parties) {
      if (from == to || shares[from] == 1) continue;
      list.push_back(choice);
      list.back().shares = shares;
      --list.back().shares[from];
      ++list.back().shares[to];
    }
  }
}

void PlanSpace::AddOtherSchedules(const PlanChoice& choice, std::vector<PlanChoice>& list) const {
  if (choice.mesh.pipeline == 1) return;
  const auto add = [&](const char* schedule, int chunks) {
    if (chunks == choice.chunks && choice.schedule == schedule) return;
    if (choice.mesh.pipeline * chunks > evaluator_.layout().size()) return;
    PlanChoice other = choice;
    other.schedule = schedule;
    other.chunks = chunks;
    // Segments are of a stage: as long as before.
    if (choice.recompute_segments > 0) {
      other.recompute_segments = std::max(1, choice.recompute_segments * choice.chunks / chunks);
    }
    list.push_back(std::move(other));
  };
  add("1f1b", 1);
  if (choice.recompute_segments == 0) add("zero_bubble", 1);
  for (const int chunks : {choice.chunks - 1, choice.chunks + 1}) {
    if (chunks > 1) add("interleaved", chunks);
  }
}

std::vector<PlanChoice> PlanSpace::Neighbours(const PlanChoice& choice) const {
  std::vector<PlanChoice> result;
  AddOtherCounts(choice, result);
  AddOtherShares(choice, result);
  AddOtherSchedules(choice, result);
  const int segments = choice.recompute_segments;
  std::set<int> others = {segments / 2, segments - 1, segments + 1, 2 * segments};
  others.erase(segments);
  for (const int other : others) {
    if (other < 0 || (other == 1 && choice.mesh.pipeline == 1)) continue;
    // What runs again is kept until the second part of the backward pass: StageMemory has no
    // estimate for that.
    if (other > 0 && choice.schedule == "zero_bubble") continue;
    result.push_back(choice);
    result.back().recompute_segments = other;
  }
  for (const int zero : {0, 1, 2, 3}) {
    if (zero == choice.zero || choice.mesh.data == 1) continue;
    result.push_back(choice);
    result.back().zero = zero;
  }
  return result;
}

}  // namespace weft
