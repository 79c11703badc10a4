#include "placement/search/alternatives.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "placement/completion/plan_completion.h"
#include "placement/files/plan_file.h"
#include "placement/search/plan_choice.h"
#include "placement/search/plan_search.h"
#include "platform/byte_quantity.h"
#include "platform/status_macros.h"

namespace weft {
namespace {

constexpr size_t kMaxAlternatives = 3;
// Partitioning takes a while: so many tries in all.
constexpr int kMaxTries = 40;
// Of a replica. Compiling takes time with them, for this check and in the job: a second or two.
constexpr int64_t kMaxMicroBatches = 512;
// With more, much of a step's time is what each of them costs, whatever its size.
constexpr int64_t kUsualMicroBatches = 32;

class AlternativeFinder {
 public:
  AlternativeFinder(const Graph& graph, const ClusterSpec& cluster, const CostModel& cost,
                    const Plan& refused, const SearchOptions& options,
                    const MemoryOfPlanFn& memory_of, NodeEvaluator& evaluator)
      : graph_(graph),
        cluster_(cluster),
        cost_(cost),
        options_(options),
        memory_of_(memory_of),
        evaluator_(evaluator),
        base_(ChoiceOf(refused, 0)) {}

  std::vector<Alternative> Run() {
    if (base_.mesh.tensor == 1) {  // flags alone do not say how parameters are split
      TryFirst("recomputation", Recomputing(base_));
      TryFirst("ZeRO", Sharding(base_));
      TryFirst("more micro-batches", Cutting(base_));
    }
    TrySearched();
    TryFirst("several at once", Combining());
    return std::move(found_);
  }

 private:
  using Choices = std::vector<PlanChoice>;

  static Choices Recomputing(const PlanChoice& base) {
    Choices choices;
    for (const int segments : {2, 4, 8, 1}) {
      choices.push_back(base);
      choices.back().recompute_segments = segments;
    }
    return choices;
  }
  static Choices Sharding(const PlanChoice& base) {
    Choices choices;
    for (int zero = base.zero + 1; zero <= 3 && base.mesh.data > 1; ++zero) {
      choices.push_back(base);
      choices.back().zero = zero;
    }
    return choices;
  }
  bool MayCut() const { return !options_.fixed_micro_batches && !options_.given.whole_batch; }
  Choices Cutting(const PlanChoice& base) const {
    Choices choices;
    if (!MayCut()) return choices;
    const int64_t max_count = std::min(options_.global_batch, kMaxMicroBatches * base.mesh.data);
    for (int64_t count = int64_t{2} * base.micro_batches; count <= max_count; count *= 2) {
      choices.push_back(base);
      choices.back().micro_batches = static_cast<int>(count);
    }
    return choices;
  }
  // The most that can be saved with a usual number of micro-batches first, then ever more of them.
  Choices Combining() const {
    PlanChoice base = base_;
    base.mesh = {base_.mesh.size(), 1, 1};
    Choices choices;
    if (options_.max_replicas > 0 && base.mesh.data > options_.max_replicas) return choices;
    if (options_.given.whole_batch) base.micro_batches = base.mesh.data;
    Choices cut = MayCut() ? Cutting(base) : Choices{base};
    const int64_t usual = kUsualMicroBatches * base.mesh.data;
    std::reverse(cut.begin(), std::partition_point(cut.begin(), cut.end(), [&](const auto& choice) {
                   return choice.micro_batches <= usual;
                 }));
    for (PlanChoice& choice : cut) {
      choice.zero = base.mesh.data > 1 ? 3 : 0;
      for (PlanChoice& again : Recomputing(choice)) choices.push_back(std::move(again));
    }
    return choices;
  }

