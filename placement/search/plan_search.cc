#include "placement/search/plan_search.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "graph/node_class.h"
#include "placement/completion/plan_completion.h"
#include "placement/partition/partition_summary.h"
#include "placement/partition/partitioner.h"
#include "placement/search/plan_evaluator.h"
#include "placement/search/plan_simulation.h"
#include "placement/search/plan_space.h"
#include "placement/search/search_strategy.h"
#include "platform/byte_quantity.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

constexpr size_t kMaxRejected = 12;
constexpr int kVariantsOfTheBest = 3;
// Plans that take this much longer by coarse estimates than the fastest simulated one are not
// simulated: none that did turned out faster.
constexpr double kTooSlowToSimulate = 1.1;

PlanCandidate CandidateOf(const EvaluatedChoice& evaluated) {
  PlanCandidate candidate;
  candidate.choice = evaluated.choice;
  candidate.step_seconds = evaluated.step_seconds;
  candidate.compute_seconds = evaluated.compute_seconds;
  candidate.communication_seconds = evaluated.communication_seconds;
  candidate.bubble_seconds = evaluated.bubble_seconds;
  candidate.memory_bytes = evaluated.memory_bytes;
  candidate.memory_limit = evaluated.memory_limit;
  candidate.fits = evaluated.fits;
  return candidate;
}

std::string DoesNotFit(const PlanCandidate& candidate) {
  return absl::StrCat("does not fit: needs ", ByteQuantity(candidate.memory_bytes), " of ",
                      ByteQuantity(candidate.memory_limit));
}

// What of a slower plan's step the chosen one's does not have.
std::string WhySlower(const PlanCandidate& candidate, const PlanCandidate& chosen) {
  const std::pair<const char*, double> parts[] = {
      {"it computes longer", candidate.compute_seconds - chosen.compute_seconds},
      {"it waits for communication",
       candidate.communication_seconds - chosen.communication_seconds},
      {"ranks wait for each other", candidate.bubble_seconds - chosen.bubble_seconds}};
  const auto* worst =
      std::max_element(std::begin(parts), std::end(parts),
                       [](const auto& a, const auto& b) { return a.second < b.second; });
  const double factor = candidate.step_seconds / std::max(1e-12, chosen.step_seconds);
  if (factor < 1.005) {
    return candidate.exact ? "as fast; the first of equals is taken"
                           : "about as fast by coarse estimates; not simulated rank by rank";
  }
  return absl::StrFormat("%.2f times slower: %s (%.0f %% of its step)", factor, worst->first,
                         100 * worst->second / candidate.step_seconds);
}

class Searcher {
 public:
  Searcher(const Graph& graph, const ClusterSpec& cluster, const CostModel& cost,
           const SearchOptions& options, NodeEvaluator& evaluator)
      : graph_(graph), cluster_(cluster), cost_(cost), options_(options), evaluator_(evaluator) {
    options_.worker_threads.clear();
    for (const WorkerSpec& worker : cluster.workers) {
      options_.worker_threads.push_back(worker.threads);
    }
  }

  absl::StatusOr<SearchResult> Run() {
    WEFT_ASSIGN_OR_RETURN(const auto strategy, NewSearchStrategy(options_.strategy));
    WEFT_ASSIGN_OR_RETURN(plans_, PlanEvaluator::Create(graph_, cost_, options_, evaluator_));
    const PlanSpace space(*plans_);
    WEFT_ASSIGN_OR_RETURN(evaluated_, strategy->Run(space, *plans_));
    std::erase_if(evaluated_, [](const EvaluatedChoice& one) { return !one.refusal.empty(); });
    if (evaluated_.empty()) return NothingToChoose();
    std::stable_sort(evaluated_.begin(), evaluated_.end(),
                     [](const EvaluatedChoice& a, const EvaluatedChoice& b) {
                       if (a.fits != b.fits) return a.fits;
                       return a.fits ? a.step_seconds < b.step_seconds : Excess(a) < Excess(b);
                     });
    for (const EvaluatedChoice& one : evaluated_) candidates_.push_back(CandidateOf(one));
    WEFT_RETURN_IF_ERROR(Choose());
    if (!chosen_.has_value()) WEFT_RETURN_IF_ERROR(ChooseSmaller());
    if (!chosen_.has_value()) return NothingFits();
    return Result();
  }