  // Of the rank that is nearest to its limit; nullopt when the plan does not fit or cannot be.
  std::optional<int64_t> Fits(const PlanChoice& choice) {
    if (++tries_ > kMaxTries) return std::nullopt;
    absl::StatusOr<Plan> plan = ParseParallel(ParallelText(choice));
    if (!plan.ok()) return std::nullopt;
    plan->strict = options_.given.strict;
    plan->whole_batch = options_.given.whole_batch;
    plan->tf32 = options_.given.tf32;
    plan->host_ops = options_.given.host_ops;
    plan->uses_cudnn = options_.given.uses_cudnn;
    plan->fuses_nodes = options_.given.fuses_nodes;
    plan->threads_per_worker = options_.given.threads_per_worker;
    plan->bucket_bytes = options_.given.bucket_bytes;
    plan = CompletePlan(graph_, cluster_, *std::move(plan), options_.global_batch);
    if (!plan.ok()) return std::nullopt;
    const absl::StatusOr<std::vector<int64_t>> memory = memory_of_(*plan);
    if (!memory.ok()) return std::nullopt;
    double worst = -1;
    int64_t bytes_of_worst = 0;
    for (size_t rank = 0; rank < memory->size(); ++rank) {
      const size_t worker = static_cast<size_t>(plan->workers[rank]);
      const int64_t bytes = (*memory)[rank] + options_.process_bytes;
      const int64_t limit =
          worker < options_.memory_limits.size() ? options_.memory_limits[worker] : 0;
      if (limit > 0 && bytes > limit) return std::nullopt;
      const double fill =
          static_cast<double>(bytes) / static_cast<double>(std::max<int64_t>(1, limit));
      if (fill <= worst) continue;
      worst = fill;
      bytes_of_worst = bytes;
    }
    return bytes_of_worst;
  }

  bool Try(const std::string& what, const PlanChoice& choice) {
    if (found_.size() >= kMaxAlternatives) return true;
    for (const Alternative& known : found_) {
      if (known.what == what) return true;
    }
    const std::string flags = ParallelText(choice);
    if (!seen_.insert(flags).second) return false;
    const std::optional<int64_t> bytes = Fits(choice);
    if (bytes.has_value()) found_.push_back({what, flags, *bytes});
    return bytes.has_value();
  }

  // The first that fits.
  void TryFirst(const std::string& what, const Choices& choices) {
    for (const PlanChoice& choice : choices) {
      if (Try(what, choice)) return;
    }
  }

  // The search knows memory by coarse estimates: what was a little too much, fits so.
  static Choices WithRecomputation(const PlanChoice& choice) {
    Choices choices = {choice};
    if (choice.recompute_segments > 0 || choice.schedule == "zero_bubble") return choices;
    for (PlanChoice& again : Recomputing(choice)) choices.push_back(std::move(again));
    return choices;
  }

  // What a search takes, and of what it does not the fastest that fit.
  void TrySearched() {
    SearchOptions options = options_;
    options.max_tensor = 1;
    options.exact_plans = 0;
    const absl::StatusOr<SearchResult> result =
        SearchPlan(graph_, cluster_, cost_, options, evaluator_);
    if (!result.ok()) return;
    Choices choices = {result->chosen.choice};
    for (const PlanCandidate& other : result->rejected) {
      if (other.fits) choices.push_back(other.choice);
    }
    for (PlanChoice& choice : choices) {
      // Flags name all workers in their order.
      if (static_cast<int>(choice.workers.size()) != cost_.num_workers()) continue;
      TryFirst(choice.mesh == base_.mesh ? "several at once" : "another mesh",
               WithRecomputation(choice));
    }
  }

  const Graph& graph_;
  const ClusterSpec& cluster_;
  const CostModel& cost_;
  const SearchOptions& options_;
  const MemoryOfPlanFn& memory_of_;
  NodeEvaluator& evaluator_;
  const PlanChoice base_;
  std::set<std::string> seen_;
  int tries_ = 0;
  std::vector<Alternative> found_;
};

}  // namespace

std::vector<Alternative> FindAlternatives(const Graph& graph, const ClusterSpec& cluster,
                                          const CostModel& cost, const Plan& refused,
                                          const SearchOptions& options,
                                          const MemoryOfPlanFn& memory_of,
                                          NodeEvaluator& evaluator) {
  return AlternativeFinder(graph, cluster, cost, refused, options, memory_of, evaluator).Run();
}

std::string AlternativesText(const std::vector<Alternative>& alternatives) {
  std::string text;
  for (const Alternative& alternative : alternatives) {
    absl::StrAppend(&text, text.empty() ? "; each of these fits: " : ", ", "--parallel ",
                    alternative.parallel, " (", alternative.what, ": ",
                    ByteQuantity(alternative.memory_bytes), ")");
  }
  return text;
}

}  // namespace weft