 private:
  // Of an EvaluatedChoice or a PlanCandidate.
  template <typename T>
  static double Excess(const T& one) {
    return static_cast<double>(one.memory_bytes) /
           static_cast<double>(std::max<int64_t>(1, one.memory_limit));
  }

  absl::Status NothingToChoose() const {
    return absl::InvalidArgumentError(absl::StrCat(
        "no plan uses ", cost_.num_workers(), " workers for a batch of ", options_.global_batch,
        options_.fixed_micro_batches
            ? absl::StrCat(" in ", options_.given.micro_batches, " micro-batches")
            : "",
        "; use fewer workers, or let the search leave some out: --parallel auto", BatchNote()));
  }

  absl::Status NothingFits() const {
    // Of those that were looked at: none that is held to fit still.
    const PlanCandidate& smallest =
        *std::min_element(candidates_.begin(), candidates_.end(), [](const auto& a, const auto& b) {
          return a.fits != b.fits ? b.fits : Excess(a) < Excess(b);
        });
    return absl::ResourceExhaustedError(absl::StrCat(
        "no plan of ", evaluated_.size(), " fits the workers' memory; the least has ",
        ParallelText(smallest.choice), ": a rank needs ", ByteQuantity(smallest.memory_bytes),
        " and may have ", ByteQuantity(smallest.memory_limit),
        "; use more workers or memory, a smaller --batch, or a smaller model", BatchNote()));
  }

  // Why there were not more plans.
  std::string BatchNote() const {
    return options_.batch_reason.empty() ? "" : absl::StrCat("; ", options_.batch_reason);
  }

  absl::StatusOr<Plan> PlanOf(size_t index) const;
  struct SimulatedPlan {
    size_t candidate = 0;
    Plan plan;
    std::vector<RankNeed> ranks;  // empty where the plan is too large to be simulated
    // Of `ranks`; null where nobody compiles them.
    std::unique_ptr<const std::vector<Partition>> partitions;
  };
  absl::Status Simulate(SimulatedPlan& simulated, PlanCandidate& candidate) const;
  static void SumMemory(const std::vector<RankNeed>& ranks, PlanCandidate& candidate);
  void Compile(SimulatedPlan& simulated, PlanCandidate& candidate) const;
  double FastestOf(const std::vector<SimulatedPlan>& simulated) const;
  bool Try(size_t index, std::vector<SimulatedPlan>& simulated);
  void TryVariants(std::vector<SimulatedPlan>& simulated);
  absl::Status TakeFastest(std::vector<SimulatedPlan>& simulated);
  absl::Status Choose();
  absl::Status ChooseSmaller();
  absl::StatusOr<SearchResult> Result();

  const Graph& graph_;
  const ClusterSpec& cluster_;
  const CostModel& cost_;
  SearchOptions options_;
  NodeEvaluator& evaluator_;
  std::unique_ptr<PlanEvaluator> plans_;
  std::vector<EvaluatedChoice> evaluated_;  // those that fit first, the best of them first
  std::vector<PlanCandidate> candidates_;   // of these
  std::optional<size_t> chosen_;
  Plan plan_;  // of the chosen one
};

absl::StatusOr<Plan> Searcher::PlanOf(size_t index) const {
  Plan plan = plans_->PlanOf(evaluated_[index]);
  return CompletePlan(graph_, cluster_, std::move(plan), options_.global_batch);
}

absl::Status Searcher::Simulate(SimulatedPlan& simulated, PlanCandidate& candidate) const {
  PlanSimulationOptions options;
  options.global_batch = options_.global_batch;
  options.memory_limits = options_.memory_limits;
  options.process_bytes = options_.process_bytes;
  WEFT_ASSIGN_OR_RETURN(PlanSimulation simulation,
                        SimulatePlan(graph_, simulated.plan, cost_, options, evaluator_));
  candidate.exact = true;
  candidate.step_seconds = simulation.step_seconds;
  candidate.compute_seconds = simulation.compute_seconds;
  candidate.communication_seconds = simulation.communication_seconds;
  candidate.bubble_seconds = simulation.bubble_seconds;
  simulated.ranks = std::move(simulation.ranks);
  if (options_.rank_memory != nullptr) simulated.partitions = std::move(simulation.partitions);
  SumMemory(simulated.ranks, candidate);
  return absl::OkStatus();
}

// The rank that is nearest to its limit counts, or where there is none the one that needs most.
void Searcher::SumMemory(const std::vector<RankNeed>& ranks, PlanCandidate& candidate) {
  candidate.fits = true;
  double worst = -1;
  for (const RankNeed& rank : ranks) {
    if (!rank.fits()) candidate.fits = false;
    const double fill = static_cast<double>(rank.total()) /
                        (rank.limit > 0 ? static_cast<double>(rank.limit) : 1e18);
    if (fill <= worst) continue;
    worst = fill;
    candidate.memory_bytes = rank.total();
    candidate.memory_limit = rank.limit;
  }
}

// Puts what compiles find in the place of the estimates, where one of them comes near its limit. If
// this machine cannot compile for some rank, the estimates stay.
void Searcher::Compile(SimulatedPlan& simulated, PlanCandidate& candidate) const {
  if (simulated.partitions == nullptr) return;
  if (std::none_of(simulated.ranks.begin(), simulated.ranks.end(), IsNearLimit)) return;
  std::vector<int64_t> bytes;
  for (const Partition& partition : *simulated.partitions) {
    const absl::StatusOr<int64_t> found =
        options_.rank_memory(partition, simulated.plan.workers[partition.rank.value]);
    if (!found.ok()) return;
    bytes.push_back(*found);
  }
  for (size_t i = 0; i < bytes.size(); ++i) {
    simulated.ranks[i].bytes = options_.process_bytes + bytes[i];
    simulated.ranks[i].arena_bytes = 0;  // among them
  }
  candidate.compiled = true;
  SumMemory(simulated.ranks, candidate);
}

// Takes the fastest of `simulated` whose memory can be laid out within the limits. The others that
// were tried do not fit.
absl::Status Searcher::TakeFastest(std::vector<SimulatedPlan>& simulated) {
  std::stable_sort(
      simulated.begin(), simulated.end(), [&](const SimulatedPlan& a, const SimulatedPlan& b) {
        return candidates_[a.candidate].step_seconds < candidates_[b.candidate].step_seconds;
      });
  for (SimulatedPlan& one : simulated) {
    PlanCandidate& candidate = candidates_[one.candidate];
    WEFT_RETURN_IF_ERROR(LayOutArenas(one.ranks));
    if (!one.ranks.empty()) SumMemory(one.ranks, candidate);
    if (candidate.fits) Compile(one, candidate);
    if (!candidate.fits) continue;
    chosen_ = one.candidate;
    plan_ = std::move(one.plan);
    break;
  }
  simulated.clear();
  return absl::OkStatus();
}

double Searcher::FastestOf(const std::vector<SimulatedPlan>& simulated) const {
  double fastest = std::numeric_limits<double>::infinity();
  for (const SimulatedPlan& one : simulated) {
    fastest = std::min(fastest, candidates_[one.candidate].step_seconds);
  }
  return fastest;
}

// Simulates it where it is small enough, and adds it where it fits. False where it is not possible.
bool Searcher::Try(size_t index, std::vector<SimulatedPlan>& simulated) {
  PlanCandidate& candidate = candidates_[index];
  absl::StatusOr<Plan> plan = PlanOf(index);
  absl::Status possible = plan.status();
  const bool is_simulated = plan.ok() && plans_->IsSimulated(plan->mesh);
  SimulatedPlan one = {index, plan.ok() ? *std::move(plan) : Plan(), {}, nullptr};
  if (is_simulated) possible = Simulate(one, candidate);
  if (!possible.ok()) {
    candidate.reason = absl::StrCat("not possible: ", std::string(possible.message()));
    candidate.fits = false;
    return false;
  }
  if (candidate.fits) simulated.push_back(std::move(one));
  return true;
}

// Of the mesh that is the fastest, the next best by coarse estimates are simulated too: they cannot
// tell schedules and numbers of micro-batches apart by a few percent.
void Searcher::TryVariants(std::vector<SimulatedPlan>& simulated) {
  const auto fastest = std::min_element(
      simulated.begin(), simulated.end(), [&](const SimulatedPlan& a, const SimulatedPlan& b) {
        return candidates_[a.candidate].step_seconds < candidates_[b.candidate].step_seconds;
      });
  if (fastest == simulated.end() || !candidates_[fastest->candidate].exact) return;
  const PlanChoice best = candidates_[fastest->candidate].choice;
  const double too_slow = kTooSlowToSimulate * FastestOf(simulated);
  int tried = 0;
  for (size_t i = 0; i < candidates_.size() && tried < kVariantsOfTheBest; ++i) {
    const PlanCandidate& candidate = candidates_[i];
    if (!candidate.fits) break;
    const PlanChoice& choice = candidate.choice;
    if (candidate.exact || choice.mesh != best.mesh || choice.workers != best.workers) continue;
    if (candidate.step_seconds >= too_slow) break;
    if (Try(i, simulated)) ++tried;
  }
}

// The best few of different meshes are simulated exactly. A plan that turns out not to be possible
// makes room for the next.
absl::Status Searcher::Choose() {
  int tried = 0;
  bool are_enough = false;
  std::vector<SimulatedPlan> simulated;                  // those that may fit
  std::set<std::tuple<std::string, size_t, bool>> seen;  // variants of one mesh take long alike
  for (size_t i = 0; i < candidates_.size(); ++i) {
    const PlanCandidate& candidate = candidates_[i];
    if (!candidate.fits) break;
    if (are_enough || candidate.step_seconds >= kTooSlowToSimulate * FastestOf(simulated)) {
      TryVariants(simulated);
      WEFT_RETURN_IF_ERROR(TakeFastest(simulated));
      if (chosen_.has_value()) break;
    }
    const PlanChoice& choice = candidate.choice;
    const std::tuple variant(choice.mesh.ToString(), choice.workers.size(), choice.zero > 0);
    if (!seen.insert(variant).second) continue;
    if (Try(i, simulated)) {
      are_enough = ++tried >= options_.exact_plans || !candidate.exact;
    } else {
      seen.erase(variant);
    }
  }
  if (!chosen_.has_value()) {
    TryVariants(simulated);
    WEFT_RETURN_IF_ERROR(TakeFastest(simulated));
  }
  return absl::OkStatus();
}

// Where all that were tried turn out not to fit, those that need the least by coarse estimates are
// tried, whatever their mesh: the first that fits is taken.
absl::Status Searcher::ChooseSmaller() {
  std::vector<size_t> rest;
  for (size_t i = 0; i < candidates_.size(); ++i) {
    if (candidates_[i].fits && !candidates_[i].exact) rest.push_back(i);
  }
  std::stable_sort(rest.begin(), rest.end(), [&](size_t a, size_t b) {
    return Excess(candidates_[a]) < Excess(candidates_[b]);
  });
  rest.resize(std::min(rest.size(), static_cast<size_t>(std::max(1, options_.exact_plans))));
  for (const size_t index : rest) {
    std::vector<SimulatedPlan> one;
    Try(index, one);
    WEFT_RETURN_IF_ERROR(TakeFastest(one));
    if (chosen_.has_value()) break;
  }
  return absl::OkStatus();
}

absl::StatusOr<SearchResult> Searcher::Result() {
  SearchResult result;
  result.plan = std::move(plan_);
  result.chosen = candidates_[*chosen_];
  result.evaluated = plans_->evaluated();
  result.partitioned = result.chosen.exact;
  result.batch_reason = options_.batch_reason;
  Prediction& prediction = result.plan.prediction;
  prediction.step_seconds = result.chosen.step_seconds;
  prediction.calibrated = cost_.is_calibrated();
  prediction.compute_seconds = result.chosen.compute_seconds;
  prediction.communication_seconds = result.chosen.communication_seconds;
  prediction.bubble_fraction =
      result.chosen.bubble_seconds / std::max(1e-12, result.chosen.step_seconds);
  const PlanCandidate coarse = CandidateOf(evaluated_[*chosen_]);
  using MeshOnWorkers = std::pair<std::string, size_t>;
  const auto mesh_of = [](const PlanCandidate& one) {
    return MeshOnWorkers(one.choice.mesh.ToString(), one.choice.workers.size());
  };
  std::set<MeshOnWorkers> simulated;
  for (const PlanCandidate& one : candidates_) {
    if (one.exact && one.fits) simulated.insert(mesh_of(one));
  }
  // Coarse estimates are not put beside exact ones of the same mesh.
  std::set<MeshOnWorkers> meshes;
  std::vector<PlanCandidate> others;
  for (size_t i = 0; i < candidates_.size(); ++i) {
    const bool is_known = candidates_[i].exact || !simulated.contains(mesh_of(candidates_[i]));
    if (i != *chosen_ && is_known) others.push_back(candidates_[i]);
  }
  std::stable_sort(others.begin(), others.end(), [](const auto& a, const auto& b) {
    if (a.fits != b.fits) return a.fits;
    return a.fits && a.step_seconds < b.step_seconds;
  });
  meshes.insert(mesh_of(result.chosen));
  for (PlanCandidate& other : others) {
    const bool is_new = meshes.insert(mesh_of(other)).second;
    if (!is_new || result.rejected.size() >= kMaxRejected) continue;
    if (other.reason.empty()) {
      const PlanCandidate& chosen = other.exact ? result.chosen : coarse;
      other.reason = other.fits ? WhySlower(other, chosen) : DoesNotFit(other);
    }
    result.rejected.push_back(std::move(other));
  }
  return result;
}

}  // namespace

absl::StatusOr<SearchResult> SearchPlan(const Graph& graph, const ClusterSpec& cluster,
                                        const CostModel& cost, const SearchOptions& options,
                                        NodeEvaluator& evaluator) {
  return Searcher(graph, cluster, cost, options, evaluator).Run();
}

bool DependsOnMicroBatches(const Graph& graph) {
  for (const Variable& variable : graph.variables()) {
    if (variable.trainable || !variable.slot_of.empty() || !variable.update.valid()) continue;
    // Walks back from the update: does it read what forward nodes make?
    std::vector<bool> seen(graph.value_capacity());
    std::vector<ValueId> pending = {variable.update};
    while (!pending.empty()) {
      const ValueId id = pending.back();
      pending.pop_back();
      if (!id.valid() || seen[id.value] || graph.value(id).source != ValueSource::kNode) continue;
      seen[id.value] = true;
      const Node& node = graph.node(graph.value(id).producer);
      if (IsForward(node)) return true;
      if (IsBackward(node)) continue;
      pending.insert(pending.end(), node.inputs.begin(), node.inputs.end());
    }
  }
  return false;
}

absl::StatusOr<std::vector<int64_t>> MemoryOfPlan(const Graph& graph, const Plan& plan,
                                                  int64_t global_batch, NodeEvaluator& evaluator,
                                                  const RankMemoryFn& rank_memory) {
  WEFT_ASSIGN_OR_RETURN(const std::vector<Partition> partitions,
                        PartitionStep(graph, plan, {/*training=*/true, global_batch}, evaluator));
  std::vector<int64_t> bytes;
  for (const Partition& partition : partitions) {
    const int worker = plan.workers[partition.rank.value];
    WEFT_ASSIGN_OR_RETURN(bytes.emplace_back(), MemoryOfRank(partition, worker, rank_memory));
  }
  return bytes;
}

}  // namespace weft
